"""The first hour with a GPU: `make test-gpu`. What only a GPU can show; skipped where there is none.

Losses of 20 updates against the CPU's, synchronisations with the host, kill and resume bit for bit, memory against
the forecast, compiled fine-tuning, generation by a CUDA graph, and two ranks over NCCL where there are two GPUs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.finetuning import FinetuneConfig, finetune
from headwater.inference import Engine, Request, torch_network
from headwater.inference.torch_network import TorchNetwork, TorchRunner
from headwater.model import IGNORE, build_model, load_model, preset, save_model
from headwater.pretraining import PretrainConfig, TokenBatch, forecast, l1, masked
from headwater.storage import Progress
from headwater.tokenizer import Tokenizer
from headwater.training import Ranks, TrainConfig, Trainer, read_journal
from headwater_papers.relatives.bilstm import both_directions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
CUDA = torch.device("cuda:0")
UPDATES = 20
TRANSFORMERS = ("gpt1", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl", "bert-base", "bert-large")
FULL_SIZE = (*TRANSFORMERS, "lstm", "bilstm-mini")
# Largest relative difference of a loss: TF32 is off here, and other kernels add in another order. The absolute one
# is for losses near 0, differences of numbers of the size of the first loss.
APART = {"fp32": 1e-3, "bf16": 2e-2}
NEAR_ZERO = 1e-4


def trainer_of(
    name: str, device: torch.device, precision: Any, dropout: float = 0.0
) -> tuple[Trainer, TokenBatch]:
    layers = 1 if name == "lstm" else 2
    model = build_model(preset(name, layers=layers, context=64, dropout=dropout), seed=1).to(device)
    ids = torch.randint(0, model.config.vocabulary, (8, 65), generator=torch.Generator().manual_seed(2))
    ids, targets = ids[:, :-1], ids[:, 1:].clone()
    if model.config.is_masked:
        targets[:, ::2] = IGNORE
    weights = (targets != IGNORE).float()
    settings = TrainConfig(steps=UPDATES, precision=precision, learning_rate=1e-4, dropout=dropout)
    elmo = model.config.architecture == "bilstm"
    objective = masked if model.config.is_masked else both_directions if elmo else l1
    batch = TokenBatch(ids, targets, weights / weights.sum())
    return Trainer(model, objective, settings, ranks=Ranks(device=device)), batch.to(device)


def losses_of(trainer: Trainer, batch: TokenBatch) -> list[float]:
    return [trainer.update([batch]).loss for _ in range(UPDATES)]


@pytest.mark.parametrize("compiled", ["off", "on"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", FULL_SIZE)
def test_twenty_updates_give_the_cpu_s_losses(name: str, precision: Any, compiled: Any) -> None:
    expected = losses_of(*trainer_of(name, torch.device("cpu"), "fp32"))
    trainer, batch = trainer_of(name, CUDA, precision)
    notes: list[str] = []
    trainer.compile_blocks(batch, compiled, notes.append)
    assert notes == ([] if compiled == "off" else ["compiled"])
    assert losses_of(trainer, batch) == pytest.approx(expected, rel=APART[precision], abs=NEAR_ZERO)


@pytest.mark.parametrize("name", FULL_SIZE)
def test_the_host_waits_once_an_update(name: str) -> None:
    trainer, batch = trainer_of(name, CUDA, "bf16", dropout=0.1)
    trainer.update([batch, batch])
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.update([batch, batch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([w for w in caught if "synchronizing" in str(w.message)]) == 1


def command(tokens: Path, out: Path, **changes: Any) -> list[str]:
    settings = {
        **{"context": 64, "steps": 60, "batch_size": 8, "micro_batch": 4, "validate_every": 30},
        **{"checkpoint_every": 5, "precision": "bf16", "deterministic": "true"},
    } | changes
    options = [f"--set={key}={value}" for key, value in settings.items()]
    target = ["--preset=gpt2-nano", f"--tokens={tokens}", f"--out={out}", "--device=cuda"]
    return ["pretrain", *target, *options]


def run(*arguments: str) -> int:
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    return subprocess.run([sys.executable, *arguments], env=environment, timeout=600).returncode


def test_a_killed_run_ends_bit_for_bit_the_same(tokens: Path, tmp_path: Path, ended: Any) -> None:
    assert run("-m", "headwater", *command(tokens, tmp_path / "whole")) == 0
    killed = tmp_path / "killed"
    assert run(*ended(signal.SIGKILL, 12), *command(tokens, killed)) == -signal.SIGKILL
    assert (killed / "checkpoints" / "step-00000005").exists()
    assert not (killed / "model").exists()
    assert run("-m", "headwater", *command(tokens, killed)) == 0
    weights = [load_model(path / "model").state_dict() for path in (tmp_path / "whole", killed)]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


@pytest.mark.parametrize("compiled", ["off", "on"])
def test_the_peak_is_within_a_tenth_of_the_forecast(tokens: Path, tmp_path: Path, compiled: str) -> None:
    changes = {"preset": "gpt2-small", "context": 1_024, "batch_size": 16, "micro_batch": 8, "precision": "bf16"}
    torch.cuda.reset_peak_memory_stats()
    result = forecast(
        PretrainConfig.build(changes, {"device": "cuda", "compile": compiled}), tokens, tmp_path / "run"
    )
    assert torch.cuda.max_memory_allocated() == pytest.approx(result.total, rel=0.1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_cuda_graph_generates_the_text_of_single_launches(
    monkeypatch: pytest.MonkeyPatch, precision: Any
) -> None:
    tokenizer = Tokenizer.train(["a river "], vocab_size=270, special_tokens=["<|endoftext|>"])
    model = build_model(preset("gpt2-nano", vocabulary=280, init_deviation=0.08), seed=4).eval().to(CUDA)
    network = TorchNetwork.of(model, precision)
    samplings: list[dict[str, Any]] = [
        {"temperature": 0},
        {"top_k": 20},
        {"top_p": 0.9, "repetition_penalty": 1.2},
    ]
    requests = [
        Request(prompt=[5, 6, n], max_tokens=30, seed=n, alternatives=2 if n == 4 else None, **samplings[n % 3])
        for n in range(8)
    ]

    def texts(crowd: bool) -> list[list[int]]:
        engine = Engine(TorchRunner(network, 8), tokenizer)
        if not crowd:
            return [engine.submit(request).wait().tokens for request in requests]
        running = [engine.submit(request) for request in requests]
        while engine.step():
            pass
        return [generation.tokens for generation in running]

    recorded = texts(crowd=True)
    assert texts(crowd=False) == recorded
    monkeypatch.setattr(torch_network, "recorded", lambda compute: compute)
    assert texts(crowd=True) == recorded


@pytest.mark.parametrize("name", ["gpt1-nano", "bert-nano"])
def test_two_fine_tunings_compile_for_all_text_lengths(name: str, tmp_path: Path) -> None:
    class Notes(Progress):
        texts: tuple[str, ...] = ()

        def note(self, text: str) -> None:
            self.texts += (text,)

    tokenizer = Tokenizer.train(["a river "], vocab_size=270, special_tokens=["<|endoftext|>"])
    base, table = tmp_path / "base", tmp_path / "rows.csv"
    base.mkdir()
    shape = preset(name, vocabulary=tokenizer.vocabulary_size, context=96)
    save_model(build_model(shape, seed=1), base, tokenizer=tokenizer)
    rows = [f"{'ab'[n % 2] * (1 + 7 * n % 80)},{'ab'[n % 2]}\n" for n in range(64)]
    table.write_text("text,label\n" + "".join(rows), encoding="utf-8")
    for place in ("first", "second"):
        notes = Notes()
        config = FinetuneConfig(
            epochs=4, batch_size=8, learning_rate=1e-3, compile="on", device=str(CUDA), precision="bf16"
        )
        finetune(config, tmp_path / place, model=base, train=table, validation=table, progress=notes)
        assert "compiled" in notes.texts


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("shard", ["false", "true"])
def test_two_ranks_over_nccl_give_the_losses_of_one(tokens: Path, tmp_path: Path, shard: str) -> None:
    settings = {"precision": "fp32", "deterministic": "false", "steps": 12}
    assert run("-m", "headwater", *command(tokens, tmp_path / "one", **settings)) == 0
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "headwater")
    assert run(*torchrun, *command(tokens, tmp_path / "two", shard=shard, **settings)) == 0
    one, two = (read_journal(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], rel=1e-3)
