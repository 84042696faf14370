"""`headwater reproduce`: run experiments in turn, each with its own folder of results.

`OUT/shared` has what they share, `OUT/EXPERIMENT` the results of each, `OUT/report.html` all claims on one page.
An experiment whose data is missing is skipped, with a note on what it needs. A killed run can be resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.device import choose_device
from headwater.errors import DataError, HeadwaterError, UsageError, resumable, suggest
from headwater.storage import SILENT, Progress, folder_lock, storage_errors
from headwater_papers.experiment import Experiment
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.laboratory import Laboratory
from headwater_papers.page import write_experiment, write_index
from headwater_papers.scale import Scale, check_machine, cost_of
from headwater_papers.setup import describe_work

SHARED = "shared"


@dataclass(frozen=True)
class ReproductionOutcome:
    """The results of each experiment, and why others were left out."""

    results: dict[str, dict[str, Any]]
    left_out: dict[str, str]


@resumable()
def reproduce(
    names: Sequence[str],
    scale: Scale,
    data: Path,
    out: Path,
    *,
    device: str = "auto",
    progress: Progress = SILENT,
) -> ReproductionOutcome:
    """Run experiments by name, or `all`, at a scale, and write their results to `out`.

    Raises UsageError for an unknown name or a device that is not available, ResourceError if this machine cannot
    run the scale, FolderError if another run uses `out`, DataError if none of the experiments has
    its data.
    """
    chosen = choose(names)
    choose_device(device)
    for name in scale.experiments:
        if name not in EXPERIMENTS:
            raise UsageError(
                f"the scale {scale.name} has a table for the experiment {name!r}, which does not exist",
                **suggest(name, EXPERIMENTS),
            )
    if not scale.run:
        check_machine(scale, list(scale.models), device)
    left_out = {}
    for experiment in chosen:
        missing = experiment.missing(scale, data)
        if missing:
            left_out[experiment.name] = f"needs {', '.join(missing)}"
            progress.note(f"{experiment.name} is left out: it {left_out[experiment.name]}")
    ready = [experiment for experiment in chosen if experiment.name not in left_out]
    if not ready:
        texts = sorted({text for one in chosen for text in one.missing_texts(scale, data)})
        own = "".join(f""", --set 'texts.{text}.sources=["FILE"]'""" for text in texts)
        raise DataError(
            f"none of these experiments can be run with {data}: "
            + "; ".join(f"{name} {why}" for name, why in left_out.items()),
            repair="Give the folder of this data with --data"
            + (f", or name files of your own in it{own}" if own else ", or another --scale"),
        )
    pieces, models = work_of(ready, scale)
    progress.note(check_machine(scale, models, device))
    progress.note(describe_work(scale, pieces, cost_of(scale, models)))
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    results = {}
    with folder_lock(out):
        laboratory = Laboratory(scale, data, out / SHARED, pieces, progress, device=device)
        try:
            for number, experiment in enumerate(ready, 1):
                progress.note(f"{experiment.name}, experiment {number} of {len(ready)}: {experiment.title}")
                laboratory.used.clear()
                with laboratory.at(experiment.arranged(scale)):
                    findings = experiment.run(laboratory)
                place = out / experiment.name
                results[experiment.name] = write_experiment(experiment, findings, laboratory, place)
                for finding in results[experiment.name]["findings"]:
                    progress.note(f"{finding['claim']}: {finding['verdict']} ({finding['here']})")
        except HeadwaterError:
            write_index(out, scale)  # with the experiments before the one that failed
            raise
        write_index(out, scale)
    return ReproductionOutcome(results, left_out)


def work_of(experiments: Sequence[Experiment], scale: Scale) -> tuple[set[tuple[str, str]], list[str]]:
    """Return the pieces of work of some experiments as (kind, name), and the models that are pre-trained."""
    pieces = set[tuple[str, str]]().union(*(one.pieces(one.arranged(scale)) for one in experiments))
    return pieces, sorted({name.partition(",")[0] for kind, name in pieces if kind == "pre-training"})


def choose(names: Sequence[str]) -> list[Experiment]:
    """Return experiments by name; `all`, or a beginning up to an underscore, such as `gpt1`, selects several."""
    chosen: dict[str, Experiment] = {}
    for name in names:
        named = {
            key: experiment
            for key, experiment in EXPERIMENTS.items()
            if name in ("all", key) or key.startswith(f"{name}_")
        }
        if not named:
            raise UsageError(f"there is no experiment {name!r}", **suggest(name, ["all", *EXPERIMENTS]))
        chosen |= named
    return list(chosen.values())
