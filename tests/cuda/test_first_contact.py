"""What a run and a dry run ask of a CUDA device, on a machine without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from headwater.errors import Interrupted
from headwater.model import Backend, build_model, transformer
from headwater.model.io import weights
from headwater.pretraining import PretrainConfig, forecasting, pretraining
from headwater.pretraining.recipe import resolve
from headwater.storage import SILENT
from headwater.training import Ranks, checkpoint, parallel, process_group, trainer

TINY: dict[str, Any] = {
    "preset": "gpt2-pico",
    "context": 32,
    "model": {"width": 32, "heads": 2},
    "steps": 4,
    "batch_size": 4,
    "micro_batch": 2,
    "checkpoint_every": 2,
    "dropout": 0.0,
}
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, on_device: Any) -> SimpleNamespace:
    """A GPU's name and memory."""
    seen = SimpleNamespace(name=H100, synchronised=0)

    def synchronize() -> None:
        seen.synchronised += 1

    def build(config: Any, seed: int) -> Any:
        return on_device(build_model(config, device="meta"))

    monkeypatch.setattr(pretraining, "build_model", build)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: seen.name)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1 << 30)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    return seen


@pytest.fixture(scope="module")
def begun(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that began on the CPU and was interrupted after its third update, with a checkpoint of the second."""
    out = tmp_path_factory.mktemp("begun") / "run"

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        config = PretrainConfig.build(TINY, {"precision": "fp32", "device": "cpu"})
        pretraining.pretrain(config, tokens, out, on_update=stop)
    return out


def test_a_run_begun_on_a_cpu_resumes_with_a_gpu_s_kernels(
    begun: Path, tokens: Path, fake_cuda: Any, gpu: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A CPU's backend, whatever the processor of this machine.
    monkeypatch.setattr(transformer, "default_backend", lambda: Backend("onednn", native=True))
    recipe = pretraining._begun(begun)
    assert recipe is not None
    # Read outside `fake_cuda`, because the file's tensors have data.
    saved = weights._open_file(begun / "checkpoints" / "step-00000002" / checkpoint._WHOLE)
    monkeypatch.setattr(weights, "_open_file", lambda path: saved)
    with fake_cuda() as contract:
        ranks = Ranks(device=device)
        resumed = resolve(PretrainConfig.build(TINY, {"device": "cuda"}), tokens, ranks, recipe)
        assert resumed.deciding() == recipe.deciding()
        run = pretraining.build_run(resumed, tokens, begun, ranks, SILENT)
        assert run.trainer.backend.native
        run._resume()
        assert run.trainer.step == 2
        contract.operators.clear()
        contract.waits.clear()
        run.trainer.update(run.read(2))
    assert contract.waits == ["tolist"]
    assert contract.operators["_fused_adamw_"] == 2
    assert contract.operators["_scaled_dot_product_efficient_attention"] == 2 * 2  # blocks, micro-batches


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The precision of float32 matmuls, once for each block that ran in compiled code."""
    ran: list[str] = []

    def compile_(forward: Any, dynamic: bool | None) -> Any:
        def run(*given: Any) -> Any:
            ran.append(torch.backends.cuda.matmul.fp32_precision)
            return forward(*given)

        return run

    monkeypatch.setattr(trainer, "_compile", compile_)
    # The gradient of the loss stays eager: its compiled code cannot run on a device without data.
    monkeypatch.setattr(trainer, "_COMPILER", None)
    return ran


def test_a_dry_run_times_the_compiled_updates_of_the_run(
    fake_cuda: Any, gpu: Any, compiled: list[str], tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "_TIMINGS", 2)
    monkeypatch.setattr(forecasting, "_TIMED", 0.0)
    with fake_cuda() as contract:
        result = forecasting.forecast(PretrainConfig.build(TINY, {"device": "cuda"}), tokens, tmp_path / "run")
    assert (result.config.precision, result.available) == ("bf16", 80 << 30)
    assert result.advice == "It fits"
    # Compared once; three updates of one micro-batch, to see how long it takes, and two timings; two blocks.
    assert compiled == ["tf32"] * 2 * (1 + 3 + 2)
    assert contract.waits.count("tolist") == 5


def test_nccl_gets_the_rank_s_device_and_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    store = dist.HashStore()
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    current: list[torch.device] = []
    monkeypatch.setattr(torch, "zeros", lambda size, device: torch.ones(size))
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: iter([(store, 1, 2)]))
    monkeypatch.setattr(parallel, "agreed_name", lambda *_: "start")
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **options: given.append({"backend": backend} | options)
    )
    with process_group("cuda") as ranks:
        assert (ranks.rank, ranks.count, ranks.device) == (1, 2, torch.device("cuda:1"))
    (options,) = given
    del options["store"]
    assert options == {
        **{"backend": "nccl", "rank": 1, "world_size": 2},
        **{"device_id": torch.device("cuda:1"), "timeout": parallel.TIMEOUT},
    }
    assert current == [torch.device("cuda:1")]
