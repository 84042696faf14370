"""The rate of this machine's matmuls, the upper bound of training."""

from __future__ import annotations

import time
from functools import cache

import torch

from headwater.model import default_backend

# Dense matmul operations per second in NVIDIA's data sheets, without sparsity, in bfloat16 and in TF32, by the
# beginning of a device's name; the longer of two names first.
_PUBLISHED = {
    "NVIDIA A100": (312e12, 156e12),
    "NVIDIA H100 PCIe": (756e12, 378e12),
    "NVIDIA H100": (989e12, 495e12),
    "NVIDIA H200": (989e12, 495e12),
    "NVIDIA L40S": (362e12, 183e12),
    "NVIDIA L4": (121e12, 60e12),
}


def published_rate(name: str, dtype: torch.dtype) -> float | None:
    """Return the peak rate for `dtype` in a GPU's data sheet, None for an unknown GPU."""
    for gpu, (bf16, tf32) in _PUBLISHED.items():
        if name == gpu or name.startswith((f"{gpu} ", f"{gpu}-")):
            return bf16 if dtype == torch.bfloat16 else tf32
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
