"""This machine: which device computes, and what the processor, its memory and other programs leave free.

Nothing here imports torch before it is called.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ROOT = Path("/")  # of Linux's /proc and /sys
# An efficiency core of Intel's hybrid processors against a performance core of 1,024, where Linux does not tell.
_EFFICIENCY_CORE = 512


def choose_device(device: str, local_rank: int = 0, *, training: bool = True) -> torch.device:
    """Return the device of this name, this rank's own of several GPUs; raise UsageError if it is unavailable.

    "auto" is CUDA if there is a GPU, else, for training, MPS, else the CPU.
    """
    import torch

    if device == "auto":
        mps = training and torch.backends.mps.is_available()
        device = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type == "cuda" and chosen.index is None:
            chosen = torch.device("cuda", local_rank)
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        if reason.startswith("Expected one of"):  # torch lists the devices of all its builds
            reason = "torch has no such device"
        elif isinstance(error, NotImplementedError):  # torch lists the devices of this build
            reason = "this torch was built without it"
        whom = f" by rank {local_rank} of this machine" if local_rank else ""
        raise UsageError(
            f"device {device!r} cannot be used{whom}: {reason}",
            expected="auto, cpu, cuda or mps, and a GPU for each rank",
            repair="Start one rank for each GPU" if local_rank else "Use --device auto: a GPU if there is one",
        ) from None
    return chosen


def bf16_is_fast(device: torch.device) -> bool:
    """Return whether bfloat16 matrix products are faster than float32 ones, by the device's features.

    GPUs since compute capability 8.0; CPUs with bfloat16 products: AVX-512 BF16, AMX, or Arm's BF16.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if hasattr(torch.cpu, "get_capabilities"):
        features = {name for name, value in torch.cpu.get_capabilities().items() if value is True}
    else:
        features = set((_cpu_info("flags") or _cpu_info("Features")).split())
    # Arm's on Linux only: torch for macOS does not use them.
    names = ("avx512_bf16", "amx_bf16", *(["bf16"] if sys.platform == "linux" else []))
    return device.type == "cpu" and not features.isdisjoint(names)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device; to a CUDA device asynchronously, from pinned memory."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def available_memory(device: torch.device) -> int:
    """Return the free memory of a device in bytes, within the limits of this process's control groups."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    import psutil  # type: ignore[import-untyped]

    free = int(psutil.virtual_memory().available)
    for group in _control_groups():
        limits = _numbers(f"{group}/memory.max") + _numbers(f"{group}/memory.high")
        used = _numbers(f"{group}/memory.current")
        if limits and used:
            # Cached file pages count as used, but are released on demand.
            cached = int(_table(f"{group}/memory.stat").get("inactive_file", ["0"])[0])
            free = min(free, max(0, min(limits) - used[0] + cached))
    return free


def available_cores() -> int:
    """Return how many threads of this process compute fastest together, at least one.

    Cores are those of its affinity, without hyper-threads and within the quota of its control groups. Where cores
    differ, threads that share work evenly are all as slow as the slowest: little cores that would delay more than
    they add are left out.
    """
    if sys.platform == "darwin":
        cores = _fast_cores_of_a_mac() or os.cpu_count() or 1
    else:
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        spans = [part.split("-") for part in _read("sys/devices/cpu_atom/cpus").split(",") if part]  # 4-7,9
        little = {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
        speeds = {}  # of each core: 1,024 is the fastest
        for cpu in affinity:
            capacity = _numbers(f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity")
            speed = capacity[0] if capacity else _EFFICIENCY_CORE if cpu in little else 1024
            speeds[_read(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)] = speed
        ordered = sorted(speeds.values(), reverse=True)
        cores = max(range(1, len(ordered) + 1), key=lambda count: count * ordered[count - 1])
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.floor(quota + 0.5)))


def cpu_quota() -> float | None:
    """Return the processor time that this process's control groups allow, in cores, or None if none limits it."""
    quotas = []
    for group in _control_groups():
        numbers = _numbers(f"{group}/cpu.max")  # "max 100000" without a limit
        if len(numbers) == 2:
            quotas.append(numbers[0] / numbers[1])
    return min(quotas, default=None)


def processor_name() -> str:
    """Return the name of the processor."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


@cache
def processor_vendor() -> str:
    """Return the processor's vendor as the system names it, with "AMD" or "Intel" in it; perhaps empty."""
    return _cpu_info("vendor_id") or platform.processor()


def _read(path: str) -> str:
    """Return the text of a file below `_ROOT`, empty if it cannot be read."""
    try:
        return (_ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _numbers(path: str) -> list[int]:
    """Return the numbers in a file, none if another word, such as `max`, is first."""
    words = _read(path).split()
    return [int(word) for word in words] if words and all(word.lstrip("-").isdecimal() for word in words) else []


def _table(path: str) -> dict[str, list[str]]:
    """Return the words after the first of each line of a file, by the first."""
    return {words[0]: words[1:] for line in _read(path).splitlines() if len(words := line.split()) > 1}


def _control_groups() -> Iterator[str]:
    """Yield the folders of this process's control group (version 2) and of the groups around it, on Linux.

    Limits hold at every level. A container may see only a part of the hierarchy, in which its own group is the
    mount's root.
    """
    mounts = [line.split() for line in _read("proc/self/mountinfo").splitlines()]
    paths = [line[3:] for line in _read("proc/self/cgroup").splitlines() if line.startswith("0::")]
    for path in paths:
        for mount in mounts:
            root, point = (Path(word.replace("\\040", " ")) for word in mount[3:5])
            if mount[mount.index("-") + 1] == "cgroup2":
                inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
                for folder in (inside, *inside.parents):
                    yield str(point / folder).lstrip("/")


def _fast_cores_of_a_mac() -> int:
    """Return the performance cores of an Apple processor, 0 for another."""
    size, count = ctypes.c_size_t(4), ctypes.c_int32()
    name = b"hw.perflevel0.physicalcpu"
    failed = ctypes.CDLL(None).sysctlbyname(
        name, ctypes.byref(count), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return 0 if failed else count.value


def _cpu_info(key: str) -> str:
    """Return the first value of a key in Linux's /proc/cpuinfo, empty if there is none."""
    lines = _read("proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
