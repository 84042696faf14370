"""The phases of a build, and how their tasks are done: here, in processes, or (`cluster`) on machines.

| phase | a task reads | and writes |
|---|---|---|
| parts | files | a part of the corpus (`parts`) |
| starts | the length of every part | the number of each part's first document |
| copies | fingerprints in a range of keys | documents that equal an earlier one |
| pairs | band keys in a range | pairs of documents that share one |
| wanted | all pairs | each pair once; the documents in them |
| shingles | a part | the shingles of its wanted documents |
| similar | the shingles of some pairs | which of these pairs are similar |
| removed | the similar pairs | the documents to remove |
| bounds | what is removed | the documents of each shard |
| shard | the parts that have these | a file of the corpus |

Each task writes a folder of its own unless it exists, so that a build resumes where it was, on any machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.parts import FINGERPRINTS, KEYS, SIZES, PartMaker, part_funnel, read_part
from headwater.corpus.building.plan import PARTS, BuildPlan
from headwater.corpus.dedup.keys import FINGERPRINT_ROW, copies_in, first_rows, key_ranges
from headwater.corpus.dedup.near import (
    ShingleFiles,
    choose_removed,
    compare,
    merge,
    pairs_in,
    split_pairs,
    write_shingles,
)
from headwater.corpus.folder import Document, Tally, example_of, shard_starts, size_of, write_documents
from headwater.corpus.task_workers import Phase, TaskRunner
from headwater.reading import read_json
from headwater.storage import save_array, write_json

COMPARED_PAIRS = 1 << 20  # by one task
KINDS = ("kept", "exact", "near")  # of documents: the last two are copies of earlier ones
LABELS, COUNTS = "labels.json", "counts.json"  # of all documents, of a shard


def load_array(plan: BuildPlan, phase: str, number: int, name: str = "") -> npt.NDArray[Any]:
    """Return an array that a task wrote."""
    array: npt.NDArray[Any] = np.load(plan.output(phase, number) / f"{name or phase}.npy", mmap_mode="r")
    return array


def first_documents(plan: BuildPlan) -> list[int]:
    """Return the number of the first document of each part, counted through all parts, and of all documents."""
    return [int(start) for start in load_array(plan, "starts", 0)]


def exact_copies(plan: BuildPlan) -> npt.NDArray[np.bool_]:
    """Return which documents equal an earlier one, (documents,)."""
    copies = np.zeros(first_documents(plan)[-1], bool)
    for number in range(_ranges(plan)):
        copies[load_array(plan, "copies", number)] = True
    return copies


def near_copies(plan: BuildPlan) -> npt.NDArray[np.int64]:
    """Return the documents that nearly equal an earlier one, and that one: (2, documents)."""
    return np.array(load_array(plan, "removed", 0))


def _parts(plan: BuildPlan) -> int:
    return len(plan.tasks)


def _ranges(plan: BuildPlan) -> int:
    return len(key_ranges(first_documents(plan)[-1]))


def _chunks(plan: BuildPlan) -> int:
    return -(-len(load_array(plan, "wanted", 0, "pairs")) // COMPARED_PAIRS)


def _starts(plan: BuildPlan, number: int, work: Path) -> None:
    files = [part / FINGERPRINTS for part in plan.parts]
    save_array(work / "starts.npy", np.array(first_rows(files, FINGERPRINT_ROW)))


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
    pairs = merge(np.array(load_array(plan, "pairs", number)) for number in range(_ranges(plan)))
    save_array(work / "pairs.npy", pairs)
    save_array(work / "wanted.npy", np.union1d(*split_pairs(pairs)))


def _shingles(plan: BuildPlan, number: int, work: Path) -> None:
    wanted, first = load_array(plan, "wanted", 0), first_documents(plan)[number : number + 2]
    begin, end = np.searchsorted(wanted, np.array(first, np.uint64)).tolist()
    rows = [int(document) - first[0] for document in wanted[begin:end]]

    def texts() -> Iterator[str]:
        documents, read = read_part(plan.output(PARTS, number)), 0
        for row in rows:
            yield next(islice(documents, row - read, None)).text
            read = row + 1

    write_shingles(texts(), work / "shingles.bin")


def _sets(plan: BuildPlan) -> ShingleFiles:
    """Return the shingles of the wanted documents."""
    starts = np.searchsorted(load_array(plan, "wanted", 0), np.array(first_documents(plan), np.uint64)).tolist()
    return ShingleFiles([plan.output("shingles", n) / "shingles.bin" for n in range(_parts(plan))], starts)


def _similar(plan: BuildPlan, number: int, work: Path) -> None:
    pairs = load_array(plan, "wanted", 0, "pairs")[number * COMPARED_PAIRS :][:COMPARED_PAIRS]
    similar = compare(np.array(pairs), load_array(plan, "wanted", 0), _sets(plan), plan.config.similarity)
    save_array(work / "similar.npy", similar)


def _removed(plan: BuildPlan, number: int, work: Path) -> None:
    chosen = [np.array(load_array(plan, "similar", chunk)) for chunk in range(_chunks(plan))]
    pairs = load_array(plan, "wanted", 0, "pairs")[np.concatenate([np.empty(0, bool), *chosen])]
    removed = choose_removed(pairs, np.array(load_array(plan, "wanted", 0)), _sets(plan), plan.config.similarity)
    save_array(work / "removed.npy", np.stack(removed))


def _bounds(plan: BuildPlan, number: int, work: Path) -> None:
    """Write the kind of each document, the number of each shard's first document, and that of all documents."""
    kinds, starts = exact_copies(plan).astype(np.uint8), first_documents(plan)
    if plan.config.near_duplicates:
        kinds[near_copies(plan)[0]] = KINDS.index("near")
    save_array(work / "kinds.npy", kinds)

    def sizes() -> Iterator[npt.NDArray[np.int64]]:
        for part, (first, last) in zip(plan.parts, pairwise(starts), strict=True):
            yield np.where(kinds[first:last], 0, np.fromfile(part / SIZES, "<i8"))

    save_array(work / "bounds.npy", np.array([*shard_starts(sizes()), starts[-1]]))
    labels = dict.fromkeys(label for part in plan.parts for label in part_funnel(part).labels)
    write_json(work / LABELS, list(labels))


