"""The device that computes, and what this machine leaves free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil  # type: ignore[import-untyped]
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


V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
# What a process reads of its own control groups, the cores it may use of eight, and the bytes that are free.
GROUPS = {
    "systemd's slice above the scope": (
        V2,
        "0::/user.slice/user-7.slice/run-1.scope",
        {
            "user.slice/user-7.slice/run-1.scope/cpu.max": "max 100000",
            "user.slice/user-7.slice/run-1.scope/memory.max": "max",
            "user.slice/user-7.slice/run-1.scope/memory.high": "max",
            "user.slice/user-7.slice/run-1.scope/memory.current": "500",
            "user.slice/user-7.slice/cpu.max": "300000 100000",
            "user.slice/user-7.slice/memory.max": "9000",
            "user.slice/user-7.slice/memory.high": "8000",
            "user.slice/user-7.slice/memory.current": "5000",
            "user.slice/user-7.slice/memory.stat": "anon 100\ninactive_file 2500\nactive_file 300",
            "other.slice/cpu.max": "100000 100000",
        },
        (3, 5500),
    ),
    "a container in its own namespace": (
        V2,
        "0::/",
        {
            "cpu.max": "150000 100000",
            "memory.max": "3000",
            "memory.current": "2900",
            "memory.stat": "inactive_file 9",
        },
        (2, 109),
    ),
    "half a core, and more in use than allowed": (
        V2,
        "0::/",
        {"cpu.max": "50000 100000", "memory.max": "3000", "memory.current": "3100"},
        (1, 0),
    ),
    "no limit": (V2, "0::/", {}, (8, 7 * 1024)),
    "no control groups": ("", "", {}, (8, 7 * 1024)),
}


def make_machine(root: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: int = 8) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    monkeypatch.setattr(device, "_ROOT", root)
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _: set(range(cpus)), raising=False)
    monkeypatch.setattr(device.sys, "platform", "linux")


@pytest.mark.parametrize("name", GROUPS)
def test_limits_are_those_of_the_processs_own_control_groups(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts, groups, limits, expected = GROUPS[name]
    files = {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{path}": content for path, content in limits.items()}
    make_machine(tmp_path, monkeypatch, files)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7 * 1024))
    assert (device.available_cores(), device.available_memory(torch.device("cpu"))) == expected


def test_hyper_threads_of_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    make_machine(tmp_path, monkeypatch, {siblings.format(cpu): f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})
    assert device.available_cores() == 4
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _: {1, 2, 5})
    assert device.available_cores() == 2


@pytest.mark.parametrize(
    ("capacities", "threads"),
    [
        ((1024, 900, 900, 900, 300, 300, 300, 300), 4),  # eight threads at 300 compute less than four at 900
        ((1024, 1024, 600, 600, 600, 600), 6),
        ((600, 600), 2),  # what taskset left
    ],
)
def test_little_cores_are_used_where_they_add(
    capacities: tuple[int, ...], threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity": str(size) for cpu, size in enumerate(capacities)}
    make_machine(tmp_path, monkeypatch, files, len(capacities))
    assert device.available_cores() == threads


def test_efficiency_cores_of_intel_count_as_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_machine(tmp_path, monkeypatch, {"sys/devices/cpu_atom/cpus": "4-6,7"})
    assert device.available_cores() == 4
    make_machine(tmp_path, monkeypatch, {"sys/devices/cpu_atom/cpus": "2-7"})
    assert device.available_cores() == 8
