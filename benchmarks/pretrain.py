"""Compare training speed and peak memory with nanoGPT and transformers, and with the machine's limit.

    python benchmarks/pretrain.py                                   # every case, transformers as the peer
    python benchmarks/pretrain.py --device cuda --nanogpt PATH/TO/nanoGPT --llmc PATH/TO/llm.c
    python benchmarks/pretrain.py --nanogpt PATH/TO/nanoGPT         # nanoGPT too, eager and compiled
    python benchmarks/pretrain.py --case midi-4k --precision bf16 --rounds 5
    python benchmarks/pretrain.py --case bert-base --precision bf16 # masked, next to transformers' BertForMaskedLM
    python benchmarks/pretrain.py --pieces --case midi-4k           # each part of the backend, on and off
    python benchmarks/pretrain.py --growth                          # from a million to a billion tokens on disk

Every system runs in a process of its own, in turns, on the same random tokens: forward, backward, clip and AdamW.
The script reports the median of tokens/s, the peak memory of the process, the median over rounds of the ratio to
each peer, and the share of the measured matmul rate that the model's floating-point operations reach.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import llm_c
import torch
from peak import device_of, peak_megabytes
from torch.utils.benchmark import Timer


class Case(NamedTuple):
    layers: int
    width: int
    heads: int
    context: int
    batch: int
    vocabulary: int
    masked: bool = False  # BERT's model and objective


CASES = {
    "small-1024": Case(12, 768, 12, 1024, 1, 50_257),
    "midi-4k": Case(6, 384, 6, 256, 16, 4_096),
    "midi-50k": Case(6, 384, 6, 256, 16, 50_257),
    "bert-base": Case(12, 768, 12, 512, 2, 30_522, masked=True),
    "gpt2-small": Case(12, 768, 12, 1024, 32, 50_257),
    "gpt2-medium": Case(24, 1024, 16, 1024, 16, 50_257),
}
ON_CPU, ON_GPU = ("small-1024", "midi-4k", "midi-50k"), ("gpt2-small", "gpt2-medium")
DEVICE = torch.device("cpu")  # --device changes it
SYSTEMS = ("headwater", "transformers", "nanogpt", "nanogpt-compiled", "llm.c")


def batch_of(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, case.vocabulary, (case.batch, case.context + 1), generator=generator)
    tokens = tokens.to(DEVICE)
    if case.masked:  # 15 % of the positions are targets; what is read there does not change the work
        chosen = torch.rand(tokens[:, :-1].shape, generator=generator) < 0.15
        return tokens[:, :-1].contiguous(), tokens[:, :-1].where(chosen, -100)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def headwater_step(case: Case, precision: str, _: str, backend: Any = None) -> Callable[[], float]:
    from headwater.cli import prepare
    from headwater.model import ModelConfig, build_model, preset
    from headwater.pretraining import TokenBatch, l1, masked
    from headwater.training import Ranks, TrainConfig, Trainer

    prepare()  # as the command line does
    shape = dict(zip(("layers", "width", "heads", "context"), case[:4], strict=True)) | {
        "vocabulary": case.vocabulary
    }
    config = preset("bert-base", dropout=0.0, **shape) if case.masked else ModelConfig(**shape)
    settings = TrainConfig(steps=10_000, precision=precision)
    model, ranks = build_model(config, seed=1).to(DEVICE), Ranks(device=DEVICE)
    trainer = Trainer(model, masked if case.masked else l1, settings, ranks=ranks, backend=backend)
    ids, targets = batch_of(case)
    batch = TokenBatch(ids, targets, (targets >= 0).float() / (targets >= 0).sum())
    trainer.compile_blocks(batch, "auto", lambda note: print(note, file=sys.stderr))
    return lambda: trainer.update([batch]).loss


def bert_step(case: Case, precision: str) -> Callable[[], float]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=case.vocabulary,
        max_position_embeddings=case.context,
        hidden_size=case.width,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=4 * case.width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM._from_config(config, attn_implementation="sdpa")
    ids, targets = batch_of(case)
    return peer_step(model, precision, lambda: model(ids, labels=targets).loss)


def transformers_step(case: Case, precision: str, _: str) -> Callable[[], float]:
    if case.masked:
        return bert_step(case, precision)
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=case.vocabulary,
        n_positions=case.context,
        n_embd=case.width,
        n_layer=case.layers,
        n_head=case.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).to(DEVICE)
    ids, _targets = batch_of(case)
    return peer_step(model, precision, lambda: model(ids, labels=ids).loss)


def nanogpt_step(case: Case, precision: str, folder: str, *, compiled: bool = False) -> Callable[[], float]:
    sys.path.insert(0, folder)
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    config = GPTConfig(
        block_size=case.context,
        vocab_size=case.vocabulary,
        n_layer=case.layers,
        n_head=case.heads,
        n_embd=case.width,
        dropout=0.0,
        bias=True,
    )
    model = GPT(config).to(DEVICE)
    ids, targets = batch_of(case)
    forward = torch.compile(model) if compiled else model
    return peer_step(model, precision, lambda: forward(ids, targets)[1])


def peer_step(model: torch.nn.Module, precision: str, loss_of: Callable[[], Any]) -> Callable[[], float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step() -> float:
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss)

    return step


STEPS: dict[str, Callable[[Case, str, str], Callable[[], float]]] = {
    "headwater": headwater_step,
    "transformers": transformers_step,
    "nanogpt": nanogpt_step,
    "nanogpt-compiled": lambda case, precision, folder: nanogpt_step(case, precision, folder, compiled=True),
}


def work(system: str, case: Case, precision: str, arguments: argparse.Namespace) -> dict[str, float]:
    if system == "llm.c":
        return llm_c.measure(arguments.llmc, case, arguments.updates)
    step = STEPS[system](case, precision, arguments.nanogpt)
    for _ in range(2):
        step()
    seconds = []
    for _ in range(arguments.updates):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return {
        "tokens_per_second": case.batch * case.context / statistics.median(seconds),
        "peak_mb": peak_megabytes(),
    }


def flops_a_token(case: Case) -> int:
    predicted = 0.15 if case.masked else 1.0  # share of the positions
    weights = 12 * case.layers * case.width**2 + int(predicted * case.vocabulary * case.width)
    return 6 * weights + 12 * case.layers * case.width * case.context


def matmul_rate(dtype: torch.dtype) -> float:
    """Return the operations per second of matmuls, the upper bound of training."""
    from headwater.model import default_backend

    size = 1_024 if DEVICE.type == "cpu" else 8_192
    names = {"x": torch.ones(size, size, dtype=dtype, device=DEVICE), "linear": default_backend().linear}
    timer = Timer("linear(x, x)", globals=names, num_threads=torch.get_num_threads())
    return 2 * size**3 / timer.timeit(10).mean


def compare(name: str, precision: str, arguments: argparse.Namespace) -> dict[str, Any]:
    case = CASES[name]
    absent = set() if arguments.nanogpt and not case.masked else {"nanogpt", "nanogpt-compiled"}
    if reason := llm_c.absence(arguments.llmc, precision, case.layers):
        absent.add("llm.c")
        if arguments.llmc:
            print(f"llm.c is skipped: {reason}", file=sys.stderr)
    systems = [system for system in SYSTEMS if system not in absent]
    rounds: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    for _ in range(arguments.rounds):
        for system in systems:
            command = [sys.executable, __file__, "--work", system, "--case", name, "--precision", precision]
            for option in ("updates", "nanogpt", "llmc", "device"):
                command += [f"--{option}", str(getattr(arguments, option))]
            output = subprocess.run(command, capture_output=True, text=True, env=os.environ)
            if output.returncode:
                print(f"{system} failed: {output.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            rounds[system].append(json.loads(output.stdout.splitlines()[-1]))
    rate = matmul_rate(torch.bfloat16 if precision == "bf16" else torch.float32)
    result: dict[str, Any] = {"case": name, "precision": precision, "matmul_rate": rate, "systems": {}}
    ours = [r["tokens_per_second"] for r in rounds["headwater"]]
    for system, found in rounds.items():
        if not found:
            continue
        speeds = [r["tokens_per_second"] for r in found]
        result["systems"][system] = {
            "tokens_per_second": statistics.median(speeds),
            "peak_mb": statistics.median(r["peak_mb"] for r in found),
            "headwater_ratio": statistics.median(a / b for a, b in zip(ours, speeds, strict=False)),
        }
    speed = result["systems"]["headwater"]["tokens_per_second"]
    result["share_of_matmul_rate"] = speed * flops_a_token(case) / rate
    return result


def switch_off(name: str, precision: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of an update with each choice of the backend, in turns; see `model/backend.py`."""
    from headwater.model import Backend, default_backend

    chosen = default_backend()
    changes = {
        "default": chosen,
        "native kernels off": replace(chosen, native=False),
        "matmul torch": replace(chosen, matmul="torch"),
        "matmul onednn": replace(chosen, matmul="onednn"),
        "all in torch": Backend(),
    }
    best = dict.fromkeys(changes, float("inf"))
    for _ in range(arguments.rounds):
        for label, backend in changes.items():
            step = headwater_step(CASES[name], precision, "", backend=backend)
            for _ in range(1 + arguments.updates):
                started = time.process_time() if arguments.cpu_time else time.perf_counter()
                step()
                ended = time.process_time() if arguments.cpu_time else time.perf_counter()
                best[label] = min(best[label], ended - started)
    return {"case": name, "precision": precision, "seconds": best}


