"""The Runner on the compiled kernels: one call a step, for all rows at once.

A row's sums have one order whatever else is in the call (`kernels.c`), so nothing needs a fixed shape: decoding
rows and a block of a prompt share one pass over the weights, blocks may have any size, and any position may be
taken over by another request, generated ones as well.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from headwater.inference import kernels
from headwater.inference.matrices import Precision
from headwater.inference.panels import PANEL, padded, panels
from headwater.inference.runner import Block, Step
from headwater.model.transformer import Block as TransformerBlock
from headwater.model.transformer import Embeddings, Transformer

_KINDS: dict[Precision, int] = {"fp32": 0, "bf16": 1, "int8": 2}
# Positions of a prompt computed in one call when nobody waits for a token.
_LONE_BLOCK = 256


def supported(model: Transformer) -> bool:
    """Whether the kernels are there and fit the model."""
    config = model.config
    fits = config.width == PANEL * config.heads and model.tokens.weight.device.type == "cpu"
    return fits and kernels.library() is not None


class CompiledRunner:
    """Weights in the kernels' layout at one precision, caches, and the call. Needs `supported`.

    With `consume` the model is taken apart on the way, so that its matrices are not in memory twice.
    """

    exact = True

    def __init__(self, model: Transformer, precision: Precision, slots: int, *, consume: bool = False) -> None:
        loaded = kernels.library()
        assert loaded is not None
        config = model.config
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        self.name = f"compiled kernels, {torch.get_num_threads()} threads"
        self.lone_block, self.shared_block = min(_LONE_BLOCK, config.context), min(64, config.context)
        self._library, self._kind, self._consume = loaded, _KINDS[precision], consume
        self._kept: list[Tensor] = []  # what the structures below point into
        self._dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self._arena = _Arena(loaded, _arena_bytes(model, precision))
        positions = -(-config.context // 16) * 16
        self._keys, self._values = (
            torch.zeros(config.layers, slots, config.heads, positions // 16, 16 * PANEL, dtype=self._dtype)
            for _ in range(2)
        )
        layers = (kernels.Layer * config.layers)()
        blocks = [block for block in model.blocks if isinstance(block, TransformerBlock)]
        for layer, block, keys, values in zip(layers, blocks, self._keys, self._values, strict=True):
            layer.query_key_value = self._linear(block.attention.query_key_value)
            layer.projection = self._linear(block.attention.projection)
            layer.expand = self._linear(block.mlp.expand)
            layer.contract = self._linear(block.mlp.contract)
            layer.norm_1_weight, layer.norm_1_bias = self._norm(block.norm_1)
            layer.norm_2_weight, layer.norm_2_bias = self._norm(block.norm_2)
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        embeddings = Embeddings(model.tokens.weight.detach(), model.positions.weight.detach())
        described = kernels.Model(
            kind=self._kind,
            layers=config.layers,
            width=config.width,
            heads=config.heads,
            positions=positions,
            pre_norm=config.norm == "pre",
            epsilon=config.norm_epsilon,
            token_table=self._keep(embeddings.tokens, self._dtype),
            position_table=self._keep(embeddings.positions, self._dtype),
            output=self._matrix(model.output_matrix(embeddings), None),
            layer=layers,
        )
        if isinstance(model.final_norm, nn.LayerNorm):
            described.final_weight, described.final_bias = self._norm(model.final_norm)
        self._model, self._layers = described, layers
        self._threads = 0
        self._reserve(slots + self.lone_block)
        self._logits = torch.empty(slots, described.output.outputs)

    def step(self, steps: Sequence[Step], block: Block | None) -> Tensor:
        """See Runner."""
        if torch.get_num_threads() != self._threads:
            self._reserve(self._rows)
        tokens = [step.token for step in steps]
        slots = [step.slot for step in steps]
        positions = [step.position for step in steps]
        if block is not None:
            tokens += block.ids
            slots += [block.slot] * len(block.ids)
            positions += range(block.start, block.start + len(block.ids))
        arrays = [np.array(values, dtype=np.int32) for values in (tokens, slots, positions)]
        self._library.headwater_forward(
            ctypes.byref(self._model),
            *(array.ctypes.data for array in arrays),
            len(tokens),
            len(steps),
            self._logits.data_ptr(),
        )
        return self._logits[: len(steps)]

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        tiles = -(-length // 16)
        for cache in (self._keys, self._values):
            cache[:, target, :, :tiles] = cache[:, source, :, :tiles]

    def _reserve(self, rows: int) -> None:
        """The workspace for calls of up to `rows` rows with torch's present number of threads."""
        self._rows, self._threads = rows, torch.get_num_threads()
        model, width = self._model, self._model.width
        operand = (torch.float32, torch.bfloat16, torch.int8)[self._kind]
        self._workspace = [
            torch.empty(rows, width),
            torch.empty(rows, width, dtype=self._dtype),
            torch.empty(self._threads, 4, model.positions),
            torch.empty(rows + 1, dtype=torch.int32),
        ]
        model.threads = self._threads
        model.residual, model.query, model.scores, model.blocks = (part.data_ptr() for part in self._workspace)
        for index, inputs in enumerate((width, 4 * width)):
            parts = [
                torch.empty(rows, inputs, dtype=operand),
                torch.empty(rows, inputs // PANEL),
                torch.empty(rows, inputs // PANEL, dtype=torch.int32),
            ]
            self._workspace += parts
            model.operand[index], model.operand_scale[index], model.operand_offset[index] = (
                part.data_ptr() for part in parts
            )

    def _linear(self, linear: nn.Linear) -> kernels.Matrix:
        matrix = self._matrix(linear.weight.detach(), linear.bias.detach())
        if self._consume:
            linear.weight.data = linear.weight.new_empty(0)
        return matrix

    def _matrix(self, weight: Tensor, bias: Tensor | None) -> kernels.Matrix:
        """(out, in) in panels of 64 outputs, the last one padded with zeros."""
        inputs = weight.shape[1]
        view, scale = panels(weight, (torch.float32, torch.bfloat16, torch.uint8)[self._kind])
        return kernels.Matrix(
            weight=self._arena.put(view),
            bias=None if bias is None else self._keep(padded(bias.float()), torch.float32),
            scale=None if scale is None else self._keep(scale, torch.float32),
            inputs=inputs,
            outputs=view.shape[0] * PANEL,
        )

    def _norm(self, norm: nn.LayerNorm) -> tuple[int, int]:
        weight, bias = norm.weight.detach(), norm.bias.detach()
        return self._keep(weight, torch.float32), self._keep(bias, torch.float32)

    def _keep(self, tensor: Tensor, dtype: torch.dtype) -> int:
        self._kept.append(tensor.to(dtype).contiguous())
        return self._kept[-1].data_ptr()


class _Arena:
    """One stretch of memory on huge pages, filled from its start."""

    def __init__(self, library: ctypes.CDLL, size: int) -> None:
        address = library.headwater_allocate(size)
        if not address:
            raise MemoryError(f"no {size:,} bytes for the weights")
        weakref.finalize(self, library.headwater_free, address)
        buffer = (ctypes.c_char * size).from_address(address)
        self._bytes = torch.frombuffer(buffer, dtype=torch.uint8)
        self._used = 0

    def put(self, source: Tensor) -> int:
        """Copy a tensor, in the order of its indices; returns its address, a multiple of 64."""
        size = source.numel() * source.element_size()
        place = self._bytes[self._used : self._used + size].view(source.dtype)
        place.view(source.shape).copy_(source)
        self._used += -(-size // 64) * 64
        return place.data_ptr()


def _arena_bytes(model: Transformer, precision: Precision) -> int:
    config = model.config
    rows = config.vocabulary + config.context + PANEL  # at most: the softmax may run over positions too
    weights = config.width * (rows + 12 * config.layers * config.width)
    # Kernels read a little ahead of what they use.
    return weights * {"fp32": 4, "bf16": 2, "int8": 1}[precision] + 64 * 1024
