"""The phases of a build, and how their tasks are done: here, in processes, or (`cluster`) on machines.

| phase | a task reads | and writes |
|---|---|---|
| parts | files | a part of the corpus (`parts`) |
| rows | the length of every part | the number of each part's first document |
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

import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.parts import (
    FINGERPRINTS,
    KEYS,
    SIZES,
    OnFunnel,
    PartMaker,
    is_intact,
    part_funnel,
    read_part,
    seal,
    task_output,
)
from headwater.corpus.building.plan import PARTS, BuildPlan
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
from headwater.corpus.folder import Document, shard_starts, write_documents
from headwater.corpus.steps import Funnel, Tally, example_of, size_of
from headwater.corpus.workers import WorkerPool
from headwater.errors import HeadwaterError, StorageError
from headwater.reading import read_json
from headwater.storage import save_array, write_json

COMPARED_PAIRS = 1 << 20  # by one task
KINDS = ("kept", "exact", "near")  # of documents: the last two are copies of earlier ones
LABELS, COUNTS = "labels.json", "counts.json"  # of all documents, of a shard


class Phase(NamedTuple):
    """Tasks of one kind, which need those of the phases before: their number, and what fills a task's folder."""

    name: str
    count: Callable[[BuildPlan], int]
    fill: Callable[[BuildPlan, int, Path], None]


def load_array(plan: BuildPlan, phase: str, number: int, name: str = "") -> npt.NDArray[Any]:
    """Return an array that a task wrote."""
    array: npt.NDArray[Any] = np.load(plan.output(phase, number) / f"{name or phase}.npy", mmap_mode="r")
    return array


def first_documents(plan: BuildPlan) -> list[int]:
    """Return the number of the first document of each part, counted through all parts, and of all documents."""
    return [int(row) for row in load_array(plan, "rows", 0)]


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


def _single(plan: BuildPlan) -> int:
    return 1


def _ranges(plan: BuildPlan) -> int:
    return len(key_ranges(first_documents(plan)[-1]))


def _chunks(plan: BuildPlan) -> int:
    return -(-len(load_array(plan, "wanted", 0, "pairs")) // COMPARED_PAIRS)


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
            whole = np.load(part / SIZES, mmap_mode="r", allow_pickle=False)[:, 0]
            yield np.where(kinds[first:last], 0, whole)

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


_DUPLICATES = (Phase("rows", _single, _rows), Phase("copies", _ranges, _copies))
_NEAR = (
    Phase("pairs", _ranges, _pairs),
    Phase("wanted", _single, _wanted),
    Phase("shingles", _parts, _shingles),
    Phase("similar", _chunks, _similar),
    Phase("removed", _single, _removed),
)
_SHARDS = (Phase("bounds", _single, _bounds), Phase("shard", shard_count, _shard))


def joining_phases(plan: BuildPlan) -> dict[str, Phase]:
    """Return the phases that join the parts of a build, in order, by name."""
    near = _NEAR if plan.config.near_duplicates else ()
    return {phase.name: phase for phase in (*_DUPLICATES, *near, *_SHARDS)}


class PhaseRunner:
    """Does tasks of a plan. Use as a context manager."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan, self._opened = plan, ExitStack()
        self._maker: PartMaker | None = None
        self._phases = joining_phases(plan)

    def __enter__(self) -> PhaseRunner:
        return self

    def __exit__(self, *unused: object) -> None:
        self._opened.close()

    def missing(self, phase: str) -> list[int]:
        """Return the numbers of the tasks of a phase that are not done; those of the phases before it must be."""
        count = len(self._plan.tasks) if phase == PARTS else self._phases[phase].count(self._plan)
        return [number for number in range(count) if not self._plan.output(phase, number).is_dir()]

    def run(self, phase: str, number: int, on_funnel: OnFunnel = lambda funnel: None) -> None:
        """Do one task unless it is done; call `on_funnel` with the funnel of a part now and then."""
        # Of the others, what a power cut damages is found by its hash, and takes minutes to make again.
        with task_output(self._plan.output(phase, number), flushed=phase == PARTS) as work:
            if work is None:
                return
            account = {}
            if phase == PARTS:
                self._maker = self._maker or self._opened.enter_context(PartMaker(self._plan))
                account = self._maker.fill(number, work, on_funnel)
            else:
                self._phases[phase].fill(self._plan, number, work)
            seal(work, account)


def remove_altered(plan: BuildPlan) -> int:
    """Remove the parts that are not as their tasks wrote them; return their number.

    If there are any, or if an output that joins them was altered, all such outputs are removed.
    """
    altered = [n for n, part in enumerate(plan.parts) if part.is_dir() and not is_intact(part, plan.tasks[n])]
    for number in altered:
        shutil.rmtree(plan.output(PARTS, number))
    joined = [output for name in joining_phases(plan) for output in plan.folder.glob(f"{name}-[0-9]*")]
    if altered or not all(map(is_intact, joined)):
        for output in joined:
            shutil.rmtree(output)
    return len(altered)


def start_workers(plan: BuildPlan, count: int) -> WorkerPool:
    """Return a pool of `count` processes that do the tasks of `plan`."""
    return WorkerPool(count, "headwater.corpus.building.phases:_task_handler", str(plan.folder))


def run_phase(plan: BuildPlan, phase: str, workers: WorkerPool, on_funnel: OnFunnel = lambda funnel: None) -> None:
    """Do all missing tasks of a phase; call `on_funnel` with the funnel of the parts that are done so far.

    Raises what a task raised after the other tasks are done, but a failure of storage at once.
    """
    total = Funnel()
    with PhaseRunner(plan) as runner:
        missing = runner.missing(phase)
        is_alone = workers.count == 1 or len(missing) <= 1
        for number in (
            _done_here(runner, phase, missing, total, on_funnel)
            if is_alone
            else _done(plan, phase, workers, missing)
        ):
            if phase == PARTS:
                total.add(part_funnel(plan.output(PARTS, number)))
                on_funnel(total)


def _done_here(
    runner: PhaseRunner, phase: str, missing: list[int], total: Funnel, on_funnel: OnFunnel
) -> Iterator[int]:
    failed: HeadwaterError | None = None
    for number in missing:
        try:
            runner.run(phase, number, lambda funnel: on_funnel(total.joined(funnel)))
        except StorageError:
            raise
        except HeadwaterError as error:
            failed = failed or error
        else:
            yield number
    if failed is not None:
        raise failed


def _done(plan: BuildPlan, phase: str, workers: WorkerPool, missing: list[int]) -> Iterator[int]:
    def named(request: tuple[str, int]) -> str:
        return ", ".join(plan.tasks[request[1]].files[:3]) if phase == PARTS else f"{phase} {request[1]}"

    return workers.replies([(phase, number) for number in missing], named)


def _task_handler(folder: str) -> Callable[[tuple[str, int]], int]:
    """Return what a worker process does with a request (phase, number of a task): it returns the number."""
    runner = PhaseRunner(BuildPlan.load(Path(folder)))

    def handle(request: tuple[str, int]) -> int:
        runner.run(*request)
        return request[1]

    return handle
