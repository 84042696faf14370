"""Build a corpus folder from sources: `headwater corpus build`.

A source is `python-docs`, a file, a folder, or another corpus. Tasks read it and apply the steps of the recipe
(`tasks`, `recipes`, `parts`). Then duplicates among all documents are removed, except the first of each, and the
rest is written as one corpus in the order of the sources and their documents. The result does not depend on the
number of workers.

The corpus folder also has `funnel.json` (documents of each source, what each rule removed, with examples),
`set-aside.jsonl` (pages and files without usable text, with the reason) and, for python-docs, `packages.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.corpus.arrays import row_counts
from headwater.corpus.building.parts import (
    ACCOUNT,
    FINGERPRINTS,
    KEYS,
    PLAN,
    SHINGLES,
    WANTED,
    BuildPlan,
    read_part,
    run_tasks,
    start_workers,
    write_wanted,
)
from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.building.sealed import read_sealed
from headwater.corpus.building.tasks import BUILT_IN, EMPTY, BuildSource, open_source
from headwater.corpus.dedup.exact import find_copies
from headwater.corpus.dedup.near import ShingleFiles, find_duplicates
from headwater.corpus.filters.steps import Funnel, Removal
from headwater.corpus.folder import Document, write_documents
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.pages import HTML_SUFFIXES
from headwater.corpus.sources.text import TEXT_SUFFIXES
from headwater.corpus.workers import WorkerPool
from headwater.errors import (
    DataError,
    FolderError,
    HeadwaterError,
    ResourceError,
    StorageError,
    UsageError,
    counted,
    resumable,
)
from headwater.reading import file_at, read_json, unpacked_suffix
from headwater.storage import (
    SILENT,
    Destination,
    Input,
    Progress,
    Stage,
    folder_lock,
    save_array,
    storage_errors,
    write_json,
    write_json_lines,
)

BuildEngine = Literal["local", "ray"]

DOCUMENTS = "documents"  # folder of the Parquet files: their readers reject a folder that also has JSON
FUNNEL = "funnel.json"
PACKAGES = "packages.json"
ASIDE = "set-aside.jsonl"
NAMED = 8  # skipped files in a note; FUNNEL lists all


@resumable()
def build_corpus(
    sources: Sequence[str | Path],
    out: str | Path,
    config: BuildConfig | None = None,
    *,
    workers: int = 1,
    engine: BuildEngine = "local",
    address: str = "",
    progress: Progress = SILENT,
) -> None:
    """Build the corpus folder `out` from `sources` unless it exists; resume a build that was killed.

    Sources and `out` may be URLs. `engine` "ray" does the tasks on the cluster at `address` (empty: started here),
    which must share the disk. An existing corpus of `python-docs` is kept, with a note, even if other packages are
    installed now: what was made from it stays valid. Raises DataError for a source without usable text.
    """
    config = config or BuildConfig()
    destination = Destination(out)
    stage, opened = _stage(sources, destination, config)
    if destination.is_complete(stage, progress):
        shutil.rmtree(_parts_folder(stage, opened), ignore_errors=True)  # of a build killed after its last step
        if any(source.given in BUILT_IN for source in opened):
            _note_other_packages(out, progress)
        return
    for source in opened:
        if others := source.others:
            names = ", ".join(others[:NAMED]) + (", …" if len(others) > NAMED else "")
            progress.note(f"{source.given}: skipped {counted(len(others), 'item')} of other kinds: {names}")
    with _new_parents(stage.out):
        plan = _plan(opened, stage, config)
        with folder_lock(plan.folder):
            if damaged := plan.drop_damaged():
                progress.note(f"{len(damaged)} parts of an earlier attempt were altered and are built again")
            kept = _carry_out(plan, stage, opened, workers, engine, address, progress)
    for note in read_funnel(stage.out)["notes"]:
        progress.note(note)
    progress.finish(f"{counted(kept['documents'], 'document')}, {kept['bytes'] / 1e6:.1f} MB")
    destination.publish(progress)


def _carry_out(
    plan: BuildPlan,
    stage: Stage,
    sources: Sequence[BuildSource],
    workers: int,
    engine: BuildEngine,
    address: str,
    progress: Progress,
) -> dict[str, int]:
    """Do the tasks and write the corpus; return the size of what was kept."""
    progress.start("corpus", unit="documents")
    try:
        count = workers if engine == "local" else min(workers, os.cpu_count() or 1)
        with storage_errors(stage.out), start_workers(plan, count) as here:
            if engine == "ray":
                from headwater.corpus.building.cluster import run_on_ray

                run_on_ray(plan, workers, address)
            else:
                run_tasks(plan, here, lambda f: progress.advance(f.kept.documents, **f.figures()))
            with stage.write() as work:
                kept = _assemble(plan, work, sources, here)
    except (ResourceError, StorageError):
        plan.remove_if_unused()
        raise
    except HeadwaterError:
        shutil.rmtree(plan.folder, ignore_errors=True)
        raise
    shutil.rmtree(plan.folder, ignore_errors=True)
    return kept


def prepare_slurm(
    sources: Sequence[str | Path], out: Path, config: BuildConfig, workers: int, finish: list[str]
) -> Path:
    """Plan a build and write its job scripts next to `out`; return the script that submits them.

    `finish` is the command that joins the parts: the build itself.
    """
    from headwater.corpus.building.cluster import write_slurm_jobs

    stage, opened = _stage(sources, Destination(out), config)
    stage.find()
    scripts = out.with_name(f"{out.name}.slurm")
    new = not scripts.exists()
    with storage_errors(out), _new_parents(out):
        plan = _plan(opened, stage, config)
        try:
            return write_slurm_jobs(plan, scripts, workers, finish)
        except BaseException:
            plan.remove_if_unused()
            if new:
                shutil.rmtree(scripts, ignore_errors=True)
            raise


def _stage(
    sources: Sequence[str | Path], destination: Destination, config: BuildConfig
) -> tuple[Stage, list[BuildSource]]:
    """Return the stage of a build and its sources; raises UsageError or DataError for unusable ones."""
    if not all(map(str, sources)) or not sources:  # an empty name would mean the current folder
        raise UsageError("no source is named", expected=f"{' or '.join(BUILT_IN)}, or files and folders")
    opened = [open_source(number, source) for number, source in enumerate(sources)]
    inputs: dict[str, str | Path | Input] = {
        f"source-{number}": source.input for number, source in enumerate(opened) if source.input is not None
    }
    sets = {f"evaluation-set-{index}": Path(name) for index, name in enumerate(config.evaluation_sets)}
    names = {"evaluation_sets": [path.name for path in sets.values()], "sources": [s.name for s in opened]}
    stage = Stage(
        destination.folder,
        kind="corpus",
        config=config.to_dict() | names,
        inputs=inputs | sets,
        moves=bool(destination.url),
        defaults=BuildConfig.defaults(),
    )
    return stage, opened


def _plan(sources: Sequence[BuildSource], stage: Stage, config: BuildConfig) -> BuildPlan:
    """Save the plan of a build and return it; a build that was started before keeps its saved tasks."""
    # Absolute, since workers may run in other folders. The name of `folder` depends on the contents of the sets,
    # not on their paths: a set may have moved since the build began.
    places = [str(Path(name).absolute()) for name in config.evaluation_sets]
    config = config.model_copy(update={"evaluation_sets": tuple(places)})
    make_steps(config)  # raises errors of the configuration before any work
    folder = _parts_folder(stage, sources)
    tasks = tuple(task for source in sources for task in source.tasks)
    if (folder / PLAN).is_file():
        try:
            tasks = BuildPlan.load(folder).tasks
        except FolderError:
            shutil.rmtree(folder)
    plan = BuildPlan(folder, config, tasks)
    with storage_errors(stage.out):
        plan.folder.mkdir(parents=True, exist_ok=True)
        plan.save()
    return plan


def read_funnel(corpus: str | Path) -> dict[str, Any]:
    """Return the funnel of a corpus folder or URL: what each source had and each rule removed.

    It is empty for a corpus that another program built. Keys: sources [{source, documents, bytes, …}], read,
    removed {step: {rule: {documents, bytes, examples}}}, duplicates {exact, near}, examples {exact, near},
    clusters {near, largest} (groups of near duplicates, size of the largest), encodings {encoding: pages},
    composed (documents that had another Unicode form), replaced (documents with U+FFFD), set_aside, notes, kept
    {documents, bytes}.
    """
    path = file_at(corpus, FUNNEL)
    return dict(read_json(path)) if path.is_file() else {}


def _assemble(plan: BuildPlan, work: Path, sources: Sequence[BuildSource], workers: WorkerPool) -> dict[str, int]:
    """Join the parts without duplicates in the stage's folder `work`; return the size of what was kept."""
    funnel, aside, encodings, counts = Funnel(), 0, Counter[str](), Counter[str](composed=0, replaced=0)
    given: list[dict[str, Any]] = [
        {"source": source.name, "documents": 0, "bytes": 0}
        | ({"left_out": source.others} if source.others else {})
        for source in sources
    ]
    unusable: dict[int, dict[str, str]] = {}  # the first page or note of each source
    for number, task in enumerate(plan.tasks):
        account = read_sealed(plan.part(number) / ACCOUNT)
        part = Funnel.from_dict(account["funnel"])
        funnel.add(part)
        aside += len(account["aside"])
        encodings.update(account.get("encodings", {}))  # a part of an older version has none
        counts.update({key: account.get(key, 0) for key in counts})
        notes = ({"page": "", "reason": note} for note in part.notes)
        for page in (*account["aside"], *notes):
            if page["reason"] != EMPTY:
                unusable.setdefault(task.source, page)
        entry = given[task.source]
        entry["documents"] += part.read.documents
        entry["bytes"] += part.read.bytes
        entry.update(account["details"])
    for number, (source, entry) in enumerate(zip(sources, given, strict=True)):
        if not entry["documents"] and number in unusable:
            first = unusable[number]
            raise DataError(f"{source.given} gave no text: {first['reason']}", repair=_repair(first, plan.config))
        if not entry["documents"]:
            raise DataError(f"{source.given} is empty: it has no text", repair="Name a file or folder with text")
    duplicates = _Duplicates(plan, workers)
    (work / DOCUMENTS).mkdir()
    write_documents(duplicates.remove(chain.from_iterable(map(read_part, plan.parts))), work / DOCUMENTS)
    if not duplicates.kept.documents:
        strictest = ", ".join(f"{count:,} by {rule}" for rule, count in funnel.strictest())
        raise DataError(
            f"the recipe {plan.config.recipe!r} removed all of {funnel.read.documents:,} documents",
            repair=f"Loosen it with --set; it removed {strictest or 'duplicates'}",
        )
    write_json(
        work / FUNNEL,
        {
            "sources": given,
            **funnel.to_dict(),
            "duplicates": {kind: removal.documents for kind, removal in duplicates.removed.items()},
            "examples": {kind: removal.examples for kind, removal in duplicates.removed.items()},
            "clusters": duplicates.clusters,
            "encodings": dict(encodings.most_common()),
            **counts,
            "set_aside": aside,
            "kept": duplicates.kept.size,
        },
    )
    if aside:
        accounts = (read_sealed(part / ACCOUNT) for part in plan.parts)
        write_json_lines(work / ASIDE, (page for account in accounts for page in account["aside"]))
    if any(task.kind == "python-docs" for task in plan.tasks):
        packages = python_docs.installed_packages(python_docs.Roots.of_interpreter())
        write_json(work / PACKAGES, packages)
    return duplicates.kept.size


