"""The torch backend of inference: a Transformer's forward pass over a flat list of tokens, and slots of its cache.

The same equations as `model.transformer` (GPT-1 section 3.1, equation 2; GPT-2 section 2.3), laid out for text
that is not padded: every token of every request is one row, the matrix products run over all rows at once, and
attention, the only part where tokens meet, is left to the caller, who knows which rows belong together.

`TorchRunner` fills slots, rows of a preallocated cache. A slot's results must be the same bit for bit whatever its
neighbours are, so that a sampled text does not depend on them. Three rules ensure this:

* A prompt is processed in blocks of one size that begin at its multiples, the last one padded. So a position is
  always at the same row of matrix products of the same shape.
* A decoding step has a row for every slot, used or not, so its shapes never change: on CUDA it is recorded once as
  a graph and then replayed, and so is a block of a prompt. Whether a row's result depends on its position among
  the others is a property of torch's kernels: the runner tests this when it is created, and computes slots one by
  one if it does.
* Attention runs over each slot's own keys. On a device one launch costs more than a row, so it is one call over
  the whole cache, where a mask hides what a slot has not filled; on a CPU that call's bits depend on the slot.

Matrices are float32 or bfloat16, or int8, which the native kernels compute: `native.matrix` has the scheme.

The cost: a lone request also computes the unused rows, which is cheap if reading the weights limits a step, and on
average half a block of padding for each prompt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater import native
from headwater.device import to_device
from headwater.inference.network import DecodeRow, Matrix, Precision, PromptChunk
from headwater.inference.shared_prefixes import BranchAttention, Forest
from headwater.model import Backend, Block, ModelConfig, Transformer, attend
from headwater.native import PackedMatrix

_TORCH = Backend()
_BLOCK, _CUDA_BLOCK = 64, 256  # positions of a block of a prompt
_EVEN = 8  # masks of fused attention have rows that are a multiple of this
# (layer, query, key, value), each (rows, head, head_dim) -> (rows, head, head_dim).
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
# Called after each block with the outputs of attention and MLP and the residual stream: (rows, width) each.
Observe = Callable[[Tensor, Tensor, Tensor], None]


class TorchNetwork:
    """The `Network` in torch: any device and precision.

    Residual stream and norms are float32 at any precision; keys, values and attention have `dtype`. `owner` keeps
    the memory that the matrices use, if it is not their own.
    """

    def __init__(
        self,
        config: ModelConfig,
        precision: Precision,
        embeddings: tuple[Tensor, Tensor],
        layers: Sequence[BlockWeights],
        final_norm: Norm | None,
        output: Matrix,
        owner: object = None,
    ) -> None:
        self.owner, self.lock = owner, threading.Lock()
        self.config, self.precision, self.output = config, precision, output
        self.tokens, self.positions = embeddings
        self.device, self.dtype = self.tokens.device, self.tokens.dtype
        self.layers, self.final_norm = list(layers), final_norm

    @classmethod
    def of(cls, model: Transformer, precision: Precision, *, consume: bool = False) -> TorchNetwork:
        """Read a model's weights; see `backends.open_network`."""
        dtype = table_dtype(precision)
        tokens, positions = (owned(table.weight, dtype) for table in (model.tokens, model.positions))
        output = arrange(output_rows(model, tokens), None, precision, shared=True)
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        layers = []
        for block in blocks:
            matrices = [arrange(*pair, precision) for pair in read_matrices(block, consume)]
            norms = [Norm(block.norm_1), Norm(block.norm_2)]
            layers.append(BlockWeights(matrices, norms, block.pre_norm, block.mlp.activation))
        return cls(model.config, precision, (tokens, positions), layers, final_norm_of(model), output)

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        attend: Attend,
        keep: Tensor | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Return the last block's output after the final norm, in float32.

        ids, positions: (rows,) int64. keep: (kept,) int64, the rows whose output is wanted: the last block only
        computes what they need. Returns (kept or rows, width).
        """
        x = self.embed(ids, positions)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x, index, attend, self, keep if index == last else None, observe)
        return self.normed(x)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return h_0 = U W_e + W_p: (rows,) int64 each -> (rows, width) float32."""
        return (
            functional.embedding(ids, self.tokens).float()
            + functional.embedding(positions, self.positions).float()
        )

    def normed(self, x: Tensor) -> Tensor:
        """Return the residual stream after the final norm, if the model has one."""
        return x if self.final_norm is None else self.final_norm(x)

    def hidden(self, forest: Forest, wanted: npt.NDArray[np.int64]) -> Tensor:
        """See Network."""
        return self.forward(
            torch.tensor(forest.ids, device=self.device),
            torch.tensor(forest.positions, device=self.device),
            BranchAttention(forest.branches),
            keep=torch.from_numpy(wanted).to(self.device),
        )

    @torch.inference_mode()
    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """See Network."""
        logits = self.output(hidden)
        return logits.float() if out is None else out.copy_(logits)

    def empty_logits(self, texts: int, rows: int) -> Tensor:
        """See Network."""
        return torch.empty(texts, rows, self.config.vocabulary, device=self.device)

    def runner(self, slots: int) -> TorchRunner:
        """See Network."""
        return TorchRunner(self, slots)

    def layered(self) -> TorchNetwork:
        """See Network."""
        return self


