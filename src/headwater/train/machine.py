"""What this machine can do, asked of the machine itself: cores, memory, and the rate of its matrix products."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from headwater.model import kernels

# Parameters of the GNU C library's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_CONTAINER = Path("/sys/fs/cgroup")  # what Linux grants to this process's control group (version 2)


def available_cores() -> int:
    """Cores that this process may use: affinity, a container's CPU quota, and hyper-threads counted once."""
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = len({_core_of(cpu) for cpu in affinity})
    quota = _cpu_quota()
    return max(1, min(cores, math.floor(quota + 0.5)) if quota else cores)


def processor_name() -> str:
    """What the processor is called."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def use_all_cores() -> int:
    """Set torch's threads to the cores there are, unless OMP_NUM_THREADS says otherwise; returns the number."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(available_cores())
    return torch.get_num_threads()


def keep_memory() -> None:
    """Let the C library keep what tensors give back: an update's memory is that of the one before it.

    By default large pieces go back to the system each time, and are cleared, page by page, when they come again:
    an eighth of an update. Without effect where the C library is not the GNU one.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)


def available_memory(device: torch.device) -> int:
    """Bytes that a program may still take on the device, a container's limit considered."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
        limit = (_CONTAINER / "memory.max").read_text().strip()
        if limit != "max":
            used = int((_CONTAINER / "memory.current").read_text())
            # Pages of files that were read count as used, and are given up when memory is asked for.
            counts = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text().splitlines())
            limits.append(int(limit) - used + int(counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        pass
    if not limits and sys.platform != "win32" and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=8 * 1024**3)


@cache
def matmul_rate(dtype: torch.dtype, device: torch.device, size: int = 1024) -> float:
    """Measured floating-point operations a second of a square matrix product, by the faster road there is.

    The limit that training is held to.
    """
    left = torch.randn(size, size, device=device, dtype=torch.float32).to(dtype)
    right = torch.randn(size, size, device=device, dtype=torch.float32).to(dtype)

    def once(road: Callable[[Tensor, Tensor], Tensor]) -> float:
        start = time.perf_counter()
        for _ in range(4):
            road(left, right)
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return (time.perf_counter() - start) / 4

    roads = kernels.product_roads(device, dtype)
    for road in roads:
        once(road)  # the first product pays for choosing a kernel
    return 2 * size**3 / min(once(road) for _ in range(3) for road in roads)


@cache
def bfloat16_gain(device: torch.device, size: int = 512) -> float:
    """How many times as fast a matrix product is in bfloat16 as in float32.

    Measured in turns; on a CPU in the processor's seconds where they are counted finely, which other programs on
    the machine hardly change: what is decided by this changes results.
    """
    fine = time.get_clock_info("process_time").resolution < 1e-3  # not on Windows
    clock = time.process_time if fine and device.type == "cpu" else time.perf_counter
    best: dict[torch.dtype, float] = {}
    for turn in range(6):
        for dtype in (torch.float32, torch.bfloat16):
            operand = torch.ones(size, size, device=device, dtype=dtype)
            for road in kernels.product_roads(device, dtype):
                started = clock()
                for _ in range(4):
                    road(operand, operand)
                if device.type != "cpu":
                    torch.accelerator.synchronize()
                if turn:  # the first product pays for choosing a kernel
                    best[dtype] = min(best.get(dtype, math.inf), clock() - started)
    return best[torch.float32] / best[torch.bfloat16]


@cache
def memory_rate(device: torch.device, size: int = 64 * 1024**2) -> float:
    """Measured bytes a second of reading one large tensor and writing another, both counted."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def once() -> float:
        start = time.perf_counter()
        target.copy_(source)
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - start

    once()
    return 2 * size / min(once() for _ in range(4))


def _core_of(cpu: int) -> str:
    try:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        return (topology / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _cpu_quota() -> float | None:
    """Cores' worth of time that the container grants, or None where there is no limit."""
    try:
        quota, period = (_CONTAINER / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None
