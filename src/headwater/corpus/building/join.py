"""Join the parts of a build: remove duplicates among all documents, write the corpus and its funnel.

Each shard of the corpus is a task, too: `bounds` divides the documents, `shard` writes those that are kept.

The corpus folder also has `funnel.json` (documents of each source, what each rule removed, with examples),
`set-aside.jsonl` (pages and files without usable text, with the reason) and, for python-docs, `packages.json`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.documents import EMPTY
from headwater.corpus.building.duplicates import (
    Phase,
    exact_copies,
    first_documents,
    load,
    near_copies,
)
from headwater.corpus.building.parts import SIZES, part_funnel, read_part
from headwater.corpus.building.plan import BuildPlan, BuildSource
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.folder import Document, shard_name, shard_starts, write_documents
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.text import TEXT_SUFFIXES
from headwater.corpus.steps import Funnel, Removal
from headwater.display import counted
from headwater.errors import DataError
from headwater.reading import file_at, read_json, unpacked_suffix
from headwater.storage import save_array, write_json, write_json_lines

DOCUMENTS = "documents"  # folder of the Parquet files: their readers reject a folder that also has JSON
FUNNEL = "funnel.json"
PACKAGES = "packages.json"
ASIDE = "set-aside.jsonl"
KINDS = ("kept", "exact", "near")  # of documents: the last two are copies of earlier ones
LABELS, COUNTS = "labels.json", "counts.json"  # of all documents, of a shard
NOTES, NAMES = 200, 1000  # notes and names of skipped files in FUNNEL; `set-aside.jsonl` is complete


def read_funnel(corpus: str | Path) -> dict[str, Any]:
    """Return the funnel of a corpus folder or URL: what each source had and each rule removed.

    It is empty for a corpus that another program built. Keys: sources [{source, documents, bytes, …}], read,
    removed {step: {rule: {documents, bytes, examples}}}, duplicates {exact, near}, examples {exact, near},
    clusters {near, largest} (groups of near duplicates, size of the largest), encodings {encoding: pages},
    left_out {what: {count, examples}} (rows, records and markup that no document has), composed (documents that
    had another Unicode form), replaced (documents with U+FFFD), set_aside, notes, kept {documents, bytes}.
    """
    path = file_at(corpus, FUNNEL)
    return dict(read_json(path)) if path.is_file() else {}


def join_parts(plan: BuildPlan, work: Path, findings: Findings) -> dict[str, int]:
    """Move the shards into the stage's folder `work`, and write its funnel; return the size of what was kept.

    Raises DataError if no document is left.
    """
    (work / DOCUMENTS).mkdir()
    counts = {kind: Removal() for kind in KINDS}
    for number in range(_shards(plan)):
        shard = plan.output("shard", number)
        for kind, counted_ in read_json(shard / COUNTS).items():
            counts[kind].add(Removal(**counted_))
        (shard / shard_name(0)).rename(work / DOCUMENTS / shard_name(number))
    if not counts["kept"].documents:
        strictest = ", ".join(f"{count:,} by {rule}" for rule, count in findings.funnel.strictest())
        raise DataError(
            f"the recipe {plan.config.recipe!r} removed all of {findings.funnel.read.documents:,} documents",
            repair=f"Loosen it with --set; it removed {strictest or 'duplicates'}",
        )
    write_json(work / FUNNEL, findings.described() | _described_duplicates(plan, counts))
    findings.write_aside(work)
    return counts["kept"].size


def _described_duplicates(plan: BuildPlan, counts: dict[str, Removal]) -> dict[str, Any]:
    """Return what FUNNEL says of duplicates and of what was kept."""
    kinds, clusters = ["exact"], {}
    if plan.config.near_duplicates:
        kinds.append("near")
        sizes = np.unique(near_copies(plan)[1], return_counts=True)[1]
        clusters = {"near": len(sizes), "largest": int(sizes.max()) + 1 if len(sizes) else 0}
    return {
        "duplicates": {kind: counts[kind].documents for kind in kinds},
        "examples": {kind: counts[kind].examples for kind in kinds},
        "clusters": clusters,
        "kept": counts["kept"].size,
    }


class Findings:
    """The funnels of all parts in one, and what each source had."""

    def __init__(self, plan: BuildPlan, sources: Sequence[BuildSource]) -> None:
        self._plan, self._sources = plan, sources
        self.funnel, self.aside = Funnel(), 0
        self._of_source = [_described(source) for source in sources]
        self._unusable: dict[int, dict[str, str]] = {}  # the first page or note of each source
        for part, task in zip(plan.parts, plan.tasks, strict=True):
            self._add(part_funnel(part), task.source)

    def _add(self, funnel: Funnel, source: int) -> None:
        notes = ({"page": "", "reason": note} for note in funnel.notes)
        for page in (*funnel.aside, *notes):
            if page["reason"] != EMPTY:
                self._unusable.setdefault(source, page)
        entry = self._of_source[source]
        entry["documents"] += funnel.read.documents
        entry["bytes"] += funnel.read.bytes
        self.aside += len(funnel.aside)
        funnel.aside = []  # ASIDE is written from the parts again: it may be long
        self.funnel.add(funnel)

    def refuse_empty(self, config: BuildConfig) -> None:
        """Raise DataError if no source gave text; note those that gave none if others did."""
        some = any(entry["documents"] for entry in self._of_source)
        named = " ".join(self.funnel.notes)
        for number, entry in enumerate(self._of_source):
            if entry["documents"]:
                continue
            given, first = self._sources[number].given, self._unusable.get(number)
            reason = first["reason"] if first else ""
            if some:
                if not reason or reason not in named:  # else a note has named the file and the reason
                    self.funnel.notes.append(f"{given} gave no text" + (f": {reason}" if reason else ""))
            elif first:
                seen = reason if str(given) in reason else f"{given} gave no text: {reason}"
                raise DataError(seen, repair=_repair(first, config))
            else:
                raise DataError(f"{given} is empty: it has no text", repair="Name a file or folder with text")

    def write_aside(self, work: Path) -> None:
        """Write the list of what was set aside, and that of the installed packages, if there is one."""
        if self.aside:
            pages = chain.from_iterable(part_funnel(part).aside for part in self._plan.parts)
            write_json_lines(work / ASIDE, pages)
        if any(source.input is None for source in self._sources):
            packages = python_docs.installed_packages(python_docs.Roots.of_interpreter())
            write_json(work / PACKAGES, packages)

    def described(self) -> dict[str, Any]:
        """Return what FUNNEL says of the tasks."""
        funnel = self.funnel.to_dict()
        for key in ("labels", "aside"):  # in the columns, in ASIDE
            del funnel[key]
        if (more := len(notes := funnel["notes"]) - NOTES) > 0:
            funnel["notes"] = [*notes[:NOTES], f"{more:,} further notes; {ASIDE} names each page and file"]
        encodings = dict(self.funnel.encodings.most_common())
        return {"sources": self._of_source, **funnel, "encodings": encodings, "set_aside": self.aside}


def _described(source: BuildSource) -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source.name, "documents": 0, "bytes": 0}
    if names := source.skipped[:NAMES]:
        more = len(source.skipped) - len(names)
        entry["left_out"] = [*names, f"… and {counted(more, 'further item')}"] if more else names
    return entry


def _repair(unusable: dict[str, str], config: BuildConfig) -> str:
    """Return what a user can do if this page, file or note is why a source has no text."""
    name = unusable.get("source", "").lower()
    if "UTF-8" in unusable["reason"]:
        detect = ", or detect it: --set any_encoding=true"
        possible = unpacked_suffix(Path(name)) in TEXT_SUFFIXES and not config.any_encoding
        return f"Name its encoding: headwater corpus build --encoding NAME{detect if possible else ''}"
    return "Repair that file, or name others"


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


def _shards(plan: BuildPlan) -> int:
    return len(load(plan, "bounds", 0)) - 1


def _shard(plan: BuildPlan, number: int, work: Path) -> None:
    """Write the documents of one shard that are kept, and the counts of the others."""
    begin, end = map(int, load(plan, "bounds", 0)[number : number + 2])
    kinds, starts = load(plan, "bounds", 0, "kinds"), first_documents(plan)
    counts = {kind: Removal() for kind in KINDS}

    def documents() -> Iterator[Document]:
        for part in range(bisect_right(starts, begin) - 1, len(plan.tasks)):
            if starts[part] >= end:
                break
            first, last = max(begin, starts[part]), min(end, starts[part + 1])
            read = islice(read_part(plan.part(part)), first - starts[part], last - starts[part])
            for place, document in enumerate(read, first):
                kind = KINDS[kinds[place]]
                counts[kind].count(document, example=kind != "kept")
                if kind == "kept":
                    yield document

    write_documents(documents(), work, read_json(plan.output("bounds", 0) / LABELS))
    write_json(work / COUNTS, {kind: vars(removal) for kind, removal in counts.items()})


SHARDS = (Phase("bounds", lambda plan: 1, _bounds), Phase("shard", _shards, _shard))
