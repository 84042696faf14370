"""Build a corpus folder from sources: `headwater corpus build`.

A source is `python-docs`, a file, a folder, or another corpus. The build goes through this package in order:
`plan` divides the sources into tasks; `parts` reads their files, applies the steps, and writes; `runner` finds the
copies among all documents, except the first of each, and writes the rest in the order of the sources and their
documents. The result does not depend on the number of workers.

The corpus folder also has `funnel.json` (documents of each source, what each rule removed, with examples), and
`set-aside.jsonl` (pages and files without usable text, with the reason).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from headwater.corpus.building.parts import EMPTY, part_funnel
from headwater.corpus.building.plan import BUILT_IN, PARTS, BuildSource, open_source
from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.building.runner import KINDS, BuildRunner
from headwater.corpus.filters import Step
from headwater.corpus.folder import Funnel, Tally, merge, shard_name
from headwater.corpus.sources.pages import SUFFIXES as PAGE_SUFFIXES
from headwater.corpus.sources.text import SUFFIXES
from headwater.corpus.task_workers import Engine, parts_folder, remove_parts
from headwater.display import counted
from headwater.errors import DataError, UsageError, resumable
from headwater.reading import read_json
from headwater.storage import (
    INTERACTIVE,
    Progress,
    Stage,
    folder_lock,
    storage_errors,
    write_json,
    write_json_lines,
)

NAMED = 8  # kinds of skipped files in a note
DOCUMENTS = "documents"  # folder of the Parquet files: their readers reject a folder that also has JSON
FUNNEL = "funnel.json"
ASIDE = "set-aside.jsonl"
NOTES = 200  # in FUNNEL; `set-aside.jsonl` is complete


@resumable()
def build_corpus(
    sources: Sequence[str | Path],
    out: Path,
    config: BuildConfig | None = None,
    *,
    steps: Sequence[Step] | None = None,
    workers: int = 1,
    engine: Engine = "local",
    address: str = "",
    progress: Progress = INTERACTIVE,
) -> None:
    """Build the corpus folder `out` from `sources` unless it exists; resume a build that was killed.

    A source may be the URL of a file. `steps` are applied to each document in their order, by default those that
    `make_steps` returns for `config`. `engine` "ray" does the tasks on the cluster at `address` (empty: started
    here), which must share the disk. An existing corpus of `python-docs` is kept even if other packages are
    installed.
    Raises UsageError or DataError for a source that cannot be used or has no usable text.
    """
    config = config or BuildConfig()
    steps = make_steps(config) if steps is None else steps
    if workers > 1 and (own := [step.name for step in steps if type(step).__module__ == "__main__"]):
        raise UsageError(
            f"the step {own[0]} is defined in the script itself, which worker processes do not have",
            repair="Put it into a module that the script imports, or use one worker",
        )
    if not all(map(str, sources)) or not sources:  # an empty name would mean the current folder
        raise UsageError("no source is named", expected=f"{' or '.join(BUILT_IN)}, or files and folders")
    opened = [open_source(number, source, alone=len(sources) == 1) for number, source in enumerate(sources)]
    inputs = {f"source-{number}": source.input for number, source in enumerate(opened) if source.input is not None}
    described = {"sources": [source.name for source in opened], "steps": [step.described() for step in steps]}
    suffixes = (*SUFFIXES, *PAGE_SUFFIXES)
    stage = Stage(Path(out), kind="corpus", config=config.to_dict() | described, inputs=inputs, suffixes=suffixes)
    if not stage.is_complete(progress):
        for source in opened:
            if source.skipped:
                progress.note(_skipped(source))
        read, tasks = 0, tuple(task for source in opened for task in source.tasks)
        runner = BuildRunner(parts_folder(stage, *(source.path for source in opened)), config, tuple(steps), tasks)

        def on_done(phase: str, number: int) -> None:
            nonlocal read
            if phase == PARTS:
                read += part_funnel(runner.output(phase, number)).read["documents"]
                progress.advance(read)

        runner.report = lambda count: progress.advance(read + count)
        with storage_errors(stage.out):
            runner.folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(runner.folder):
                progress.start("corpus", unit="documents")
                runner.run_all(workers=workers, engine=engine, address=address, on_done=on_done)
                with stage.write() as work:
                    _join(runner, work, opened)
        funnel = read_funnel(stage.out)
        for note in funnel["notes"]:
            progress.note(note)
        whole, kept = funnel["read"]["documents"], funnel["kept"]
        progress.finish(f"kept {kept['documents']:,} of {whole:,} documents, {kept['bytes'] / 1e6:.1f} MB")
    remove_parts(stage.out)


def _skipped(source: BuildSource) -> str:
    """Return a sentence on the items of a source that are not read, by their endings; the funnel has the names."""
    endings = ((name, PurePath(name).suffix.lower()) for name in source.skipped)
    # Apache-2.0 has no suffix.
    kinds = Counter(end if end.strip(".0123456789") else name for name, end in endings).most_common()
    named = [f"{count:,} {kind}" if count > 1 else kind for kind, count in kinds[:NAMED]]
    more = ["…"] if len(kinds) > NAMED else []
    return f"{source.named}: skipped {counted(len(source.skipped), 'item')}: {', '.join(named + more)}"


def _join(runner: BuildRunner, work: Path, sources: Sequence[BuildSource]) -> None:
    """Write the corpus into the stage's folder `work`; raise DataError if it has no document."""
    total, reasons, aside = Funnel(), dict[int, str](), 0
    entries: list[dict[str, Any]] = [{"source": source.name, "documents": 0, "bytes": 0} for source in sources]
    for entry, source in zip(entries, sources, strict=True):
        if source.skipped:
            entry["left_out"] = source.skipped
    for part, task in zip(runner.parts, runner.tasks, strict=True):
        funnel = part_funnel(part)
        for reason in (*(page["reason"] for page in funnel.aside), *funnel.notes):
            if reason != EMPTY:
                reasons.setdefault(task.source, reason)
        merge(entries[task.source], funnel.read)
        aside += len(funnel.aside)
        funnel.aside = []  # ASIDE is written from the parts again: it may be long
        merge(vars(total), vars(funnel))
    try:
        empty = [number for number, entry in enumerate(entries) if not entry["documents"]]
        if len(empty) == len(sources):
            raise _no_text(sources[0], reasons.get(0, ""))
        notes = " ".join(total.notes)
        for number in empty:
            reason = reasons.get(number, "")
            if not reason or reason not in notes:  # else a note has named the file and the reason
                total.notes.append(f"{sources[number].named} gave no text" + (f": {reason}" if reason else ""))
        counts = _join_shards(runner, work, total)
    except DataError:  # with these sources and settings there is no corpus
        shutil.rmtree(runner.folder, ignore_errors=True)
        raise
    if aside:
        write_json_lines(work / ASIDE, chain.from_iterable(part_funnel(part).aside for part in runner.parts))
    if (more := len(total.notes) - NOTES) > 0:
        total.notes[NOTES:] = [f"{more:,} further notes; {ASIDE} names each page and file"]
    kinds = KINDS[1:] if runner.config.near_duplicates else KINDS[1:-1]
    contents = {
        **{"sources": entries, **vars(total)},
        "removed": {step: dict(sorted(rules.items())) for step, rules in total.removed.items()},
        "encodings": dict(sorted(total.encodings.items(), key=lambda entry: -entry[1])),
        "set_aside": aside,
        "duplicates": {kind: counts.total(kind, "documents") for kind in kinds},
        "examples": {kind: counts[kind]["examples"] if kind in counts else [] for kind in kinds},
        "clusters": runner.account("kinds")["clusters"],
        "kept": {name: counts.total("kept", name) for name in ("documents", "bytes")},
    }
    del contents["labels"], contents["aside"]  # in the columns, in ASIDE
    write_json(work / FUNNEL, contents)


