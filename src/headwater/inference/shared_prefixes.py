"""Lay token lists out in rows without padding, so that a prefix that several lists share has its rows once.

Token lists are sorted and laid out in forests: one row for each distinct token of a distinct path from the start
of a text. `BranchAttention` runs attention over a forest one branch at a time, so that a row only depends on its
own path.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.inference.request import shared_length
from headwater.model import attend

# Rows of one forest: enough for efficient matrix products, with small results.
FOREST_ROWS = 2_048
# The length of a shared prefix is a multiple of this: shorter ones are cheaper to compute again, and a page of
# keys and values has as many positions.
_STEP = 16


@dataclass(slots=True)
class Branch:
    """Consecutive tokens that the same texts share: rows [first, last) of a forest, after `parent`."""

    first: int
    last: int
    parent: Branch | None

    def ancestors(self) -> list[Branch]:
        """Return the branches before this one, from the root."""
        branches: list[Branch] = []
        branch = self.parent
        while branch is not None:
            branches.append(branch)
            branch = branch.parent
        return branches[::-1]


@dataclass(slots=True)
class Forest:
    """Texts laid out as a forest: one row for each distinct token of a distinct path."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    paths: list[npt.NDArray[np.int64]] = field(default_factory=list)  # the rows of each member, in order
    ends: list[Branch] = field(default_factory=list)  # the branch on which each member ends

    def add(self, ids: list[int], depth: int, parent: Branch | None) -> Branch:
        """Add rows for `ids`, at positions from `depth` on."""
        branch = Branch(len(self.ids), len(self.ids) + len(ids), parent)
        self.ids += ids
        self.positions += range(depth, depth + len(ids))
        self.branches.append(branch)
        return branch


def forests(inputs: Sequence[list[int]]) -> Iterator[Forest]:
    """Yield forests of about FOREST_ROWS rows for token lists of at least one token each."""
    order = sorted(range(len(inputs)), key=inputs.__getitem__)
    start = 0
    while start < len(order):
        chosen, rows = [order[start]], len(inputs[order[start]])
        for candidate in order[start + 1 :]:
            rows += len(inputs[candidate]) - _shared(inputs[chosen[-1]], inputs[candidate])
            if rows > FOREST_ROWS:
                break
            chosen.append(candidate)
        yield _laid_out(chosen, [inputs[index] for index in chosen])
        start += len(chosen)


def _laid_out(members: list[int], inputs: list[list[int]]) -> Forest:
    forest = Forest(members=members, paths=[np.empty(len(ids), dtype=np.int64) for ids in inputs])
    forest.ends = [Branch(0, 0, None)] * len(inputs)
    shared = [_shared(a, b) for a, b in itertools.pairwise(inputs)]
    # (first member, one past the last, length of the prefix that has rows already, the branch of these rows)
    work: list[tuple[int, int, int, Branch | None]] = [(0, len(inputs), 0, None)]
    while work:
        low, high, depth, parent = work.pop()
        # The prefix of all of [low, high): they are sorted, so the shortest that two neighbours share.
        common = min([len(inputs[low]), *shared[low : high - 1]])
        alone = high - low == 1
        if alone or common > depth:
            parent = forest.add(inputs[low][depth:common], depth, parent)
            for member in range(low, high):
                forest.paths[member][depth:common] = np.arange(parent.first, parent.last)
                forest.ends[member] = parent
            depth = common
        if not alone:
            cuts = [low, *(m + 1 for m in range(low, high - 1) if shared[m] <= common), high]
            for a, b in reversed(list(itertools.pairwise(cuts))):
                if b - a > 1 or len(inputs[a]) > depth:
                    work.append((a, b, depth, parent))
    return forest


def _shared(a: list[int], b: list[int]) -> int:
    return shared_length(a, b) // _STEP * _STEP


class BranchAttention:
    """Causal attention within each branch and to all of its ancestors."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self._branches = [(branch, branch.ancestors()) for branch in branches]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each (rows, head, head_dim) -> (rows, head, head_dim)."""
        attended = torch.empty_like(query, memory_format=torch.contiguous_format)
        for branch, ancestors in self._branches:
            part = slice(branch.first, branch.last)
            if ancestors:
                rows = [slice(a.first, a.last) for a in ancestors] + [part]
                keys = torch.cat([key[row] for row in rows])
                values = torch.cat([value[row] for row in rows])
            else:
                keys, values = key[part], value[part]
            query_part, keys, values = (x.transpose(0, 1)[None] for x in (query[part], keys, values))
            out = attend(query_part, keys, values)  # (1, head, rows, head_dim)
            attended[part] = out[0].transpose(0, 1)
        return attended