def grow(arguments: argparse.Namespace) -> dict[str, Any]:
    """A small model on token folders of growing size, in turns: time a token, and memory as updates go by."""
    import numpy as np

    from headwater.model import build_model, preset
    from headwater.pretraining import Sampler, TokenStream, l1
    from headwater.storage import Stage
    from headwater.training import TrainConfig, Trainer

    context, batch = 64, 8
    seconds: dict[int, list[float]] = {}
    memory = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for tokens in (10**6, 10**7, 10**8, 10**9):
            out = Path(folder) / str(tokens)
            counts = {"train": {"tokens": tokens, "documents": 1, "bytes": 4 * tokens}}
            with Stage(
                out, kind="tokens", config={"vocabulary_size": 256, "counts": counts}, inputs={}
            ).write() as work:
                # A sparse file: it has its full size, and takes no space on the disk.
                np.lib.format.open_memmap(work / "train-00000.npy", "w+", np.uint16, (tokens,)).flush()
            model = build_model(preset("gpt2-pico", vocabulary=256, context=context), seed=1)
            trainer = Trainer(model, l1, TrainConfig(steps=10**6, precision="fp32"))
            runs.append((tokens, trainer, Sampler(TokenStream(out, "train", context), batch, batch, seed=1)))
            seconds[tokens] = []
        for update in range(1, arguments.growth_updates + 1):
            for tokens, trainer, sampler in runs:
                started = time.process_time() if arguments.cpu_time else time.perf_counter()
                trainer.update(sampler.micro_batches(update))
                ended = time.process_time() if arguments.cpu_time else time.perf_counter()
                seconds[tokens].append(ended - started)
            if update in (10, arguments.growth_updates):
                memory[update] = anonymous_memory()
    medians = {tokens: statistics.median(found) / (batch * context) for tokens, found in seconds.items()}
    return {"case": "growth", "seconds_a_token": medians, "anonymous_bytes_after_update": memory}


