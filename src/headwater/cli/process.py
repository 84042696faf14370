"""What the command line sets for its whole process. A library must not: `import headwater` changes nothing."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from headwater.train.machine import available_cores

# Shapes of matrix products whose code oneDNN keeps, 0.2 to 0.4 MB each; by default 1,024. Texts vary in length, so
# they would fill hundreds of megabytes; an update of one shape at context 1,024 is as fast with 32.
_SHAPES_KEPT = "256"
# Objects that are made before garbage is looked for: looking while torch is imported takes a sixth of that time.
_GARBAGE_THRESHOLD = 10_000
# Parameters of the GNU C library's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
# For a server: blocks from this size on are mapped by themselves and go back when they are freed; a heap with so
# much free at its end gives it back; and so many heaps for all threads.
_MAPPED_BYTES, _MOST_MAPPED, _TRIMMED_BYTES, _HEAPS = 1 << 20, 65_536, 16 << 20, 2


def prepare() -> None:
    """Set threads, caches, the allocator and the garbage collector for a process that is ours alone.

    Call it before torch is imported. What the user's environment sets already is kept.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, _SHAPES_KEPT)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what --set deterministic=true needs on CUDA
    gc.set_threshold(_GARBAGE_THRESHOLD, *gc.get_threshold()[1:])
    _keep_memory()


def import_from_here(names: Iterable[str]) -> None:
    """Let Python import modules of the working directory where a name is `MODULE:NAME`, as `python -m` does."""
    here = str(Path.cwd())
    if any(":" in name for name in names) and here not in sys.path:
        sys.path.insert(0, here)


def _keep_memory() -> None:
    """Let the C library keep freed memory: an update uses the memory of the one before it.

    By default large blocks go back to the system each time and are cleared again, page by page: an eighth of an
    update. Without effect where the C library is not the GNU one.
    """
    _set_allocator({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


def return_memory() -> None:
    """Let the C library give freed memory back: a server's largest requests are rare, and many threads make them.

    Undoes what `prepare` sets for training.
    """
    _set_allocator(
        {
            _M_MMAP_MAX: _MOST_MAPPED,
            _M_MMAP_THRESHOLD: _MAPPED_BYTES,
            _M_TRIM_THRESHOLD: _TRIMMED_BYTES,
            _M_ARENA_MAX: _HEAPS,
        }
    )


def _set_allocator(parameters: dict[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, value in parameters.items():
        mallopt(parameter, value)
