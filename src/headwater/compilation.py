"""C sources inside the package, built by the machine's own compiler on first use and kept in the cache.

Where there is no compiler, or the processor lacks what a source needs, there is no library and no complaint:
whoever asks has a road in torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import StorageError
from headwater.resources import cache_folder
from headwater.storage import atomic_write, read_bytes

_OPTIONS = ["-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11"]
_COMPILE_SECONDS = 120


def compiled(
    source: Path, options: Sequence[str] = (), needed: frozenset[str] = frozenset()
) -> ctypes.CDLL | None:
    """The library made of `source`, or None where it cannot be had.

    `options` go to the compiler; `needed` are flags of /proc/cpuinfo without which the source does not run.
    """
    if sys.platform != "linux":
        return None
    processor = _processor()
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not set(processor.split()) >= needed or compiler is None:
        return None
    try:
        return ctypes.CDLL(str(_built(source, [compiler, *_OPTIONS, *options], processor)))
    except (OSError, StorageError, subprocess.SubprocessError):
        return None


def _built(source: Path, command: list[str], processor: str) -> Path:
    """The library for this source and this processor, compiled if it is not there yet."""
    content = read_bytes(source)
    key = hashlib.sha256(content + processor.encode() + " ".join(command).encode()).hexdigest()
    path = cache_folder() / "kernels" / f"{key[:24]}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as handle:
            whole = [*command, str(source), "-o", handle.name, "-lm"]
            subprocess.run(whole, check=True, capture_output=True, timeout=_COMPILE_SECONDS)
    return path


def _processor() -> str:
    """What the processor says it can do, from the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("flags", "Features"))), "")