def anonymous_memory() -> int:
    """Return the resident bytes of this process that are not mapped from a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def show(result: dict[str, Any]) -> None:
    if "systems" not in result:
        print(json.dumps(result, indent=1))
        return
    print(
        f"\n{result['case']}, {result['precision']}: {result['share_of_matmul_rate']:.0%} of the matmul rate",
        end="",
    )
    print(f" ({result['matmul_rate'] / 1e9:.0f} GFLOP/s)")
    for system, found in result["systems"].items():
        line = (
            f"  {system:18} {found['tokens_per_second']:9,.0f} tokens/s  {found['peak_mb'] * 1.048576e-3:5.2f} GB"
        )
        print(line + ("" if system == "headwater" else f"  headwater is {found['headwater_ratio']:.2f} x"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--precision", choices=("bf16", "fp32"), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--nanogpt", default="", help="folder of a nanoGPT checkout")
    parser.add_argument("--llmc", default="", help="folder of an llm.c checkout")
    parser.add_argument("--pieces", action="store_true", help="time each part of the backend in either form")
    parser.add_argument("--growth", action="store_true", help="time and memory over the size of the data")
    parser.add_argument("--growth-updates", type=int, default=1_000)
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for a machine that is not quiet")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", choices=SYSTEMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = device_of(arguments.device)
    torch.backends.cuda.matmul.allow_tf32 = True  # for every system
    if arguments.work:
        case, precision = CASES[arguments.case[0]], arguments.precision[0]
        print(json.dumps(work(arguments.work, case, precision, arguments)))
        return
    if arguments.growth:
        print(json.dumps(grow(arguments), indent=1))
        return
    for name in arguments.case or (ON_CPU if DEVICE.type == "cpu" else ON_GPU):
        for precision in arguments.precision or ("bf16", "fp32"):
            result = (switch_off if arguments.pieces else compare)(name, precision, arguments)
            print(json.dumps(result)) if arguments.json else show(result)


if __name__ == "__main__":
    main()
