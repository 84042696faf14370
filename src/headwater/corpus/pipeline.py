"""From sources to a corpus folder: `headwater corpus build`.

A source is `python-docs` or a path. Documents stream through the steps of the recipe into Parquet; what
each source gave and what each step removed is counted in `funnel.json` in the corpus folder. The order of
documents is the order of the sources, and within each the source's own. GPT-2's paper cleans web pages
(section 2.1); text that somebody chose needs none of that, so the one recipe here, `plain`, only removes
exact duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.corpus import python_docs
from headwater.corpus.duplicates import ExactDuplicates
from headwater.corpus.folder import Document, write_documents
from headwater.corpus.text import other_files, read_text_source, source_files
from headwater.errors import DataError, UsageError
from headwater.progress import SILENT, Progress
from headwater.provenance import MANIFEST, Stage
from headwater.storage import read_json, write_json

BUILT_IN = (python_docs.SOURCE,)
FUNNEL = "funnel.json"
PACKAGES = "packages.json"


@dataclass
class _Tally:
    documents: int = 0
    bytes: int = 0

    def count(self, documents: Iterator[Document], progress: Progress = SILENT) -> Iterator[Document]:
        for document in documents:
            self.documents += 1
            self.bytes += len(document.text.encode("utf-8"))
            if self.documents % 100 == 0:
                progress.advance(self.documents)
            yield document


def build(sources: Sequence[str | Path], out: Path, *, progress: Progress = SILENT) -> None:
    """Gather `sources` into the corpus folder `out`, or find it there.

    A corpus of `python-docs` that is there already is kept even where other packages are installed by now,
    with a note: what was built on it stays valid. Raises DataError for a source that holds nothing usable.
    """
    if not sources:
        raise UsageError("no source is named", expected=f"{' or '.join(BUILT_IN)}, or files and folders")
    paths = {f"source-{index}": Path(s) for index, s in enumerate(sources) if str(s) not in BUILT_IN}
    for path in paths.values():
        _check(path)
    names = [str(s) if str(s) in BUILT_IN else Path(s).name for s in sources]
    stage = Stage(out, kind="corpus", config={"recipe": "plain", "sources": names}, inputs=paths)
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        if len(paths) < len(sources):
            _note_other_packages(out, progress)
        return
    with stage.write() as work:
        _fill(work, sources, progress)


def read_funnel(corpus: Path) -> dict[str, Any]:
    """What each source gave and each step removed: sources, duplicates {exact}, kept {documents, bytes}."""
    funnel: dict[str, Any] = read_json(corpus / FUNNEL)
    return funnel


def _fill(work: Path, sources: Sequence[str | Path], progress: Progress) -> None:
    given: list[dict[str, Any]] = []
    duplicates = ExactDuplicates()

    def documents() -> Iterator[Document]:
        for source in sources:
            tally = _Tally()
            details: dict[str, Any] = {}
            yield from tally.count(_read(source, details, work, progress))
            given.append({"source": Path(source).name, **vars(tally), **details})

    kept = _Tally()
    progress.start("corpus", unit="documents")
    written = write_documents(kept.count(duplicates(documents()), progress), work)
    if not written:
        raise DataError("no source holds any text", repair="Name a file or folder with text")
    funnel = {"sources": given, "duplicates": {"exact": duplicates.removed}, "kept": vars(kept)}
    write_json(work / FUNNEL, funnel)
    progress.finish(f"{kept.documents:,} documents, {kept.bytes / 1e6:.1f} MB")


def _read(source: str | Path, details: dict[str, Any], work: Path, progress: Progress) -> Iterator[Document]:
    if str(source) not in BUILT_IN:
        path = Path(source)
        details["left_out"] = other_files(path)
        if details["left_out"]:
            progress.note(f"{path}: {len(details['left_out'])} files of other kinds are left out")
        yield from read_text_source(path)
        return
    roots = python_docs.Roots.of_interpreter()
    findings = python_docs.Findings()
    yield from python_docs.read_python_docs(roots, findings)
    details |= vars(findings)
    write_json(work / PACKAGES, python_docs.installed_packages(roots))
    if findings.unreadable:
        progress.note(f"{len(findings.unreadable)} source files could not be parsed and are left out")


def _check(path: Path) -> None:
    """Fail before anything is hashed or written where a source cannot be one."""
    if not path.exists() and path.name == str(path):
        raise DataError(
            f"{path} is neither a file, a folder, nor a built-in source",
            expected=f"{' or '.join(BUILT_IN)}, or a path",
            repair="Check the spelling",
        )
    if not (path / MANIFEST).is_file():
        source_files(path)


def _note_other_packages(out: Path, progress: Progress) -> None:
    listing = out / PACKAGES
    if listing.is_file():
        now = python_docs.installed_packages(python_docs.Roots.of_interpreter())
        if read_json(listing) != now:
            progress.note(
                f"the packages installed have changed since {out} was gathered; it is kept as it is "
                "(remove it, or choose another --out, to gather anew)"
            )
