"""A Transformer on the compiled kernels: its weights in their layout, and the checked call of the forward pass.

The equations are those of model/transformer.py, which is the twin. Heads have any size, and widths any size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.native.dispatch import check
from headwater.native.elementwise import Kernels, require
from headwater.native.matrix import (
    KINDS,
    PANEL,
    Arena,
    MatrixKind,
    MatrixStructure,
    PackedMatrix,
    packed_bytes,
    pad,
    padded_size,
)

PAGE = 16  # the positions in a page of the cache of keys and values
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_TILE_ROWS = 16  # rows that attention computes together, and that operands are allocated for


class _LayerStructure(ctypes.Structure):
    """`Layer` of transformer.h."""

    _fields_ = (
        *((name, MatrixStructure) for name in ("query_key_value", "projection", "expand", "contract")),
        *((f"norm_{number}_{part}", _POINTER) for number in (1, 2) for part in ("weight", "bias")),
        ("keys", _POINTER),
        ("values", _POINTER),
    )


class _ModelStructure(ctypes.Structure):
    """`Model` of transformer.h."""

    _fields_ = (
        *((name, _COUNT) for name in ("kind", "layers", "width", "padded", "inner", "heads", "head", "stride")),
        *(
            (name, _COUNT)
            for name in ("vocabulary", "context", "slots", "pages", "page_count", "pre_norm", "threads")
        ),
        ("epsilon", ctypes.c_double),
        *((name, _POINTER) for name in ("token_table", "position_table", "final_weight", "final_bias")),
        ("output", MatrixStructure),
        ("layer", ctypes.POINTER(_LayerStructure)),
        ("tables", _POINTER),
        ("residual", _POINTER),
        ("query", _POINTER),
        ("operand", _POINTER * 2),
        ("operand_scale", _POINTER * 2),
        ("operand_sum", _POINTER * 2),
        ("attended", _POINTER),
        ("scratch", _POINTER),
        ("blocks", _POINTER),
    )


@dataclass(frozen=True)
class Shape:
    """The sizes of a Transformer, and where its norms are."""

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    pre_norm: bool
    epsilon: float

    @property
    def head(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def page_elements(self) -> int:
        """Elements of a page of keys, or of values: a head's dimensions are padded to a multiple of 16."""
        return self.heads * PAGE * (-(-self.head // 16) * 16)

    @property
    def pages(self) -> int:
        """Pages of a text as long as the context."""
        return -(-self.context // PAGE)


class Affine(NamedTuple):
    """The weight and the bias of a Linear or a LayerNorm."""

    weight: Tensor
    bias: Tensor


class TransformerWeights:
    """A Transformer's weights in the kernels' layout.

    layers: of each block query_key_value, projection, expand and contract, (out, in), and its two norms. They are
    read one after the other, so that the caller may free each before the next. `tokens` and
    `positions` are not copied if they have the right dtype and width: do not change them afterwards.
    """

    def __init__(
        self,
        kernels: Kernels,
        shape: Shape,
        kind: MatrixKind,
        layers: Iterable[Sequence[Affine]],
        tokens: Tensor,
        positions: Tensor,
        final_norm: Affine | None,
        output: Tensor,
    ) -> None:
        self.kernels, self.shape, self.kind = kernels, shape, kind
        self.dtype = torch.float32 if kind == "fp32" else torch.bfloat16  # of keys, values and tables
        self._kept: list[Any] = []  # what the structures point into
        width, inner = shape.width, 4 * shape.width
        sizes = [(3 * width, width), (width, width), (inner, width), (width, inner)]
        size = shape.layers * sum(packed_bytes(*pair, kind) for pair in sizes)
        self._arena = Arena(kernels, size + packed_bytes(len(output), width, kind))
        self.layers: list[list[PackedMatrix]] = []
        self._structures = []
        for layer in layers:
            matrices = [self._matrix(affine, *pair) for affine, pair in zip(layer[:4], sizes, strict=True)]
            self.layers.append(matrices)
            structure = _LayerStructure(*(matrix.structure for matrix in matrices))
            structure.norm_1_weight, structure.norm_1_bias = self._norm(layer[4])
            structure.norm_2_weight, structure.norm_2_bias = self._norm(layer[5])
            self._structures.append(structure)
        if len(self._structures) != shape.layers:
            raise ValueError(f"{len(self._structures)} layers, expected {shape.layers}")
        self.output = PackedMatrix(kernels, output, None, kind, self._arena)
        if self.output.inputs != width:
            raise ValueError(f"the output matrix has {self.output.inputs} inputs, expected {width}")
        self.tables = [
            self._table("tokens", tokens, shape.vocabulary),
            self._table("positions", positions, shape.context),
        ]
        self._final = (None, None) if final_norm is None else self._norm(final_norm)

    def model(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Any:
        """Return the structure of a model with these caches, a pair a layer; the workspace is the caller's."""
        shape = self.shape
        layers = (_LayerStructure * shape.layers)(*self._structures)
        for layer, layer_keys, layer_values in zip(layers, keys, values, strict=True):
            layer.keys, layer.values = layer_keys.data_ptr(), layer_values.data_ptr()
        return _ModelStructure(
            kind=KINDS[self.kind],
            layers=shape.layers,
            width=shape.width,
            padded=padded_size(shape.width),
            inner=padded_size(4 * shape.width),
            heads=shape.heads,
            head=shape.head,
            stride=shape.page_elements // shape.heads // PAGE,
            vocabulary=shape.vocabulary,
            context=shape.context,
            pages=shape.pages,
            page_count=keys[0].numel() // shape.page_elements,
            pre_norm=shape.pre_norm,
            epsilon=shape.epsilon,
            token_table=self.tables[0].data_ptr(),
            position_table=self.tables[1].data_ptr(),
            final_weight=self._final[0],
            final_bias=self._final[1],
            output=self.output.structure,
            layer=layers,
        )

    def _matrix(self, affine: Affine, outputs: int, inputs: int) -> PackedMatrix:
        if tuple(affine.weight.shape) != (outputs, inputs):
            raise ValueError(f"a matrix has shape {tuple(affine.weight.shape)}, expected ({outputs}, {inputs})")
        return PackedMatrix(self.kernels, affine.weight, affine.bias, self.kind, self._arena)

    def _norm(self, norm: Affine) -> tuple[int, int]:
        width = self.shape.width
        if {tuple(norm.weight.shape), tuple(norm.bias.shape)} != {(width,)}:
            raise ValueError(f"a norm has shape {tuple(norm.weight.shape)}, expected ({width},)")
        padded = [pad(tensor.detach().float(), padded_size(width)).contiguous().clone() for tensor in norm]
        self._kept += padded
        return padded[0].data_ptr(), padded[1].data_ptr()

    def _table(self, name: str, table: Tensor, rows: int) -> Tensor:
        if tuple(table.shape) != (rows, self.shape.width):
            raise ValueError(f"{name} has shape {tuple(table.shape)}, expected ({rows}, {self.shape.width})")
        return pad(table.detach().to(self.dtype), padded_size(self.shape.width)).contiguous()


class Forward:
    """The forward pass of one model on one pair of caches a layer, and its workspace. One call at a time.

    keys, values: contiguous tensors of whole pages, `Shape.page_elements` each, zeros at first. Layers may share
    them if no later call needs them.
    """

    def __init__(self, weights: TransformerWeights, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        page = weights.shape.page_elements
        for cache in (*keys, *values):
            require("a cache", cache, (weights.dtype,))
            if cache.numel() % page or cache.numel() != keys[0].numel():
                raise ValueError(f"a cache has {cache.numel()} elements, expected whole pages of {page}")
        if not len(keys) == len(values) == weights.shape.layers:
            raise ValueError(f"{len(keys)} caches, expected one per layer: {weights.shape.layers}")
        self.weights, self.pages = weights, weights.shape.pages  # of a slot
        self._caches = (keys, values)
        self._model = weights.model(keys, values)
        self._rows = self._threads = 0
        self._residual = torch.empty(0)

    def __call__(
        self,
        tokens: Sequence[int] | npt.NDArray[np.int64],
        slots: Sequence[int] | npt.NDArray[np.int64],
        positions: Sequence[int] | npt.NDArray[np.int64],
        tables: npt.NDArray[np.int32],
        wanted: int,
        logits: Tensor | None,
        threads: int | None = None,
    ) -> Tensor:
        """Fill the caches at every row's position, and compute the first `wanted` rows to their end.

        tokens, slots, positions: one per row. tables: (slots, pages) int32, the pages of each slot in order.
        logits: (wanted or more, padded outputs) float32, is written and returned; None: the last hidden states
        are, (wanted, width) float32, valid until the next call. threads: at most so many, by default
        torch's number; the result does not depend on it. Raises IndexError for a token, slot, position or page
        that does not exist, before anything is written.
        """
        arrays = [np.ascontiguousarray(values, dtype=np.int32) for values in (tokens, slots, positions)]
        rows = len(arrays[0])
        if any(array.shape != (rows,) for array in arrays):
            raise ValueError(f"tokens, slots and positions have shapes {[array.shape for array in arrays]}")
        if tables.dtype != np.int32 or tables.shape[1:] != (self.pages,) or not tables.flags.c_contiguous:
            raise ValueError(f"tables is {tables.dtype} of {tables.shape}, expected int32 (slots, {self.pages})")
        columns = (self.weights.output.structure.outputs,)
        if logits is not None and (
            logits.dtype != torch.float32
            or logits.shape[1:] != columns
            or len(logits) < wanted
            or not logits.is_contiguous()
        ):
            raise ValueError(
                f"logits has shape {tuple(logits.shape)}, expected float32 (≥ {wanted}, {columns[0]})"
            )
        if torch.get_num_threads() != self._threads or rows > self._rows:
            self._reserve(rows)
        self._model.threads = min(self._threads, threads or self._threads)
        self._model.tables, self._model.slots = tables.ctypes.data, len(tables)
        addresses = [array.ctypes.data for array in arrays]
        result = None if logits is None else logits.data_ptr()
        forward = self.weights.kernels.library.headwater_forward
        code = forward(ctypes.byref(self._model), *addresses, rows, wanted, result)
        if code < 0:
            check(code)
        return self._residual[:wanted, : self.weights.shape.width] if logits is None else logits

    def _reserve(self, rows: int) -> None:
        """Allocate the workspace for calls of up to `rows` rows with torch's present number of threads."""
        self._rows, self._threads = -(-max(rows, self._rows) // _TILE_ROWS) * _TILE_ROWS, torch.get_num_threads()
        model, rows = self._model, self._rows
        self._residual = torch.zeros(rows, model.padded)
        self._workspace = [
            self._residual,
            torch.zeros(rows, model.heads, model.stride),
            torch.zeros(rows if model.head % PANEL else 0, model.padded),
            torch.zeros(self._threads, _TILE_ROWS, self.pages * PAGE + model.stride),
            torch.zeros(rows + 1, dtype=torch.int32),
        ]
        model.residual, model.query, model.attended, model.scratch, model.blocks = (
            part.data_ptr() for part in self._workspace
        )
        for index, inputs in enumerate((model.padded, model.inner)):
            parts = [
                torch.zeros(rows, inputs),
                torch.zeros(rows, inputs // PANEL),
                torch.zeros(rows, inputs // PANEL, dtype=torch.int32),
            ]
            self._workspace += parts
            model.operand[index], model.operand_scale[index], model.operand_sum[index] = (
                part.data_ptr() for part in parts
            )