def _repair(unusable: dict[str, str], config: BuildConfig) -> str:
    """Return what a user can do if this page, file or note is why a source has no text."""
    name = unusable.get("source", "").lower()
    if unusable["page"] and name.endswith(HTML_SUFFIXES) and config.extractor != "trafilatura":
        return "Try headwater corpus build --set extractor=trafilatura"
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
        self.kept, self.removed = Removal(), {"exact": Removal()}
        self.clusters: dict[str, int] = {}
        if plan.config.near_duplicates:
            near, originals = find_duplicates(
                [part / KEYS for part in plan.parts],
                lambda wanted: _shingles(plan, wanted, workers),
                plan.config.similarity,
                self._exact,
            )
            self._near[near] = True
            self.removed["near"] = Removal()
            sizes = np.unique(originals, return_counts=True)[1]
            self.clusters = {"near": len(sizes), "largest": int(sizes.max()) + 1 if len(sizes) else 0}

    def remove(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Stream the documents that are kept; count them in `kept`, the others in `removed`."""
        for number, document in enumerate(documents):
            kind = "exact" if self._exact[number] else "near" if self._near[number] else ""
            if kind:
                self.removed[kind].count(document, example=True)
            else:
                self.kept.count(document)
                yield document


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


@contextmanager
def _new_parents(path: Path) -> Iterator[None]:
    """If the block fails, remove the empty folders above `path` that were not there before."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def _parts_folder(stage: Stage, sources: Sequence[BuildSource]) -> Path:
    """Return the folder next to `out` for the parts of this build, named by a hash of its sources and settings."""
    inputs = [(entry.role, entry.identity) for entry in stage.inputs]
    built = json.dumps([stage.config, inputs, [source.path for source in sources]], sort_keys=True)
    key = hashlib.sha256(built.encode()).hexdigest()[:12]
    return stage.out.with_name(f".{stage.out.name}.{key}.parts")


def _note_other_packages(out: str | Path, progress: Progress) -> None:
    listing = file_at(out, PACKAGES)
    if listing.is_file():
        now = python_docs.installed_packages(python_docs.Roots.of_interpreter())
        if read_json(listing) != now:
            progress.note(
                f"the installed packages have changed since {out} was built; it is kept as it is "
                "(to build it again, remove it or choose another --out)"
            )
