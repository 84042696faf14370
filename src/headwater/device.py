"""This machine: which device computes, and what the processor, its memory and other programs leave free.

Nothing here imports torch before it is called.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_CONTAINER = Path("/sys/fs/cgroup")  # limits of this process's control group on Linux (version 2)


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
    features = torch.cpu.get_capabilities()
    # Arm's on Linux only: torch for macOS does not use them.
    names = ("avx512_bf16", "amx_bf16", *(["bf16"] if sys.platform == "linux" else []))
    return device.type == "cpu" and any(features.get(name) for name in names)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device; to a CUDA device asynchronously, from pinned memory."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def available_memory(device: torch.device) -> int:
    """Return the free memory of a device in bytes, within a container's limit."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
        limit = (_CONTAINER / "memory.max").read_text().strip()
        if limit != "max":
            used = int((_CONTAINER / "memory.current").read_text())
            # Cached file pages count as used, but are released on demand.
            counts = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text().splitlines())
            limits.append(int(limit) - used + int(counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        pass
    if not limits and sys.platform != "win32" and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=8 * 1024**3)


def available_cores() -> int:
    """Return the cores that this process may use: by affinity and a container's quota, without hyper-threads."""
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = len({_core_of(cpu) for cpu in affinity})
    quota = _cpu_quota()
    return max(1, min(cores, math.floor(quota + 0.5)) if quota else cores)


def cores_in_use() -> float:
    """Return how many of this process's cores other programs used in the last minute."""
    if not hasattr(os, "getloadavg"):  # Windows
        return 0.0
    free = (os.cpu_count() or 1) - os.getloadavg()[0]
    return min(float(available_cores()), max(0.0, available_cores() - free))


def processor_name() -> str:
    """Return the name of the processor."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


@cache
def processor_vendor() -> str:
    """Return the processor's vendor as the system names it, with "AMD" or "Intel" in it; perhaps empty."""
    return _cpu_info("vendor_id") or platform.processor()


def _core_of(cpu: int) -> str:
    try:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        return (topology / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _cpu_quota() -> float | None:
    """Return the container's limit in cores, or None."""
    try:
        quota, period = (_CONTAINER / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _cpu_info(key: str) -> str:
    """Return the first value of a key in Linux's /proc/cpuinfo, empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
