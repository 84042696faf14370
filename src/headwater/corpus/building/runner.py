"""The tasks of a build, in phases. Each writes a folder of its own, so that a build resumes where it was.

| phase | a task reads | and writes |
|---|---|---|
| parts | files | a part of the corpus (`parts`) |
| pairs | all fingerprints and band keys | which documents equal an earlier one, and pairs that may be similar |
| shingles | a part | the shingles of its documents in these pairs |
| kinds | all shingles | what each document is (KINDS), and the documents of each shard |
| shard | the parts that have these | a file of the corpus |
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.parts import FINGERPRINTS, KEYS, SIZES, PartMaker, part_funnel, read_part
from headwater.corpus.building.plan import PARTS, BuildTask
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.dedup.keys import FINGERPRINT_ROW, exact_copies, first_rows
from headwater.corpus.dedup.near import ShingleFiles, candidate_pairs, choose_removed, split_pairs, write_shingles
from headwater.corpus.filters import Step
from headwater.corpus.folder import Document, Tally, example_of, shard_starts, size_of, write_documents
from headwater.corpus.task_workers import TaskRunner
from headwater.storage import save_array

KINDS = ("kept", "exact", "near")  # of documents: the last two are copies of earlier ones


@dataclass(eq=False)
class BuildRunner(TaskRunner):
    """Does the tasks of a build with a configuration and its steps; `tasks` make the parts."""

    config: BuildConfig
    steps: Sequence[Step]
    tasks: Sequence[BuildTask]

    def phases(self) -> Iterator[tuple[str, int]]:
        """Yield each phase and the number of its tasks."""
        yield PARTS, len(self.tasks)
        yield "pairs", 1
        if self.config.near_duplicates:
            yield "shingles", len(self.tasks)
        yield "kinds", 1
        yield "shard", self.shard_count()

    def close(self) -> None:
        """End the extracting process."""
        self._maker.extractor.close()

    @property
    def parts(self) -> list[Path]:
        """The folders of all parts."""
        return [self.output(PARTS, number) for number in range(len(self.tasks))]

    def shard_count(self) -> int:
        """Return the number of shards of the corpus."""
        return len(self._load("kinds", "bounds")) - 1

    def input_of(self, phase: str, number: int) -> str:
        """Return a task's input, for messages."""
        return ", ".join(self.tasks[number].files[:3]) if phase == PARTS else super().input_of(phase, number)

    @cached_property
    def _maker(self) -> PartMaker:
        return PartMaker(self.config, self.steps)

    def _load(self, phase: str, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.load(self.output(phase, 0) / f"{name}.npy", mmap_mode="r")
        return array

    def make_parts(self, number: int, work: Path) -> dict[str, Any]:
        """Write a part of the corpus; return its funnel."""
        return self._maker.fill(self.tasks[number], work, self.report)

    def make_pairs(self, number: int, work: Path) -> None:
        """Compare the fingerprints and band keys of all documents; `starts` has each part's first document."""
        fingerprints = [part / FINGERPRINTS for part in self.parts]
        save_array(work / "starts.npy", first_rows(fingerprints, FINGERPRINT_ROW))
        copies = exact_copies(fingerprints)
        save_array(work / "copies.npy", copies)
        if self.config.near_duplicates:
            pairs = candidate_pairs([part / KEYS for part in self.parts], copies)
            save_array(work / "pairs.npy", pairs)
            save_array(work / "wanted.npy", np.union1d(*split_pairs(pairs)))

    def make_shingles(self, number: int, work: Path) -> None:
        """Write the shingles of a part's wanted documents."""
        first, last = self._load("pairs", "starts")[number : number + 2].astype(np.uint64)
        wanted = self._load("pairs", "wanted")
        rows = wanted[slice(*np.searchsorted(wanted, (first, last)))] - first

        def texts() -> Iterator[str]:
            documents, read = read_part(self.output(PARTS, number)), 0
            for row in rows.tolist():
                yield next(islice(documents, row - read, None)).text
                read = row + 1

        write_shingles(texts(), work)

    def make_kinds(self, number: int, work: Path) -> dict[str, Any]:
        """Decide which documents to remove; return all documents' labels and the clusters of near duplicates."""
        kinds, clusters = self._load("pairs", "copies").astype(np.uint8), {}
        if self.config.near_duplicates:
            sets = ShingleFiles([self.output("shingles", part) for part in range(len(self.tasks))])
            pairs, wanted = self._load("pairs", "pairs"), self._load("pairs", "wanted")
            removed, originals = choose_removed(pairs, wanted, sets, self.config.similarity)
            kinds[removed] = KINDS.index("near")
            sizes = np.unique(originals, return_counts=True)[1]
            clusters = {"near": len(sizes), "largest": int(sizes.max()) + 1 if len(sizes) else 0}
        save_array(work / "kinds.npy", kinds)
        sizes = np.concatenate([np.fromfile(part / SIZES, "<i8") for part in self.parts])
        sizes[kinds > 0] = 0
        save_array(work / "bounds.npy", np.array([*shard_starts(sizes), len(kinds)]))
        labels = dict.fromkeys(label for part in self.parts for label in part_funnel(part).labels)
        return {"labels": [*labels], "clusters": clusters}

    def make_shard(self, number: int, work: Path) -> Tally:
        """Write the documents of one shard that are kept; return the counts of each of KINDS in it."""
        begin, end = map(int, self._load("kinds", "bounds")[number : number + 2])
        kinds, starts = self._load("kinds", "kinds"), self._load("pairs", "starts").tolist()
        counts = Tally()

        def documents() -> Iterator[Document]:
            for part in range(bisect_right(starts, begin) - 1, bisect_left(starts, end)):
                first, last = max(begin, starts[part]), min(end, starts[part + 1])
                read = islice(read_part(self.output(PARTS, part)), first - starts[part], last - starts[part])
                for document, kind in zip(read, map(KINDS.__getitem__, kinds[first:last]), strict=True):
                    counts.add(kind, example_of(document) if kind != "kept" else "", **size_of(document))
                    if kind == "kept":
                        yield document

        write_documents(documents(), work, self.account("kinds")["labels"])
        return counts