def _no_text(source: BuildSource, reason: str) -> DataError:
    """Return the error for a source without text, if no source has any."""
    if not reason:
        return DataError(f"{source.named} is empty: it has no text", repair="Name a file or folder with text")
    return DataError(
        reason if source.named in reason else f"{source.named} gave no text: {reason}",
        repair="Name its encoding, as with: --encoding NAME" if "encoding" in reason else "Repair that file",
    )


def read_funnel(corpus: Path) -> dict[str, Any]:
    """Return the funnel of a corpus folder: what each source had and each rule removed.

    It is empty for a corpus that another program built. Keys: sources [{source, documents, bytes, …}], read,
    removed {step: {rule: {documents, bytes, examples}}}, duplicates {exact, near}, examples {exact, near},
    clusters {near, largest} (groups of near duplicates, size of the largest), encodings {encoding: pages and
    files}, left_out {what: {count, examples}} (rows, records and markup that no document has), composed (documents
    that had another Unicode form), replaced (documents with U+FFFD), set_aside, notes, kept {documents, bytes}.
    """
    path = corpus / FUNNEL
    return dict(read_json(path)) if path.is_file() else {}


def _join_shards(runner: BuildRunner, work: Path, funnel: Funnel) -> Tally:
    """Link the shards into the stage's folder `work`; return the counts of their documents, of copies too.

    The finished tasks keep their shards, so that a build that is killed now can be finished later. Raises
    DataError if no document is left.
    """
    (work / DOCUMENTS).mkdir()
    counts = Tally()
    for number in range(runner.shard_count()):
        merge(counts, runner.account("shard", number))
        shard, target = runner.output("shard", number) / shard_name(0), work / DOCUMENTS / shard_name(number)
        try:
            os.link(shard, target)
        except OSError:  # a file system without links
            shutil.copyfile(shard, target)
    if not counts.total("kept", "documents"):
        removed = [
            (removal["documents"], f"{step}: {rule}")
            for step, rules in funnel.removed.items()
            for rule, removal in rules.items()
        ]
        strictest = ", ".join(f"{count:,} by {rule}" for count, rule in sorted(removed, reverse=True)[:3])
        raise DataError(
            f"the recipe {runner.config.recipe!r} removed all of {funnel.read['documents']:,} documents",
            repair=f"Loosen it with --set; it removed {strictest or 'duplicates'}",
        )
    return counts