def shard_count(plan: BuildPlan) -> int:
    """Return the number of shards of the corpus."""
    return len(load_array(plan, "bounds", 0)) - 1


def _shard(plan: BuildPlan, number: int, work: Path) -> None:
    """Write the documents of one shard that are kept, and the counts of the others."""
    begin, end = map(int, load_array(plan, "bounds", 0)[number : number + 2])
    kinds, starts = load_array(plan, "bounds", 0, "kinds"), first_documents(plan)
    counts = Tally()

    def documents() -> Iterator[Document]:
        for part in range(bisect_right(starts, begin) - 1, len(plan.tasks)):
            if starts[part] >= end:
                break
            first, last = max(begin, starts[part]), min(end, starts[part + 1])
            read = islice(read_part(plan.output(PARTS, part)), first - starts[part], last - starts[part])
            for place, document in enumerate(read, first):
                kind = KINDS[kinds[place]]
                counts.add(kind, example_of(document) if kind != "kept" else "", **size_of(document))
                if kind == "kept":
                    yield document

    write_documents(documents(), work, read_json(plan.output("bounds", 0) / LABELS))
    write_json(work / COUNTS, counts)


def joining_phases(plan: BuildPlan) -> list[Phase]:
    """Return the phases that join the parts of a build, in order."""
    phases = [Phase("starts", lambda plan: 1, _starts), Phase("copies", _ranges, _copies)]
    if plan.config.near_duplicates:
        phases += [
            Phase("pairs", _ranges, _pairs),
            Phase("wanted", lambda plan: 1, _wanted),
            Phase("shingles", _parts, _shingles),
            Phase("similar", _chunks, _similar),
            Phase("removed", lambda plan: 1, _removed),
        ]
    return [*phases, Phase("bounds", lambda plan: 1, _bounds), Phase("shard", shard_count, _shard)]


class PhaseRunner(TaskRunner):
    """Does tasks of a build's plan."""

    plan: BuildPlan

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__(plan, (Phase(PARTS, _parts, self._fill_part), *joining_phases(plan)))
        self._maker: PartMaker | None = None

    def close(self) -> None:
        """End the extracting process."""
        if self._maker is not None:
            self._maker.close()
            self._maker = None

    def _fill_part(self, plan: BuildPlan, number: int, work: Path) -> dict[str, Any]:
        self._maker = self._maker or PartMaker(plan.config, plan.steps)
        return self._maker.fill(plan.tasks[number], work, self.report)

    def described(self, phase: str, number: int) -> str:
        """Return what a task reads, for messages."""
        if phase != PARTS:
            return super().described(phase, number)
        return ", ".join(self.plan.tasks[number].files[:3])
