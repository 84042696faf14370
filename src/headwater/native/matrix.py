"""One weight matrix in the layout of transformer.h.

Kinds: fp32; bf16; int8, one byte per weight with one scale per output. With int8 weights each row of the input is
rounded to bytes, with one scale for every 64 of its values, so that a large value only makes the rounding of its
own group coarser. Sums inside a group are whole numbers.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from headwater.native.dispatch import check
from headwater.native.elementwise import Kernels, require

MatrixKind = Literal["fp32", "bf16", "int8"]
KINDS: dict[MatrixKind, int] = {"fp32": 0, "bf16": 1, "int8": 2}

PANEL = 64  # the outputs that a thread computes together, and the inputs that share a scale
_TOGETHER: dict[MatrixKind, int] = {"fp32": 1, "bf16": 2, "int8": 4}
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class MatrixStructure(ctypes.Structure):
    """`Matrix` of transformer.h."""

    _fields_ = (
        ("weight", _POINTER),
        ("bias", _POINTER),
        ("scale", _POINTER),
        ("kind", _COUNT),
        ("inputs", _COUNT),
        ("outputs", _COUNT),
    )


def padded_size(size: int) -> int:
    """Return the next multiple of PANEL."""
    return -(-size // PANEL) * PANEL


def tile_rows(rows: int) -> int:
    """Return the rows of an operand's memory: tiles have 16."""
    return -(-rows // 16) * 16


def pad(values: Tensor, *sizes: int) -> Tensor:
    """Return `values` padded with zeros in its last dimensions, up to `sizes`."""
    missing = [(0, size - have) for size, have in zip(sizes, values.shape[-len(sizes) :], strict=True)]
    if not any(amount for _, amount in missing):
        return values
    return functional.pad(values, [amount for pair in reversed(missing) for amount in pair])


def packed_bytes(outputs: int, inputs: int, kind: MatrixKind) -> int:
    """Return the bytes of a packed matrix: a multiple of 64."""
    return padded_size(outputs) * padded_size(inputs) * 4 // _TOGETHER[kind]


def allocate(kernels: Kernels, size: int) -> Tensor:
    """Return uninitialised bytes on huge pages, (size,) uint8; at least one."""
    address = kernels.library.headwater_allocate(size)
    if not address:
        raise MemoryError(f"no memory for {size:,} bytes")
    buffer = (ctypes.c_char * size).from_address(address)  # the tensor holds it
    # Not at the interpreter's end: the system frees it then.
    weakref.finalize(buffer, kernels.library.headwater_free, address).atexit = False
    return torch.frombuffer(buffer, dtype=torch.uint8)


class Arena:
    """One stretch of memory on huge pages, filled from its start."""

    def __init__(self, kernels: Kernels, size: int) -> None:
        self._bytes = allocate(kernels, size)
        self._used, self._size = 0, size

    def put(self, source: Tensor) -> int:
        """Copy a tensor, in the order of its indices; return its address, a multiple of 64."""
        size = source.numel() * source.element_size()
        if self._used + size > self._size:
            raise MemoryError(f"{size:,} bytes do not fit after {self._used:,} of {self._size:,}")
        stored = self._bytes[self._used : self._used + size].view(source.dtype)
        stored.view(source.shape).copy_(source)
        self._used += -(-size // 64) * 64
        return stored.data_ptr()


class PackedMatrix:
    """y = x Wᵀ + b on the compiled kernels. A row's result is the same, bit for bit, whatever the other rows."""

    def __init__(
        self, kernels: Kernels, weight: Tensor, bias: Tensor | None, kind: MatrixKind, arena: Arena | None = None
    ) -> None:
        if weight.dim() != 2 or not weight.numel() or weight.device.type != "cpu":
            raise ValueError(
                f"the weight has shape {tuple(weight.shape)} on {weight.device}, expected (out, in) on the CPU"
            )
        self.kernels, self.kind = kernels, kind
        self.outputs, self.inputs = weight.shape
        if bias is not None and tuple(bias.shape) != (self.outputs,):
            raise ValueError(f"the bias has shape {tuple(bias.shape)}, expected ({self.outputs},)")
        outputs, inputs = padded_size(self.outputs), padded_size(self.inputs)
        self._arena = arena or Arena(kernels, packed_bytes(outputs, inputs, kind))
        self._bias = (
            None
            if bias is None
            else pad(bias.detach().float(), outputs).clone(memory_format=torch.contiguous_format)
        )
        packed, scale = _packed(weight.detach(), kind, kernels.library)
        self._scale = None if scale is None else pad(scale, outputs).contiguous()
        self.structure = MatrixStructure(
            weight=self._arena.put(packed),
            bias=None if self._bias is None else self._bias.data_ptr(),
            scale=None if self._scale is None else self._scale.data_ptr(),
            kind=KINDS[kind],
            inputs=inputs,
            outputs=outputs,
        )

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """(rows, in) -> (rows, out) float32, written to `out` unless it is None."""
        if x.dim() != 2 or x.shape[1] != self.inputs or x.device.type != "cpu":
            raise ValueError(
                f"x has shape {tuple(x.shape)} on {x.device}, expected (rows, {self.inputs}) on the CPU"
            )
        shape = (len(x), self.outputs)
        out = torch.empty(shape) if out is None else out
        require("out", out, (torch.float32,), shape)
        rows, inputs = len(x), self.structure.inputs
        x = pad(x.float(), inputs).contiguous()
        values, scales = torch.empty(tile_rows(rows), inputs), torch.empty(rows, inputs // PANEL)
        sums = torch.empty(rows, inputs // PANEL, dtype=torch.int32)
        work = (part.data_ptr() for part in (values, scales, sums, out))
        sizes = self.outputs, self.outputs, torch.get_num_threads()
        check(
            self.kernels.library.headwater_product(ctypes.byref(self.structure), x.data_ptr(), rows, *work, *sizes)
        )
        return out


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(…, columns) float32 -> whole numbers of −127 … 127 and their scales, (…, 1): x ≈ scale · numbers."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12) / 127
    return (x / scale).round_(), scale


def _packed(weight: Tensor, kind: MatrixKind, library: ctypes.CDLL) -> tuple[Tensor, Tensor | None]:
    """Return the weights as transformer.h lays them out, and for int8 one scale an output."""
    panel = library.headwater_bf16_panel() if kind == "bf16" else PANEL
    zero = library.headwater_weight_zero()
    outputs, inputs = (padded_size(size) for size in weight.shape)
    scale = None
    if kind == "int8":
        values, scales = to_int8(weight.float())
        scale = scales[:, 0]
        # The bits of a byte, with or without sign; padding is a weight of zero as well.
        weight = (pad(values, outputs, inputs).to(torch.int16) + zero).to(torch.uint8 if zero else torch.int8)
    elif kind == "bf16":
        weight = pad(weight.bfloat16(), outputs, inputs)
    else:
        weight = pad(weight.float(), outputs, inputs)
    together = _TOGETHER[kind]
    return weight.view(outputs // panel, panel, inputs // together, together).permute(0, 2, 1, 3), scale
