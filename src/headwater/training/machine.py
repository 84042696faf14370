"""The rate of this machine's matmuls, the upper bound of training."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import torch

from headwater.model import default_backend


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU in NVIDIA's data sheets: dense matmul operations per second, without sparsity, and bytes of memory.

    `name` is how the names of such devices begin.
    """

    name: str
    bf16: float
    tf32: float
    memory: float


# The GPUs whose data sheets are known, by the name that `--for` takes.
GPUS = {
    "a100": Gpu("NVIDIA A100", 312e12, 156e12, 80e9),
    "h100-pcie": Gpu("NVIDIA H100 PCIe", 756e12, 378e12, 80e9),
    "h100": Gpu("NVIDIA H100", 989e12, 495e12, 80e9),
    "h200": Gpu("NVIDIA H200", 989e12, 495e12, 141e9),
    "l40s": Gpu("NVIDIA L40S", 362e12, 183e12, 48e9),
    "l4": Gpu("NVIDIA L4", 121e12, 60e12, 24e9),
}


def published_rate(name: str, dtype: torch.dtype) -> float | None:
    """Return the peak rate for `dtype` in a GPU's data sheet, None for an unknown GPU."""
    for gpu in GPUS.values():
        if name == gpu.name or name.startswith((f"{gpu.name} ", f"{gpu.name}-")):
            return gpu.bf16 if dtype == torch.bfloat16 else gpu.tf32
    return None


@cache
def matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations per second of matmuls, the upper bound of training.

    The published peak of a known GPU, else the best of three measurements: of the device's own time, on a CPU of
    the time of all threads, which other programs do not change.
    """
    if device.type == "cuda":
        known = published_rate(torch.cuda.get_device_name(device), dtype)
        if known is not None:
            return known
    size = 1_024 if device.type == "cpu" else 8_192  # large enough to hide the launch on a device
    left, right = torch.ones(2, size, size, device=device, dtype=dtype)
    _seconds(left, right)  # chooses kernels and allocates memory
    return 4 * 2 * size**3 / min(_seconds(left, right) for _ in range(3))


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the time of four matmuls."""
    device, linear = left.device, default_backend().linear
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(torch.cuda.current_stream(device))
    begun = time.process_time() if device.type == "cpu" else time.perf_counter()
    for _ in range(4):
        linear(left, right)
    if device.type == "cuda":
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    if device.type == "cpu":
        return max(time.process_time() - begun, 1e-6) / torch.get_num_threads()
    torch.accelerator.synchronize()
    return time.perf_counter() - begun
