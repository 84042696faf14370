"""A model on the compiled kernels: its weights in their layout, the engine's runner, the scorer's packs.

The kernels (`native/transformer.c`) add up a row's sums in one order whatever else is in the call, so nothing
needs a fixed shape: decoding rows and a block of a prompt share one pass over the weights, blocks may have any
size, any position may be copied to another request, and a score is the same to the last bit in any pack.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headwater.inference import kernels
from headwater.inference.matrices import Precision
from headwater.inference.packing import Pack
from headwater.inference.panels import PANEL, padded, panels, product
from headwater.inference.runner import Block, Step
from headwater.model.transformer import Block as TransformerBlock
from headwater.model.transformer import Embeddings, Transformer
from headwater.wording import counted

PAGE = 16  # positions of a page of keys and values
_KINDS: dict[Precision, int] = {"fp32": 0, "bf16": 1, "int8": 2}
_WEIGHTS = (torch.float32, torch.bfloat16, torch.uint8)
_OPERANDS = (torch.float32, torch.bfloat16, torch.int8)
# Positions of a prompt computed in one call when nobody waits for a token.
_LONE_BLOCK = 256


def supported(model: Transformer) -> bool:
    """Whether the kernels are there and fit the model."""
    config = model.config
    fits = config.width == PANEL * config.heads and model.tokens.weight.device.type == "cpu"
    return fits and kernels.library() is not None


class CompiledWeights:
    """A Transformer's weights in the kernels' layout at one precision. Needs `supported`.

    With `consume` the model is taken apart on the way, so that its matrices are not in memory twice.
    """

    def __init__(self, model: Transformer, precision: Precision, *, consume: bool = False) -> None:
        loaded = kernels.library()
        assert loaded is not None
        self.library, self.config, self.precision = loaded, model.config, precision
        self.kind = _KINDS[precision]
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16  # of keys, values and tables
        self._consume = consume
        self._kept: list[Tensor] = []  # what the structures point into
        self._arena = _Arena(loaded, _arena_bytes(model, precision))
        blocks = [block for block in model.blocks if isinstance(block, TransformerBlock)]
        self._layers = [self._layer(block) for block in blocks]
        embeddings = Embeddings(model.tokens.weight.detach(), model.positions.weight.detach())
        matrix = model.output_matrix(embeddings)
        self.rows = matrix.shape[0]  # of the output
        self.output = self._matrix(matrix, None)
        self._tables = [self._keep(table, self.dtype) for table in embeddings]
        final = model.final_norm
        self._final = self._norm(final) if isinstance(final, nn.LayerNorm) else (None, None)

    def model(self, keys: Sequence[Tensor], values: Sequence[Tensor], pages: int) -> kernels.Model:
        """The structure of a model with these caches, a pair a layer; the workspace is the caller's."""
        layers = (kernels.Layer * self.config.layers)(*self._layers)
        for layer, layer_keys, layer_values in zip(layers, keys, values, strict=True):
            layer.keys, layer.values = layer_keys.data_ptr(), layer_values.data_ptr()
        return kernels.Model(
            kind=self.kind,
            layers=self.config.layers,
            width=self.config.width,
            heads=self.config.heads,
            pages=pages,
            pre_norm=self.config.norm == "pre",
            epsilon=self.config.norm_epsilon,
            token_table=self._tables[0],
            position_table=self._tables[1],
            final_weight=self._final[0],
            final_bias=self._final[1],
            output=self.output,
            layer=layers,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, width) float32 -> (rows, rows of the output matrix) float32."""
        return product(self.library, self.output, self.kind, hidden)[:, : self.rows]

    def _layer(self, block: TransformerBlock) -> kernels.Layer:
        weight_1, bias_1 = self._norm(block.norm_1)
        weight_2, bias_2 = self._norm(block.norm_2)
        return kernels.Layer(
            query_key_value=self._linear(block.attention.query_key_value),
            projection=self._linear(block.attention.projection),
            expand=self._linear(block.mlp.expand),
            contract=self._linear(block.mlp.contract),
            norm_1_weight=weight_1,
            norm_1_bias=bias_1,
            norm_2_weight=weight_2,
            norm_2_bias=bias_2,
        )

    def _linear(self, linear: nn.Linear) -> kernels.Matrix:
        matrix = self._matrix(linear.weight.detach(), linear.bias.detach())
        if self._consume:
            linear.weight.data = linear.weight.new_empty(0)
        return matrix

    def _matrix(self, weight: Tensor, bias: Tensor | None) -> kernels.Matrix:
        view, scale = panels(weight, _WEIGHTS[self.kind])
        return kernels.Matrix(
            weight=self._arena.put(view),
            bias=None if bias is None else self._keep(padded(bias.float()), torch.float32),
            scale=None if scale is None else self._keep(scale, torch.float32),
            inputs=weight.shape[1],
            outputs=view.shape[0] * PANEL,
        )

    def _norm(self, norm: nn.LayerNorm) -> tuple[int, int]:
        weight, bias = norm.weight.detach(), norm.bias.detach()
        return self._keep(weight, torch.float32), self._keep(bias, torch.float32)

    def _keep(self, tensor: Tensor, dtype: torch.dtype) -> int:
        self._kept.append(tensor.to(dtype).contiguous())
        return self._kept[-1].data_ptr()


class _Calls:
    """One model structure, its workspace, and the call."""

    def __init__(self, weights: CompiledWeights, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        self._weights, self._caches = weights, (keys, values)
        self.pages = -(-weights.config.context // PAGE)  # of a slot
        self._model = weights.model(keys, values, self.pages)
        self._rows = self._threads = 0
        self.residual = torch.empty(0)

    def forward(
        self,
        tokens: Sequence[int] | npt.NDArray[np.int64],
        slots: Sequence[int] | npt.NDArray[np.int64],
        positions: Sequence[int] | npt.NDArray[np.int64],
        tables: npt.NDArray[np.int32],
        wanted: int,
        logits: Tensor | None,
    ) -> None:
        """See `headwater_forward`; without `logits` the hidden states are in `residual`."""
        if torch.get_num_threads() != self._threads or len(tokens) > self._rows:
            self._reserve(len(tokens))
        arrays = [np.ascontiguousarray(values, dtype=np.int32) for values in (tokens, slots, positions)]
        self._model.tables = tables.ctypes.data
        self._weights.library.headwater_forward(
            ctypes.byref(self._model),
            *(array.ctypes.data for array in arrays),
            len(arrays[0]),
            wanted,
            None if logits is None else logits.data_ptr(),
        )

    def _reserve(self, rows: int) -> None:
        """The workspace for calls of up to `rows` rows with torch's present number of threads."""
        self._rows, self._threads = max(rows, self._rows), torch.get_num_threads()
        model, width, rows = self._model, self._weights.config.width, self._rows
        self.residual = torch.empty(rows, width)
        self._workspace = [
            self.residual,
            torch.empty(rows, width, dtype=self._weights.dtype),
            torch.empty(self._threads, 4, self.pages * PAGE),
            torch.empty(rows + 1, dtype=torch.int32),
        ]
        model.threads = self._threads
        model.residual, model.query, model.scores, model.blocks = (part.data_ptr() for part in self._workspace)
        for index, inputs in enumerate((width, 4 * width)):
            parts = [
                torch.empty(rows, inputs, dtype=_OPERANDS[self._weights.kind]),
                torch.empty(rows, inputs // PANEL),
                torch.empty(rows, inputs // PANEL, dtype=torch.int32),
            ]
            self._workspace += parts
            model.operand[index], model.operand_scale[index], model.operand_offset[index] = (
                part.data_ptr() for part in parts
            )


class CompiledRunner:
    """The Runner on the kernels: every slot has its own pages, one after the other."""

    exact = True

    def __init__(self, weights: CompiledWeights, slots: int) -> None:
        config = weights.config
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        self.name = f"compiled kernels, {counted(torch.get_num_threads(), 'thread')}"
        self.lone_block, self.shared_block = min(_LONE_BLOCK, config.context), min(64, config.context)
        pages = -(-config.context // PAGE)
        shape = (config.layers, slots, pages, config.heads, PAGE * PANEL)
        self._keys, self._values = (torch.zeros(shape, dtype=weights.dtype) for _ in range(2))
        self._calls = _Calls(weights, list(self._keys), list(self._values))
        self._tables = np.arange(slots * pages, dtype=np.int32).reshape(slots, pages)
        self._logits = torch.empty(slots, weights.output.outputs)

    def step(self, steps: Sequence[Step], block: Block | None) -> Tensor:
        """See Runner."""
        tokens = [step.token for step in steps]
        slots = [step.slot for step in steps]
        positions = [step.position for step in steps]
        if block is not None:
            tokens += block.ids
            slots += [block.slot] * len(block.ids)
            positions += range(block.start, block.start + len(block.ids))
        self._calls.forward(tokens, slots, positions, self._tables, len(steps), self._logits)
        return self._logits[: len(steps)]

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        pages = -(-length // PAGE)
        for cache in (self._keys, self._values):
            cache[:, target, :pages] = cache[:, source, :pages]


class CompiledPacks:
    """What the scorer asks of a network, on the kernels: the hidden states of a pack, and logits.

    Each branch of a pack has pages of its own, and the texts that share it refer to them. Keys and values are
    needed only while their layer is computed: all layers use the same pages.
    """

    device = torch.device("cpu")

    def __init__(self, weights: CompiledWeights) -> None:
        self.weights, self.config = weights, weights.config
        self._reserve(0)

    def hidden(self, pack: Pack, kept: npt.NDArray[np.int64]) -> Tensor:
        """The last hidden states of the rows `kept`, (kept, width) float32, valid until the next call."""
        pages = self._pages(pack)
        if pages[-1] > self._room:
            self._reserve(int(pages[-1]))
        tables = np.zeros((len(pack.members), self._calls.pages), dtype=np.int32)
        slots = np.empty(len(pack.ids), dtype=np.int64)
        first = {id(branch): page for branch, page in zip(pack.branches, pages, strict=False)}
        for member, path in enumerate(pack.ends):
            for branch in [*path.ancestors(), path]:
                start = pack.positions[branch.first] // PAGE
                count = -(-(branch.last - branch.first) // PAGE)
                tables[member, start : start + count] = first[id(branch)] + np.arange(count)
                slots[branch.first : branch.last] = member
        rows = np.concatenate([kept, np.setdiff1d(np.arange(len(pack.ids)), kept, assume_unique=True)])
        ids, positions = np.array(pack.ids)[rows], np.array(pack.positions)[rows]
        self._calls.forward(ids, slots[rows], positions, tables, len(kept), None)
        return self._calls.residual[: len(kept)]

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, width) float32 -> (rows, rows of the output matrix) float32."""
        return self.weights.logits(hidden)

    def _pages(self, pack: Pack) -> npt.NDArray[np.int64]:
        """The first page of each branch, and behind the last one how many there are."""
        counts = [-(-(branch.last - branch.first) // PAGE) for branch in pack.branches]
        return np.concatenate([[0], np.cumsum(counts)])

    def _reserve(self, pages: int) -> None:
        self._room = pages
        shape = (max(1, pages), self.config.heads, PAGE * PANEL)
        keys, values = (torch.zeros(shape, dtype=self.weights.dtype) for _ in range(2))
        self._calls = _Calls(self.weights, [keys] * self.config.layers, [values] * self.config.layers)


class _Arena:
    """One stretch of memory on huge pages, filled from its start."""

    def __init__(self, library: ctypes.CDLL, size: int) -> None:
        address = library.headwater_allocate(size)
        if not address:
            raise MemoryError(f"no {size:,} bytes for the weights")
        # Not at the interpreter's end: a daemon thread may then be in the kernels still.
        weakref.finalize(self, library.headwater_free, address).atexit = False
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
