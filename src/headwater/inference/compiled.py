"""The native backend of inference: a Transformer's weights in the layout of the kernels, and slots of its cache.

A row's sums have one order whatever else is in the call (`native/transformer.c`), so nothing needs a fixed shape:
decoding rows and a block of a prompt share one pass over the weights, blocks have any size, another request may
take over any position, generated ones as well, and a score is the same to the last bit in any pack.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headwater.inference import kernels
from headwater.inference.matrices import owned
from headwater.inference.network import Block, Matrix, Precision, Step
from headwater.inference.packing import Pack
from headwater.inference.panels import PANEL, padded, panels, product
from headwater.inference.torch_network import Layer, Norm, TorchNetwork, final_norm_of, linears, table_dtype
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


class NativeNetwork:
    """The `Network` on the kernels. Needs `supported`.

    For scores, each branch of a pack has pages of keys and values of its own, and the texts that share it refer to
    them. They are needed only while their layer is computed: all layers use the same pages.
    """

    def __init__(self, model: Transformer, precision: Precision, *, consume: bool = False) -> None:
        loaded = kernels.library()
        assert loaded is not None
        self.library, self.config, self.precision = loaded, model.config, precision
        self.kind = _KINDS[precision]
        self.lock = threading.Lock()
        self.dtype = table_dtype(precision)  # of keys, values and tables
        self._consume = consume
        self._kept: list[Tensor] = []  # what the structures point into
        self._views: list[Layer] = []  # the same layers for `layered`
        self._arena = _Arena(loaded, _arena_bytes(model, precision))
        blocks = [block for block in model.blocks if isinstance(block, TransformerBlock)]
        self._layers = [self._layer(block) for block in blocks]
        embeddings = Embeddings(model.tokens.weight.detach(), model.positions.weight.detach())
        self.output = self._matrix(embeddings.tokens, None)
        self._embeddings = Embeddings(*(owned(table, self.dtype, consume).contiguous() for table in embeddings))
        self._final_norm = final_norm_of(model)
        self._reserve(0)

    def model(self, keys: Sequence[Tensor], values: Sequence[Tensor], pages: int) -> kernels.Model:
        """The structure of a model with these caches, a pair a layer; the workspace is the caller's."""
        layers = (kernels.Layer * self.config.layers)(*self._layers)
        for layer, layer_keys, layer_values in zip(layers, keys, values, strict=True):
            layer.keys, layer.values = layer_keys.data_ptr(), layer_values.data_ptr()
        final = self._final_norm
        return kernels.Model(
            kind=self.kind,
            layers=self.config.layers,
            width=self.config.width,
            heads=self.config.heads,
            pages=pages,
            pre_norm=self.config.norm == "pre",
            epsilon=self.config.norm_epsilon,
            token_table=self._embeddings.tokens.data_ptr(),
            position_table=self._embeddings.positions.data_ptr(),
            final_weight=final.weight.data_ptr() if final else None,
            final_bias=final.bias.data_ptr() if final else None,
            output=self.output,
            layer=layers,
        )

    def hidden(self, pack: Pack, kept: npt.NDArray[np.int64]) -> Tensor:
        """See Network."""
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
        """See Network."""
        return product(self.library, self.output, self.kind, hidden)[:, : self.config.vocabulary]

    def runner(self, slots: int) -> NativeRunner:
        """See Network."""
        return NativeRunner(self, slots)

    def layered(self) -> TorchNetwork:
        """See Network."""
        output = self._product(self.output, self.config.vocabulary)
        embeddings, final = self._embeddings, self._final_norm
        return TorchNetwork(self.config, self.precision, embeddings, self._views, final, output, owner=self)

    def _product(self, matrix: kernels.Matrix, outputs: int) -> Matrix:
        """Return one matrix as a function, for the layered forward pass."""
        library, kind = self.library, self.kind  # not self: a cycle would keep the weights in memory
        return lambda x: product(library, matrix, kind, x.float())[:, :outputs]

    def _layer(self, block: TransformerBlock) -> kernels.Layer:
        norm_1, norm_2 = Norm.of(block.norm_1), Norm.of(block.norm_2)
        widths = [linear.out_features for linear in linears(block)]
        matrices = [self._linear(linear) for linear in linears(block)]
        products = [self._product(matrix, width) for matrix, width in zip(matrices, widths, strict=True)]
        self._views.append(Layer(products, [norm_1, norm_2], block.pre_norm))
        return kernels.Layer(
            query_key_value=matrices[0],
            projection=matrices[1],
            expand=matrices[2],
            contract=matrices[3],
            norm_1_weight=norm_1.weight.data_ptr(),
            norm_1_bias=norm_1.bias.data_ptr(),
            norm_2_weight=norm_2.weight.data_ptr(),
            norm_2_bias=norm_2.bias.data_ptr(),
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
            bias=None if bias is None else self._keep(padded(bias)),
            scale=None if scale is None else self._keep(scale),
            inputs=weight.shape[1],
            outputs=view.shape[0] * PANEL,
        )

    def _keep(self, tensor: Tensor) -> int:
        self._kept.append(owned(tensor, torch.float32).contiguous())
        return self._kept[-1].data_ptr()

    def _pages(self, pack: Pack) -> npt.NDArray[np.int64]:
        """Return the first page of each branch, and behind the last one how many there are."""
        counts = [-(-(branch.last - branch.first) // PAGE) for branch in pack.branches]
        return np.concatenate([[0], np.cumsum(counts)])

    def _reserve(self, pages: int) -> None:
        self._room = pages
        shape = (max(1, pages), self.config.heads, PAGE * PANEL)
        keys, values = (torch.zeros(shape, dtype=self.dtype) for _ in range(2))
        self._calls = _Calls(self, [keys] * self.config.layers, [values] * self.config.layers)


class _Calls:
    """One model structure, its workspace, and the call."""

    def __init__(self, weights: NativeNetwork, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
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


class NativeRunner:
    """The Runner of a NativeNetwork: every slot has its own pages, one after the other."""

    exact = True

    def __init__(self, weights: NativeNetwork, slots: int) -> None:
        config = weights.config
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        self.name = f"native kernels, {counted(torch.get_num_threads(), 'thread')}"
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
        return self._logits[: len(steps), : self.vocabulary]

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        pages = -(-length // PAGE)
        for cache in (self._keys, self._values):
            cache[:, target, :pages] = cache[:, source, :pages]


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
