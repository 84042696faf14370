"""Find a benchmark's device, and measure the peak memory of its process in MB, in the same way for every side."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """Return the peak since the process began, or since `forget_peak`; of the GPU if the process used one.

    On Linux it is VmHWM: the peak of getrusage includes what the parent used before the exec.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return float(torch.cuda.max_memory_allocated() / 1e6)
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Reset the peak, so that earlier work such as building a model does not count; only Linux can."""
    with contextlib.suppress(OSError):
        _FORGET.write_text("5")


def device_of(name: str) -> Any:
    """Return torch's device of this name; end with a message if it is unavailable."""
    from headwater.device import choose_device
    from headwater.errors import UsageError

    try:
        return choose_device(name)
    except UsageError as error:
        raise SystemExit(f"Error: {error}") from None
