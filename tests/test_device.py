"""The device that computes, and what this machine leaves free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater import device
from headwater.device import choose_device
from headwater.errors import UsageError


def test_each_rank_gets_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "zeros", lambda size, device: torch.ones(size))
    assert choose_device("cuda", 3) == torch.device("cuda:3")
    assert choose_device("cuda:1", 3) == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", 3) == torch.device("cuda:3")


def test_a_device_that_cannot_compute_is_refused() -> None:
    with pytest.raises(UsageError, match="device 'meta' cannot be used by rank 2"):
        choose_device("meta", 2)


@pytest.mark.parametrize("name", ["quantum", "hpu", "xla", "mps:7"])
def test_the_error_is_short_and_names_the_repair(name: str) -> None:
    with pytest.raises(UsageError, match="Use --device auto") as raised:
        choose_device(name)
    assert len(str(raised.value)) < 200


def test_cuda_without_a_gpu_is_refused() -> None:
    if torch.cuda.is_available():
        assert choose_device("cuda").type == "cuda"
        return
    with pytest.raises(UsageError, match=r"device 'cuda' cannot be used.*a GPU for each rank"):
        choose_device("cuda")


def test_a_containers_file_cache_is_available_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (
        ("memory.max", "3000"),
        ("memory.current", "2900"),
        ("memory.stat", "anon 100\ninactive_file 2500\nactive_file 300"),
        ("cpu.max", "150000 100000"),
    ):
        (tmp_path / name).write_text(content + "\n")
    monkeypatch.setattr(device, "_CONTAINER", tmp_path)
    assert device.available_memory(torch.device("cpu")) == 2600
    assert device.available_cores() <= 2