class Norm:
    """LayerNorm in float32 for parameters of any dtype."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.weight, self.bias = (owned(parameter, torch.float32) for parameter in (norm.weight, norm.bias))
        self.epsilon = norm.eps

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, width) float32 -> the same."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class BlockWeights:
    """One block: its four matrices, and its norms before (GPT-2) or after (GPT-1) attention and MLP."""

    def __init__(
        self, matrices: Sequence[Matrix], norms: Sequence[Norm], pre_norm: bool, activation: str = "gelu-tanh"
    ) -> None:
        self.query_key_value, self.projection, self.expand, self.contract = matrices
        self.norm_1, self.norm_2 = norms
        self.pre_norm, self.activation = pre_norm, activation

    def __call__(
        self,
        x: Tensor,
        index: int,
        attend: Attend,
        network: TorchNetwork,
        keep: Tensor | None,
        observe: Observe | None,
    ) -> Tensor:
        """(rows, width) -> (rows, width), or (kept, width)."""
        rows, width = x.shape
        fused = self.query_key_value(self.norm_1(x) if self.pre_norm else x).to(network.dtype)
        query, key, value = fused.view(rows, 3, network.config.heads, -1).unbind(1)
        attended = attend(index, query, key, value).reshape(rows, width)
        if keep is not None:
            x, attended = x[keep], attended[keep]
        attention = self.projection(attended)
        x = x + attention
        if not self.pre_norm:
            x = self.norm_1(x)
        inner = self.expand(self.norm_2(x) if self.pre_norm else x)
        mlp = self.contract(_TORCH.activate(inner, self.activation))
        x = x + mlp
        if not self.pre_norm:
            x = self.norm_2(x)
        if observe is not None:
            observe(attention, mlp, x)
        return x


def read_matrices(block: Block, consume: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weight and bias of a block's linear maps, in the order of `BlockWeights`.

    Those of the queries are multiplied by the block's factor of attention. With `consume` each is freed before the
    next is read.
    """
    attention, mlp = block.attention, block.mlp
    for linear in (attention.query_key_value, attention.projection, mlp.expand, mlp.contract):
        weight, bias = linear.weight.detach(), linear.bias.detach()
        if linear is attention.query_key_value and attention.factor != 1:
            factors = torch.ones_like(bias)
            factors[: linear.in_features] = attention.factor
            weight, bias = weight * factors[:, None], bias * factors
        yield weight, bias
        if consume:
            linear.weight.data = linear.weight.new_empty(0)


