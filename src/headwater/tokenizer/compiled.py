"""The C functions that count words and learn merges: `native/counting.c` and `native/merges.c`.

They are compiled when the package is installed with a C compiler, and are in the wheels. Without them `load`
returns None, and the `tokenizers` library does the same about twenty times as slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater import native

_POINTER = ctypes.c_void_p
_LONG = ctypes.c_int64
_INT = ctypes.c_int32
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "counter_new": (_POINTER, []),
    "counter_free": (None, [_POINTER]),
    "counter_add": (_LONG, [_POINTER, ctypes.c_char_p, _LONG, _POINTER, _LONG]),
    "counter_merge": (_LONG, [_POINTER, _POINTER]),
    "counter_words": (_LONG, [_POINTER]),
    "counter_bytes": (_LONG, [_POINTER]),
    "counter_export": (None, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "learner_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _INT, _INT]),
    "learner_run": (_LONG, [_POINTER, _LONG, _POINTER]),
    "learner_free": (None, [_POINTER]),
}


@lru_cache(maxsize=1)
def load() -> Any:
    """Return the library, whose functions run without the interpreter's lock; None if it was not built."""
    library = native.extension("portable")
    if library is None:
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class CompiledCounter:
    """Counter of the pieces of GPT-2's pre-split in texts."""

    def __init__(self, categories: npt.NDArray[np.uint8]) -> None:
        self._library, self._categories = load(), categories
        self._handle = self._library.counter_new()
        if not self._handle:
            raise MemoryError

    def add(self, text: bytes) -> None:
        """Count the pieces of UTF-8 text."""
        categories = self._categories
        native.check(
            self._library.counter_add(self._handle, text, len(text), categories.ctypes.data, len(categories))
        )

    def merge(self, other: CompiledCounter) -> None:
        """Add the counts of `other`."""
        native.check(self._library.counter_merge(self._handle, other._handle))

    def export(
        self, ids: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the words as ids of their bytes in one array, the border of each, and the count of each."""
        if ids.dtype != np.int32 or ids.shape != (256,) or not ids.flags.c_contiguous:
            raise ValueError(f"ids is {ids.dtype} of shape {ids.shape}, expected int32 of shape (256,)")
        words = self._library.counter_words(self._handle)
        symbols = np.empty(self._library.counter_bytes(self._handle), np.int32)
        borders, counts = np.empty(words + 1, np.int64), np.empty(words, np.int64)
        self._library.counter_export(
            self._handle, *(array.ctypes.data for array in (ids, symbols, borders, counts))
        )
        return symbols, borders, counts

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.counter_free(self._handle)


def learn(
    symbols: npt.NDArray[np.int32],
    borders: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    alphabet_size: int,
    new_tokens: int,
    step: int,
) -> Iterator[npt.NDArray[np.int32]]:
    """Yield merges, (made, 3): left, right, merged; `step` at a time, fewer at the end. Overwrites `symbols`.

    `merges.learn_merges` explains the arguments.
    """
    _check_words(symbols, borders, counts, alphabet_size)
    library = load()
    addresses = [array.ctypes.data for array in (symbols, borders, counts)]
    learner = library.learner_new(*addresses, len(counts), alphabet_size, new_tokens)
    if not learner:
        raise MemoryError
    try:
        made = step
        while made == step:
            merges = np.empty((step, 3), np.int32)
            made = native.check(library.learner_run(learner, step, merges.ctypes.data))
            yield merges[:made]
    finally:
        library.learner_free(learner)


def _check_words(
    symbols: npt.NDArray[np.int32],
    borders: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    alphabet_size: int,
) -> None:
    """Raise ValueError unless the arrays describe words over the alphabet: the C code trusts them."""
    arrays: dict[str, tuple[npt.NDArray[Any], str]] = {
        "symbols": (symbols, "int32"),
        "borders": (borders, "int64"),
        "counts": (counts, "int64"),
    }
    for name, (array, dtype) in arrays.items():
        if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} is {array.dtype} of shape {array.shape}, expected one contiguous row of {dtype}"
            )
    whole = len(borders) == len(counts) + 1 and borders[0] == 0 and borders[-1] == len(symbols)
    if not whole or (np.diff(borders) < 0).any():
        raise ValueError("borders do not divide the symbols into one word for each count")
    if len(symbols) and not 0 <= symbols.min() <= symbols.max() < alphabet_size:
        raise ValueError(f"symbols are in [{symbols.min()}, {symbols.max()}], expected [0, {alphabet_size})")
