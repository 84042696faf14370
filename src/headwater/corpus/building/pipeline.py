"""Build a corpus folder from sources: `headwater corpus build`.

A source is `python-docs`, a file, a folder, or another corpus. The build goes through this package in order:
`plan` divides the sources into tasks; `run` does them here, `cluster` on other machines. `parts` takes what
`documents` reads, applies the steps of `recipes`, and writes; `duplicates` finds the copies among all documents,
except the first of each; and `join` writes the rest as one corpus in the order of the sources and their documents.
The result does not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from headwater.corpus.building.join import Findings, join_parts, read_funnel
from headwater.corpus.building.plan import BUILT_IN, PLAN, BuildPlan, BuildSource, open_source
from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.building.run import PARTS, names, remove_altered, run_phase, start_workers
from headwater.corpus.sources.text import lines_note
from headwater.display import counted
from headwater.errors import DataError, FolderError, HeadwaterError, UsageError, resumable
from headwater.storage import SILENT, Destination, Input, Progress, Stage, folder_lock, storage_errors

BuildEngine = Literal["local", "ray"]

_FORMER = {"extractor": "resiliparse"}  # of an earlier option: a corpus that has it is still the same
NAMED = 8  # skipped files in a note; the funnel lists more


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
    which must share the disk. An existing corpus of `python-docs` is kept even if other packages are installed.
    Raises DataError for a source without usable text.
    """
    config = config or BuildConfig()
    destination = Destination(out)
    stage, opened = _stage(sources, destination, config)
    if destination.is_complete(stage, progress):
        shutil.rmtree(_parts_folder(stage, opened), ignore_errors=True)  # of a build killed after its last step
        return
    for source in opened:
        if skipped := source.skipped:
            names = ", ".join(skipped[:NAMED]) + (", …" if len(skipped) > NAMED else "")
            progress.note(f"{source.given}: skipped {counted(len(skipped), 'item')} of other kinds: {names}")
        if note := lines_note(Path(source.path)):
            progress.note(note)
    with _new_parents(stage.out):
        plan = _plan(opened, stage, config)
        with folder_lock(plan.folder):
            if altered := remove_altered(plan):
                progress.note(f"{altered} parts of an earlier attempt were altered and are built again")
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
    """Do the tasks and write the corpus; return the size of what was kept.

    What tasks have done stays for the next run, unless the joined corpus has no document.
    """
    progress.start("corpus", unit="documents")
    count = workers if engine == "local" else min(workers, os.cpu_count() or 1)
    try:
        with storage_errors(stage.out), start_workers(plan, count) as here:
            if engine == "ray":
                from headwater.corpus.building.cluster import run_on_ray

                run_on_ray(plan, workers, address)
            run_phase(plan, PARTS, here, lambda f: progress.advance(f.kept.documents, **f.figures()))
            with stage.write() as work:
                try:
                    findings = Findings(plan, sources)
                    findings.refuse_empty(plan.config)
                    for phase in names(plan)[1:]:
                        run_phase(plan, phase, here)
                    kept = join_parts(plan, work, findings)
                except DataError:  # with these sources and settings there is no corpus
                    shutil.rmtree(plan.folder, ignore_errors=True)
                    raise
    except HeadwaterError:
        plan.remove_if_unused()
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
    with storage_errors(out):
        return write_slurm_jobs(_plan(opened, stage, config), out.with_name(f"{out.name}.slurm"), workers, finish)


def _stage(
    sources: Sequence[str | Path], destination: Destination, config: BuildConfig
) -> tuple[Stage, list[BuildSource]]:
    """Return the stage of a build and its sources; raises UsageError or DataError for unusable ones."""
    if not all(map(str, sources)) or not sources:  # an empty name would mean the current folder
        raise UsageError("no source is named", expected=f"{' or '.join(BUILT_IN)}, or files and folders")
    alone = len(sources) == 1
    opened = [open_source(number, source, alone=alone) for number, source in enumerate(sources)]
    inputs: dict[str, str | Path | Input] = {
        f"source-{number}": source.input for number, source in enumerate(opened) if source.input is not None
    }
    sets = {f"evaluation-set-{index}": Path(name) for index, name in enumerate(config.evaluation_sets)}
    names = {"evaluation_sets": [path.name for path in sets.values()], "sources": [s.name for s in opened]}
    stage = Stage(
        destination.folder,
        kind="corpus",
        config=config.to_dict() | names | _FORMER,
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
        with suppress(FolderError):  # else it is planned again; parts of other tasks are found to be altered
            tasks = tuple(BuildPlan.load(folder).tasks)
    plan = BuildPlan(folder, config, tasks)
    with storage_errors(stage.out):
        plan.folder.mkdir(parents=True, exist_ok=True)
        plan.save()
    return plan


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
