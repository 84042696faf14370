"""The native backend of inference: a Transformer's weights in the kernels' layout, and slots of its cache.

The order in which a row's terms are added never depends on the other rows of a call (`native/transformer.h`), so
nothing needs a fixed shape:
decoding rows and a block of a prompt share one pass over the weights, blocks have any size, another request may
take over any position, generated ones as well, and a score is the same to the last bit in any forest.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater import native
from headwater.display import counted
from headwater.inference.network import DecodeRow, Precision, PromptChunk
from headwater.inference.shared_prefixes import Forest
from headwater.inference.torch_network import (
    BlockWeights,
    Norm,
    TorchNetwork,
    final_norm_of,
    output_rows,
    owned,
    read_matrices,
    table_dtype,
)
from headwater.model import Block, Transformer
from headwater.native import PAGE, Affine, Forward, Shape, TransformerWeights

# Positions of a prompt that one call computes while no request decodes.
_LONE_BLOCK = 256
_STAT = Path("/proc/stat")
_WINDOW, _PAUSE = 0.5, 10.0  # seconds, of _FreeCores


def supported(model: Transformer) -> bool:
    """Return whether the kernels support the model: causal, GELU, an MLP of four widths, on a CPU."""
    config = model.config
    fits = (
        config.attention == "causal" and config.activation == "gelu-tanh" and config.mlp_width == 4 * config.width
    )
    return fits and model.tokens.weight.device.type == "cpu" and native.kernels() is not None


class NativeNetwork:
    """The `Network` on the kernels. Needs `supported`.

    For scores, each branch of a forest has pages of keys and values of its own, and the texts that share it refer
    to them. They are needed only while their layer is computed: all layers use the same pages.
    """

    def __init__(self, model: Transformer, precision: Precision, *, consume: bool = False) -> None:
        kernels = native.kernels()
        assert kernels is not None
        self.config, self.precision = model.config, precision
        self.lock = threading.Lock()
        config = model.config
        shape = Shape(
            layers=config.layers,
            width=config.width,
            heads=config.heads,
            context=config.context,
            vocabulary=config.vocabulary,
            pre_norm=config.norm == "pre",
            epsilon=config.norm_epsilon,
        )
        self.dtype = table_dtype(precision)  # of keys, values and tables
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        self._norms = [[Norm(block.norm_1), Norm(block.norm_2)] for block in blocks]
        self._final_norm = final = final_norm_of(model)
        tokens, positions = model.tokens.weight.detach(), model.positions.weight.detach()
        self.weights = TransformerWeights(
            kernels,
            shape,
            precision,
            _layers(blocks, consume),
            owned(tokens, self.dtype),
            owned(positions, self.dtype),
            Affine(final.weight, final.bias) if final else None,
            output_rows(model, tokens),
        )
        self._reserve(0)

    def hidden(self, forest: Forest, wanted: npt.NDArray[np.int64]) -> Tensor:
        """See Network."""
        counts = [-(-(branch.last - branch.first) // PAGE) for branch in forest.branches]
        pages = np.concatenate([[0], np.cumsum(counts)])  # the first of each branch, then their number
        if pages[-1] > self._room:
            self._reserve(int(pages[-1]))
        tables = np.zeros((len(forest.members), self.weights.shape.pages), dtype=np.int32)
        slots = np.empty(len(forest.ids), dtype=np.int64)
        first = {id(branch): page for branch, page in zip(forest.branches, pages, strict=False)}
        for member, path in enumerate(forest.ends):
            for branch in [*path.ancestors(), path]:
                start = forest.positions[branch.first] // PAGE
                count = -(-(branch.last - branch.first) // PAGE)
                tables[member, start : start + count] = first[id(branch)] + np.arange(count)
                slots[branch.first : branch.last] = member
        rows = np.concatenate([wanted, np.setdiff1d(np.arange(len(forest.ids)), wanted, assume_unique=True)])
        ids, positions = np.array(forest.ids)[rows], np.array(forest.positions)[rows]
        return self._forward(ids, slots[rows], positions, tables, len(wanted), None)

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """See Network."""
        return self.weights.output(hidden, out)

    def empty_logits(self, texts: int, rows: int) -> Tensor:
        """See Network."""
        shape = texts, rows, self.config.vocabulary
        return native.allocate(self.weights.kernels, 4 * math.prod(shape)).view(torch.float32).view(shape)

    def runner(self, slots: int) -> NativeRunner:
        """See Network."""
        return NativeRunner(self, slots)

    def layered(self) -> TorchNetwork:
        """See Network."""
        weights, width = self.weights, self.config.width
        layers = [
            BlockWeights(matrices, norms, weights.shape.pre_norm)
            for matrices, norms in zip(weights.layers, self._norms, strict=True)
        ]
        tokens, positions = (table[:, :width] for table in weights.tables)
        return TorchNetwork(
            self.config,
            self.precision,
            (tokens, positions),
            layers,
            self._final_norm,
            weights.output,
            owner=self,
        )

    def _reserve(self, pages: int) -> None:
        self._room = pages
        layers, size = self.config.layers, max(1, pages) * self.weights.shape.page_elements
        keys, values = (torch.zeros(size, dtype=self.dtype) for _ in range(2))
        self._forward = Forward(self.weights, [keys] * layers, [values] * layers)


def _layers(blocks: Sequence[Block], consume: bool) -> Iterator[list[Affine]]:
    """Yield each block's tensors, which with `consume` are no longer the block's."""
    for block in blocks:
        norms = [Affine(norm.weight.detach(), norm.bias.detach()) for norm in (block.norm_1, block.norm_2)]
        yield [Affine(*pair) for pair in read_matrices(block, consume)] + norms


class NativeRunner:
    """The Runner of a NativeNetwork: every slot has its own consecutive pages."""

    exact = True

    def __init__(self, network: NativeNetwork, slots: int) -> None:
        config = network.config
        self.slots, self.context, self.vocabulary = slots, config.context, config.vocabulary
        # Threads that wait for each other in every layer lose more to a busy core than they gain by it.
        self._cores = _FreeCores()
        self.name = (
            f"native kernels ({network.weights.kernels.variant}), {counted(torch.get_num_threads(), 'thread')}"
        )
        self.lone_block, self.shared_block = min(_LONE_BLOCK, config.context), min(64, config.context)
        shape = network.weights.shape
        pages = shape.pages
        size = (config.layers, slots, pages, shape.page_elements)
        self._keys, self._values = (torch.zeros(size, dtype=network.dtype) for _ in range(2))
        self._forward = Forward(network.weights, list(self._keys), list(self._values))
        self._tables = np.arange(slots * pages, dtype=np.int32).reshape(slots, pages)
        self._logits = torch.empty(slots, network.weights.output.structure.outputs)

    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Tensor:
        """See Runner."""
        tokens = [step.token for step in steps]
        slots = [step.slot for step in steps]
        positions = [step.position for step in steps]
        if block is not None:
            tokens += block.ids
            slots += [block.slot] * len(block.ids)
            positions += range(block.start, block.start + len(block.ids))
        threads = self._cores.count()
        self._forward(tokens, slots, positions, self._tables, len(steps), self._logits, threads)
        return self._logits[: len(steps), : self.vocabulary]

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        pages = -(-length // PAGE)
        for cache in (self._keys, self._values):
            cache[:, target, :pages] = cache[:, source, :pages]


class _FreeCores:
    """Number of this process's processors that other programs leave free, at least half of them.

    It is measured on Linux, over windows of half a second or more, while `count` is called; low-priority programs
    do not count. Half of the processors, rounded up, is the share of this process next to another program that
    uses all: two processes that both generate do not starve each other.
    """

    def __init__(self) -> None:
        self._processors = os.sched_getaffinity(0) if _STAT.exists() else frozenset[int]()
        self._count = len(self._processors)
        self._asked = -math.inf

    def count(self) -> int | None:
        """Return the number in the last window; None where the system does not tell."""
        if not self._processors:
            return None
        now = time.monotonic()
        if now - self._asked > _PAUSE:  # what others did meanwhile tells little of now
            self._begin(now)
        elif now - self._since >= _WINDOW:
            busy = (self._seconds_of_others() - self._used) / (now - self._since)
            every = len(self._processors)
            self._count = max((every + 1) // 2, min(every, math.floor(every - busy + 0.5)))
            self._begin(now)
        self._asked = now
        return self._count

    def _begin(self, now: float) -> None:
        self._since, self._used = now, self._seconds_of_others()

    def _seconds_of_others(self) -> float:
        """Return for how long other programs used the processors, since the system was started."""
        names = {f"cpu{processor}" for processor in self._processors}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        # user, nice, system, idle, iowait, irq, softirq, steal, in ticks
        columns = [1, 3, 6, 7, 8] if os.nice(0) <= 0 else [1, 2, 3, 6, 7, 8]
        ticks = sum(int(line[column]) for line in lines if line and line[0] in names for column in columns)
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
