"""Find the documents of all parts that equal, or nearly equal, an earlier one: tasks by key range and by file.

| phase | a task reads | and writes |
|---|---|---|
| rows | the length of every part | the number of each part's first document |
| copies | fingerprints in a range of keys | documents that equal an earlier one |
| pairs | band keys in a range | pairs of documents that share one |
| wanted | all pairs | each pair once; the documents in them |
| shingles | a part | the shingles of its wanted documents |
| similar | the shingles of some pairs | which of these pairs are similar |
| removed | the similar pairs | the documents to remove |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.parts import FINGERPRINTS, KEYS, read_part
from headwater.corpus.building.plan import BuildPlan
from headwater.corpus.dedup.keys import copies_in, first_rows, key_ranges
from headwater.corpus.dedup.near import (
    ShingleFiles,
    choose_removed,
    compare,
    merge,
    pairs_in,
    split_pairs,
    write_shingles,
)
from headwater.storage import save_array

COMPARED_PAIRS = 1 << 20  # by one task


class Phase(NamedTuple):
    """Tasks of one kind, which need those of the phases before: their number, and what fills a task's folder."""

    name: str
    count: Callable[[BuildPlan], int]
    fill: Callable[[BuildPlan, int, Path], None]


def load(plan: BuildPlan, phase: str, number: int, name: str = "") -> npt.NDArray[Any]:
    """Return an array that a task wrote."""
    array: npt.NDArray[Any] = np.load(plan.output(phase, number) / f"{name or phase}.npy", mmap_mode="r")
    return array


def first_documents(plan: BuildPlan) -> list[int]:
    """Return the number of the first document of each part, counted through all parts, and of all documents."""
    return [int(row) for row in load(plan, "rows", 0)]


def exact_copies(plan: BuildPlan) -> npt.NDArray[np.bool_]:
    """Return which documents equal an earlier one, (documents,)."""
    copies = np.zeros(first_documents(plan)[-1], bool)
    for number in range(_ranges(plan)):
        copies[load(plan, "copies", number)] = True
    return copies


def near_copies(plan: BuildPlan) -> npt.NDArray[np.int64]:
    """Return the documents that nearly equal an earlier one, and that one: (2, documents)."""
    return np.array(load(plan, "removed", 0))


def _parts(plan: BuildPlan) -> int:
    return len(plan.tasks)


def _one(plan: BuildPlan) -> int:
    return 1


def _ranges(plan: BuildPlan) -> int:
    return len(key_ranges(first_documents(plan)[-1]))


def _chunks(plan: BuildPlan) -> int:
    return -(-len(load(plan, "wanted", 0, "pairs")) // COMPARED_PAIRS)


def _rows(plan: BuildPlan, number: int, work: Path) -> None:
    save_array(work / "rows.npy", np.array(first_rows([part / FINGERPRINTS for part in plan.parts])))


def _copies(plan: BuildPlan, number: int, work: Path) -> None:
    starts = first_documents(plan)
    files = [part / FINGERPRINTS for part in plan.parts]
    save_array(work / "copies.npy", copies_in(files, starts, *key_ranges(starts[-1])[number]))


def _pairs(plan: BuildPlan, number: int, work: Path) -> None:
    starts = first_documents(plan)
    files = [part / KEYS for part in plan.parts]
    pairs = pairs_in(files, starts, *key_ranges(starts[-1])[number], exact_copies(plan))
    save_array(work / "pairs.npy", pairs)


def _wanted(plan: BuildPlan, number: int, work: Path) -> None:
    pairs = merge(np.array(load(plan, "pairs", number)) for number in range(_ranges(plan)))
    save_array(work / "pairs.npy", pairs)
    save_array(work / "wanted.npy", np.union1d(*split_pairs(pairs)))


def _shingles(plan: BuildPlan, number: int, work: Path) -> None:
    wanted, first = load(plan, "wanted", 0), first_documents(plan)[number : number + 2]
    begin, end = np.searchsorted(wanted, np.array(first, np.uint64)).tolist()
    rows = [int(document) - first[0] for document in wanted[begin:end]]

    def texts() -> Iterator[str]:
        documents, read = read_part(plan.part(number)), 0
        for row in rows:
            yield next(islice(documents, row - read, None)).text
            read = row + 1

    write_shingles(texts(), work / "shingles.bin")


def _sets(plan: BuildPlan) -> ShingleFiles:
    """Return the shingles of the wanted documents."""
    starts = np.searchsorted(load(plan, "wanted", 0), np.array(first_documents(plan), np.uint64)).tolist()
    return ShingleFiles([plan.output("shingles", n) / "shingles.bin" for n in range(_parts(plan))], starts)


def _similar(plan: BuildPlan, number: int, work: Path) -> None:
    pairs = load(plan, "wanted", 0, "pairs")[number * COMPARED_PAIRS :][:COMPARED_PAIRS]
    similar = compare(np.array(pairs), load(plan, "wanted", 0), _sets(plan), plan.config.similarity)
    save_array(work / "similar.npy", similar)


def _removed(plan: BuildPlan, number: int, work: Path) -> None:
    chosen = [np.array(load(plan, "similar", chunk)) for chunk in range(_chunks(plan))]
    pairs = load(plan, "wanted", 0, "pairs")[np.concatenate([np.empty(0, bool), *chosen])]
    removed = choose_removed(pairs, np.array(load(plan, "wanted", 0)), _sets(plan), plan.config.similarity)
    save_array(work / "removed.npy", np.stack(removed))


EXACT = (Phase("rows", _one, _rows), Phase("copies", _ranges, _copies))
NEAR = (
    Phase("pairs", _ranges, _pairs),
    Phase("wanted", _one, _wanted),
    Phase("shingles", _parts, _shingles),
    Phase("similar", _chunks, _similar),
    Phase("removed", _one, _removed),
)
