"""Properties of this machine: cores, memory, and the rate of its matmuls."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_CONTAINER = Path("/sys/fs/cgroup")  # limits of this process's control group on Linux (version 2)


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
    from headwater.model import cpu_info

    return cpu_info("model name") or platform.processor() or platform.machine()


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


# Dense matmul operations a second in bfloat16 and in TF32, without sparsity, by the prefix of the GPU's name: from
# NVIDIA's data sheets.
_PEAKS = {
    "NVIDIA A100": (312e12, 156e12),
    "NVIDIA H100 PCIe": (756e12, 378e12),
    "NVIDIA H100": (989e12, 495e12),
    "NVIDIA H200": (989e12, 495e12),
    "NVIDIA L40S": (362e12, 183e12),
    "NVIDIA L4": (121e12, 60e12),
}


def published_rate(name: str, dtype: torch.dtype) -> float | None:
    """Return the peak rate for `dtype` in a GPU's data sheet, None for an unknown GPU."""
    import torch

    for beginning, (bf16, tf32) in _PEAKS.items():
        if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-")):
            return bf16 if dtype == torch.bfloat16 else tf32
    return None


@cache
def matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations a second of matmuls, the upper bound of training.

    The published peak of a known GPU, else measured; on a device with matmuls large enough to hide a launch.
    """
    import torch

    if device.type == "cuda":
        known = published_rate(torch.cuda.get_device_name(device), dtype)
        if known is not None:
            return known
    return _measured_rate(dtype, device, 1_024 if device.type == "cpu" else 8_192)


def _measured_rate(dtype: torch.dtype, device: torch.device, size: int) -> float:
    import torch

    from headwater.model import default_backend

    left, right = torch.ones(2, size, size, device=device, dtype=dtype)
    linear = default_backend().linear

    def four() -> None:
        for _ in range(4):
            linear(left, right)

    return 4 * 2 * size**3 / _seconds(four, device, 3)


def _seconds(compute: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the shortest time of several calls, after one that chooses kernels and allocates memory.

    On CUDA it is the device's own time, without the time of launches.
    """
    import torch

    def once() -> float:
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(torch.cuda.current_stream(device))
            compute()
            end.record(torch.cuda.current_stream(device))
            end.synchronize()
            return start.elapsed_time(end) / 1e3
        begun = time.perf_counter()
        compute()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - begun

    once()
    return min(once() for _ in range(repeats))


@contextmanager
def arithmetic(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Within the block use TF32 for float32 matmuls on CUDA, and deterministic algorithms if asked."""
    import torch

    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision == "tf32", torch.are_deterministic_algorithms_enabled()
    try:
        if device.type == "cuda":
            # If `fp32_precision` is set, torch's compiler raises an error where it reads the old setting (pytorch
            # 166387).
            matmul.allow_tf32 = True
        if deterministic:
            torch.use_deterministic_algorithms(True)
        yield
    finally:
        if device.type == "cuda":
            matmul.allow_tf32 = before[0]
        if deterministic:
            torch.use_deterministic_algorithms(before[1])


@cache
def memory_rate(device: torch.device) -> float:
    """Measure the bytes a second of reading one large tensor and writing another, both counted."""
    import torch

    size = 64 * 1024**2
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source), device, 4)


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