def output_rows(model: Transformer, tokens: Tensor) -> Tensor:
    """Return the output matrix: `tokens`, which was read from the token embedding, or a model's own."""
    return tokens if model.output is None else owned(model.output.weight, tokens.dtype)


def final_norm_of(model: Transformer) -> Norm | None:
    """Return the norm after the last block, if the model has one."""
    return Norm(model.final_norm) if isinstance(model.final_norm, nn.LayerNorm) else None


def table_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of embeddings, keys and values at a precision."""
    return torch.float32 if precision == "fp32" else torch.bfloat16


def arrange(weight: Tensor, bias: Tensor | None, precision: Precision, *, shared: bool = False) -> Matrix:
    """Return a matrix (out, in) and its bias (out,) at a precision; `shared`: it may keep `weight` itself."""
    if precision == "int8":
        kernels = native.kernels()
        assert kernels is not None  # `choose_precision` requires them
        return PackedMatrix(kernels, weight, bias, precision)
    return Dense(weight, bias, torch.float32 if precision == "fp32" else torch.bfloat16, shared=shared)


def owned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of a tensor in a dtype: the tensor itself may be mapped from a file that others write."""
    return tensor.detach().to(dtype, copy=True)


class Dense:
    """Weights in float32 or bfloat16; the product is in their dtype.

    On a CPU oneDNN packs them once: torch would pack them at every call, or use MKL, half as fast on some CPUs.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, shared: bool = False) -> None:
        self.dtype = dtype
        self.bias = None if bias is None else owned(bias, dtype)
        packed = _packed(weight.detach().to(dtype))
        self.packed = packed is not None
        self.weight = (weight if shared else owned(weight, dtype)) if packed is None else packed

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, in) -> (rows, out)."""
        x = x.to(self.dtype)
        if not self.packed:
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def _packed(weight: Tensor) -> Tensor | None:
    """Return the weights in oneDNN's layout, or None if this torch or this device does not have it."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return None
    return packed


class TorchRunner:
    """The Runner of a TorchNetwork."""

    exact = False
    name = "torch"

    def __init__(self, network: TorchNetwork, slots: int) -> None:
        self.network, self.slots, self.context = network, slots, network.config.context
        config = network.config
        self.vocabulary = config.vocabulary
        self.lone_block = self.shared_block = _CUDA_BLOCK if network.device.type == "cuda" else _BLOCK
        # Whole blocks, so that there is room for the padding of the last one; after them one that is never read.
        self._nowhere = -(-config.context // self.lone_block) * self.lone_block
        shape = (slots, config.heads, self._nowhere + _EVEN, config.width // config.heads)
        self.keys = [torch.zeros(shape, dtype=network.dtype, device=network.device) for _ in range(config.layers)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        alike = (rows_are_alike(matrix, width, slots, network.device) for matrix, width in matrices(network))
        self.together = all(alike)
        # Of each slot its token, its position, and where that is in the cache; the slots whose logits are wanted.
        self._inputs = torch.zeros(4, slots, dtype=torch.int64, device=network.device)
        self._all_slots: Callable[[], Tensor] | None = None
        # Of each position of a block of a prompt its token, where that is in the cache, and the slot.
        self._prompt = torch.zeros(3, self.lone_block, dtype=torch.int64, device=network.device)
        self._whole_block: Callable[[], Tensor] | None = None

    @torch.inference_mode()
    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Tensor:
        """See Runner."""
        if block is not None:
            self._fill(*block)
        if not steps:
            return torch.empty(0, self.vocabulary)
        inputs = np.zeros((4, self.slots), dtype=np.int64)
        inputs[2] = self._nowhere
        for row, step in enumerate(steps):
            inputs[:3, step.slot] = step.token, step.position, step.position
            inputs[3, row] = step.slot
        self._inputs.copy_(to_device(torch.from_numpy(inputs), self.network.device))
        if not self.together:
            return torch.cat([self._decode(slice(step.slot, step.slot + 1)) for step in steps])
        if self.network.device.type != "cuda":  # a function kept here would refer back to this object
            logits = self._decode(slice(None))
        else:
            if self._all_slots is None:
                self._all_slots = recorded(partial(self._decode, slice(None)))
            logits = self._all_slots()
        return logits[self._inputs[3, : len(steps)]]

    def _fill(self, slot: int, start: int, ids: Sequence[int]) -> None:
        inputs = np.zeros((3, self.lone_block), dtype=np.int64)
        inputs[0, : len(ids)] = ids
        inputs[1], inputs[2] = np.arange(start, start + self.lone_block), slot
        self._prompt.copy_(to_device(torch.from_numpy(inputs), self.network.device))
        if self.network.device.type == "cuda":
            if self._whole_block is None:
                self._whole_block = recorded(self._read_block)
            self._whole_block()
        else:
            self._read_block()

    def _read_block(self) -> Tensor:
        """Compute keys and values of a block of a prompt, all sizes fixed on a device."""
        tokens, columns, slots = self._prompt
        on_cpu = tokens.device.type == "cpu"
        visible = torch.arange(self.keys[0].shape[2], device=tokens.device) <= columns[:, None]

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[slots, :, columns], values[slots, :, columns] = key, value
            query = query.transpose(0, 1)[None]
            if on_cpu:
                mine = slice(int(slots[0]), int(slots[0]) + 1), slice(None), slice(int(columns[-1]) + 1)
                return attend(query, keys[mine], values[mine])[0].transpose(0, 1)
            keys, values = keys.index_select(0, slots[:1]), values.index_select(0, slots[:1])
            return attend(query, keys, values, visible)[0].transpose(0, 1)

        # The last block of the model only computes keys and values.
        nothing = torch.empty(0, dtype=torch.int64, device=tokens.device)
        positions = columns.clamp(max=self.context - 1)
        return self.network.forward(tokens, positions, attention, keep=nothing)

    def _decode(self, part: slice) -> Tensor:
        """Decode one position of some slots, all sizes fixed: (slots, vocabulary) float32."""
        tokens, positions, columns, _ = self._inputs[:, part]
        rows = torch.arange(len(tokens), device=tokens.device)
        visible = torch.arange(self.keys[0].shape[2], device=tokens.device) <= positions[:, None]
        on_cpu = tokens.device.type == "cpu"
        ends = (positions + 1).tolist() if on_cpu else []

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self.keys[layer][part], self.values[layer][part]
            keys[rows, :, columns], values[rows, :, columns] = key, value
            query = query[:, :, None]
            if not on_cpu:
                return attend(query, keys, values, visible[:, None, None])[:, :, 0]
            own = (
                attend(query[i : i + 1], keys[i : i + 1, :, :end], values[i : i + 1, :, :end])
                for i, end in enumerate(ends)
            )
            return torch.cat(list(own))[:, :, 0]

        return self.network.logits(self.network.forward(tokens, positions, attention))

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        for cache in (*self.keys, *self.values):
            cache[target, :, :length] = cache[source, :, :length]


def matrices(network: TorchNetwork) -> list[tuple[Matrix, int]]:
    """Return one matrix of each shape, with the width of its input."""
    layer, width = network.layers[0], network.config.width
    narrow = [layer.query_key_value, layer.projection, layer.expand, network.output]
    return [(layer.contract, network.config.mlp_width), *((matrix, width) for matrix in narrow)]


def recorded(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record what `compute` launches as a CUDA graph; return a function that launches all of it at once.

    `compute` must use the same memory each time, and never wait for the device.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # first calls choose kernels and allocate workspaces
        compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def rows_are_alike(matrix: Matrix, width: int, rows: int, device: torch.device) -> bool:
    """Return whether a row of a product is the same, bit for bit, at every index."""
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(rows, width, generator=generator).to(device)
    expected = matrix(x)
    turned = (matrix(x.roll(shift, 0)).roll(-shift, 0) for shift in range(1, rows))
    return all(torch.equal(y, expected) for y in turned)
