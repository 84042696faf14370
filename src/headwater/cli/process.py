"""Settings of the command line's process. The library changes none: `import headwater` has no side effects."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import sys
from pathlib import Path

from headwater.device import available_cores

# How often a thread of torch looks for work or for the others before it lets the system run something else: with
# libgomp's default of some 300,000 all threads spin while one waits for a processor that another program uses. Of
# 10,000, 1,000 and 100, the second was as fast as the first alone, and up to a third faster beside a busy program.
_SPINS = "1000"
# Number of matmul shapes whose code oneDNN caches, 0.2 to 0.4 MB each. The default of 1,024 fills hundreds of
# megabytes with texts of different lengths; an update of one shape at context 1,024 is as fast with 32.
_SHAPES_KEPT = "256"
# Allocations before a garbage collection: with the default, collections take a sixth of the time to import torch.
_GARBAGE_THRESHOLD = 10_000
# How long a server's event loop may keep the interpreter while the engine's thread waits for it: writing sixteen
# answers must not delay a step.
_SWITCH_SECONDS = 0.00005
# Parameters of the GNU C library's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
# For a server: map larger blocks than this separately, so that freeing returns them; at most so many; return
# so much free memory at the end of a heap; use so many heaps for all threads.
_MAPPED_BYTES, _MOST_MAPPED, _TRIMMED_BYTES, _HEAPS = 1 << 20, 65_536, 16 << 20, 2


def prepare() -> None:
    """Set threads, caches, the allocator, the garbage collector and the encoding of output.

    Call it before torch is imported. Variables that the user's environment sets are kept.
    """
    # A closed stream (`>&-`) becomes the null device: the next file that is opened would have its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115, open to the end
    for stream in (sys.stdout, sys.stderr):  # a code page lacks most characters, and UTF-8 lone surrogates
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    for name, value in thread_variables().items():
        os.environ.setdefault(name, value)
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _SHAPES_KEPT)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what --set deterministic=true needs on CUDA
    gc.set_threshold(_GARBAGE_THRESHOLD, *gc.get_threshold()[1:])
    # Keep freed memory, which the next update uses again: by default the C library returns large blocks to the
    # system and clears them again page by page, which takes an eighth of an update.
    _set_allocator({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


def thread_variables() -> dict[str, str]:
    """Return what a program should have in its environment before torch is loaded; another policy is kept."""
    spins = {} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": _SPINS}
    return {"OMP_NUM_THREADS": str(available_cores())} | spins


def return_memory() -> None:
    """Let the C library return freed memory: a server's largest requests are rare, and many threads make them.

    Undoes the setting that `prepare` makes for training.
    """
    _set_allocator(
        {
            _M_MMAP_MAX: _MOST_MAPPED,
            _M_MMAP_THRESHOLD: _MAPPED_BYTES,
            _M_TRIM_THRESHOLD: _TRIMMED_BYTES,
            _M_ARENA_MAX: _HEAPS,
        }
    )


def freeze_heap_and_set_switch_interval() -> None:
    """Prepare a server's threads for their first request, after its models are open."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Without this a full collection visits every object of the imported packages while all requests wait.
    gc.collect()
    gc.freeze()


def _set_allocator(parameters: dict[int, int]) -> None:
    """Set parameters of `mallopt`, which only the GNU C library has."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, value in parameters.items():
        mallopt(parameter, value)
