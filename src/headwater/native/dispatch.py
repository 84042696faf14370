"""Find the compiled extensions of this package and choose a variant for this processor.

`setup.py` compiles the kernels once for each variant. The best variant that the processor runs is used, or the one
that the environment variable HEADWATER_CPU names.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import warnings
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from headwater.errors import UsageError

# Best first, with the processor features each needs: bits of `headwater_cpu` in cpu.c.
_AVX2, _AVX_VNNI, _AVX512, _AVX512_VNNI, _AVX512_BF16 = (1 << bit for bit in range(5))
_DOT_PRODUCT, _ARM_BF16, _AMX = (1 << bit for bit in range(5, 8))
VARIANTS = {
    "amx": _AVX512 | _AVX512_VNNI | _AVX512_BF16 | _AMX,
    "avx512_bf16": _AVX512 | _AVX512_VNNI | _AVX512_BF16,
    "avx512": _AVX512,
    "avx2_vnni": _AVX2 | _AVX_VNNI,
    "avx2": _AVX2,
    "neon_bf16": _DOT_PRODUCT | _ARM_BF16,
    "neon": _DOT_PRODUCT,
    "generic": 0,
}
VARIABLE = "HEADWATER_CPU"
# The kernels need GCC or Clang, so they are not built on Windows.
EXPECTED = sys.platform != "win32"
REPAIR = "Install a C compiler, then run in the repository: pip install --force-reinstall --no-deps ."
_OUT_OF_MEMORY, _CLOSED, _OUT_OF_RANGE = -1, -2, -3  # calls.h


@cache
def extension(name: str) -> ctypes.CDLL | None:
    """Load the extension `_NAME` of this package, or return None if it was not built for this machine."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_{name}{suffix}")
        if path.is_file():
            try:
                library = ctypes.CDLL(str(path))
                library.headwater_close.restype, library.headwater_close.argtypes = None, []
            except (OSError, AttributeError):  # built for another architecture, or from other sources
                return None
            atexit.register(library.headwater_close)
            return library
    return None


@cache
def available() -> tuple[str, ...]:
    """Return the variants that were built and that this processor runs, best first."""
    portable = extension("portable")
    if portable is None:
        return ()
    portable.headwater_cpu.restype = ctypes.c_int64
    features = int(portable.headwater_cpu())  # asks the system for AMX where the processor has it
    return tuple(
        name for name, needed in VARIANTS.items() if features & needed == needed and extension(name) is not None
    )


@cache
def chosen(requested: str | None = None) -> str | None:
    """Return the variant to use: `requested`, else HEADWATER_CPU, else the best; None if nothing was built.

    Raises UsageError for a variant that cannot run here. A package without the kernels that this platform should
    have gives a warning.
    """
    runnable = available()
    requested = requested or os.environ.get(VARIABLE)
    if requested and requested not in runnable:
        kernels = ", ".join(runnable) or "no value, as no kernels were built"
        raise UsageError(f"{VARIABLE}={requested} cannot run on this machine", expected=kernels)
    if not runnable and EXPECTED:
        message = f"The compiled kernels are missing: models run in torch, more slowly. {REPAIR}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return requested or next(iter(runnable), None)


def check(code: int) -> int:
    """Return what a compiled function returned, or raise the error that it reports with a negative code."""
    if code >= 0:
        return code
    if code == _OUT_OF_MEMORY:
        raise MemoryError
    if code == _OUT_OF_RANGE:
        raise IndexError("an id, a position or a size is out of range")
    if threading.current_thread().daemon:  # it will not run again: the interpreter ends
        threading.Event().wait()
    raise RuntimeError("the interpreter is shutting down, so no kernel starts any more")
