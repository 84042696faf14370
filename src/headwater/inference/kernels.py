"""The structures and functions of `native/transformer.c`.

`library` is None where the package was built without a compiler, or the processor lacks AVX-512 with bfloat16 and
int8 products. Everything then runs in torch: slower, with the same guarantees.
"""

from __future__ import annotations

import ctypes
from functools import cache

from headwater import native


class Matrix(ctypes.Structure):
    """One matrix as the kernels see it; `transformer.c` says how it is laid out."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )


class Layer(ctypes.Structure):
    """One block."""

    _fields_ = (
        *((name, Matrix) for name in ("query_key_value", "projection", "expand", "contract")),
        *((f"norm_{number}_{part}", ctypes.c_void_p) for number in (1, 2) for part in ("weight", "bias")),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class Model(ctypes.Structure):
    """The whole model and its workspace."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "layers", "width", "heads", "pages", "pre_norm", "threads")),
        ("epsilon", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("token_table", "position_table", "final_weight", "final_bias")),
        ("output", Matrix),
        ("layer", ctypes.POINTER(Layer)),
        ("tables", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("query", ctypes.c_void_p),
        ("operand", ctypes.c_void_p * 2),
        ("operand_scale", ctypes.c_void_p * 2),
        ("operand_offset", ctypes.c_void_p * 2),
        ("scores", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None where they cannot be had."""
    loaded = native.extension("avx512_bf16") if native.chosen() == "avx512_bf16" else None
    if loaded is None:
        return None
    loaded.headwater_allocate.restype = ctypes.c_void_p
    loaded.headwater_allocate.argtypes = [ctypes.c_int64]
    loaded.headwater_free.restype = None
    loaded.headwater_free.argtypes = [ctypes.c_void_p]
    loaded.headwater_forward.restype = None
    loaded.headwater_forward.argtypes = [
        ctypes.POINTER(Model),
        *[ctypes.c_void_p] * 3,
        *[ctypes.c_int64] * 2,
        ctypes.c_void_p,
    ]
    loaded.headwater_product.restype = None
    loaded.headwater_product.argtypes = [
        ctypes.POINTER(Matrix),
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int64,
        *[ctypes.c_void_p] * 4,
        ctypes.c_int64,
    ]
    return loaded
