"""Join the parts of a build: remove duplicates among all documents, write the corpus and its funnel.

The corpus folder also has `funnel.json` (documents of each source, what each rule removed, with examples),
`set-aside.jsonl` (pages and files without usable text, with the reason) and, for python-docs, `packages.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.corpus.building.documents import EMPTY
from headwater.corpus.building.parts import (
    FINGERPRINTS,
    KEYS,
    SHINGLES,
    WANTED,
    part_funnel,
    read_part,
    write_wanted,
)
from headwater.corpus.building.plan import BuildPlan, BuildSource
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.dedup.keys import find_copies, row_counts
from headwater.corpus.dedup.near import ShingleFiles, find_duplicates
from headwater.corpus.folder import Document, write_documents
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.text import TEXT_SUFFIXES
from headwater.corpus.steps import Funnel, Removal
from headwater.corpus.workers import WorkerPool
from headwater.display import counted
from headwater.errors import DataError
from headwater.reading import file_at, read_json, unpacked_suffix
from headwater.storage import save_array, write_json, write_json_lines

DOCUMENTS = "documents"  # folder of the Parquet files: their readers reject a folder that also has JSON
FUNNEL = "funnel.json"
PACKAGES = "packages.json"
ASIDE = "set-aside.jsonl"
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


def join_parts(plan: BuildPlan, work: Path, sources: Sequence[BuildSource], workers: WorkerPool) -> dict[str, int]:
    """Write the corpus without duplicates into the stage's folder `work`; return the size of what was kept.

    Raises DataError if no document is left.
    """
    found = _Findings(plan, sources)
    found.refuse_empty(plan.config)
    duplicates = _Duplicates(plan, workers)
    (work / DOCUMENTS).mkdir()
    documents = chain.from_iterable(map(read_part, plan.parts))
    write_documents(duplicates.remove(documents), work / DOCUMENTS, list(found.funnel.labels))
    if not duplicates.kept.documents:
        strictest = ", ".join(f"{count:,} by {rule}" for rule, count in found.funnel.strictest())
        raise DataError(
            f"the recipe {plan.config.recipe!r} removed all of {found.funnel.read.documents:,} documents",
            repair=f"Loosen it with --set; it removed {strictest or 'duplicates'}",
        )
    write_json(work / FUNNEL, found.described() | duplicates.described())
    if found.aside:
        pages = chain.from_iterable(part_funnel(part).aside for part in plan.parts)
        write_json_lines(work / ASIDE, pages)
    if any(source.input is None for source in sources):
        packages = python_docs.installed_packages(python_docs.Roots.of_interpreter())
        write_json(work / PACKAGES, packages)
    return duplicates.kept.size


class _Findings:
    """The funnels of all parts in one, and what each source had."""

    def __init__(self, plan: BuildPlan, sources: Sequence[BuildSource]) -> None:
        self._sources = sources
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


class _Duplicates:
    """Finds the documents of all parts that equal, or nearly equal, an earlier one."""

    def __init__(self, plan: BuildPlan, workers: WorkerPool) -> None:
        self._exact = find_copies([part / FINGERPRINTS for part in plan.parts])
        self._near = np.zeros(len(self._exact), bool)
        self.kept, self._removed = Removal(), {"exact": Removal()}
        self._clusters: dict[str, int] = {}
        if plan.config.near_duplicates:
            near, originals = find_duplicates(
                [part / KEYS for part in plan.parts],
                lambda wanted: _shingles(plan, wanted, workers),
                plan.config.similarity,
                self._exact,
            )
            self._near[near] = True
            self._removed["near"] = Removal()
            sizes = np.unique(originals, return_counts=True)[1]
            self._clusters = {"near": len(sizes), "largest": int(sizes.max()) + 1 if len(sizes) else 0}

    def remove(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Stream the documents that are kept; count them in `kept`, the others as removed."""
        for number, document in enumerate(documents):
            kind = "exact" if self._exact[number] else "near" if self._near[number] else ""
            if kind:
                self._removed[kind].count(document, example=True)
            else:
                self.kept.count(document)
                yield document

    def described(self) -> dict[str, Any]:
        """Return what FUNNEL says of duplicates and of what was kept."""
        return {
            "duplicates": {kind: removal.documents for kind, removal in self._removed.items()},
            "examples": {kind: removal.examples for kind, removal in self._removed.items()},
            "clusters": self._clusters,
            "kept": self.kept.size,
        }


def _shingles(plan: BuildPlan, wanted: npt.NDArray[np.int64], workers: WorkerPool) -> ShingleFiles:
    """Return the shingles of these documents, computed in the folders of their parts."""
    parts = plan.parts
    starts = np.cumsum([0, *row_counts([part / KEYS for part in parts])])
    places = np.searchsorted(wanted, starts)
    having = [number for number in range(len(parts)) if places[number] < places[number + 1]]
    for number in having:
        own = wanted[places[number] : places[number + 1]] - starts[number]
        save_array(parts[number] / WANTED, own)
    write_wanted(plan, having, workers)
    return ShingleFiles([parts[number] / SHINGLES for number in having])
