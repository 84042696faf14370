"""GPT-1, section 3.2: does the auxiliary objective accelerate convergence?

The paper says that L1 helps learning by "accelerating convergence" and prints no curve. Here the same rows are
fine-tuned in the same order with λ = 0.5 and with λ = 0, from one pre-trained model, and L2 is compared over the
updates: on the batches that are learned, before each update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import Field

from headwater.config import Config
from headwater.training import read_journal
from headwater_papers.claims import CLAIMS, judge_all
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import bands
from headwater_papers.labelled import FULL, NO_AUXILIARY, Variant, fine_tune, piece_names, sets_missing
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Rows, Scale
from headwater_papers.setup import describe, describe_recipe, training_notes
from headwater_papers.statistics import differences

_MEASURED = 40  # rows of validation and test, whose scores are not used here
_TITLES = {FULL.name: "λ = 0.5", NO_AUXILIARY.name: "λ = 0"}


class ConvergenceSettings(Config):
    """The set, the numbers of training rows, the updates of each training, and the model that is fine-tuned."""

    set: str = "snli"
    rows: tuple[int, ...] = Field(default=(200, 2_000), min_length=1)
    updates: int = Field(default=60, ge=4)
    base: str = ""
    """A model folder, or the name of a model that ships, for every seed; by default the scale's gpt1."""


def _settings(scale: Scale) -> ConvergenceSettings:
    return scale.settings("gpt1_convergence", ConvergenceSettings)


def arranged(scale: Scale) -> Scale:
    """Return the scale with the model of its settings, if any, as gpt1."""
    base = _settings(scale).base
    return scale.with_base("gpt1", base) if base else scale


def variants(settings: ConvergenceSettings, rows: int) -> list[Variant]:
    """Return both fine-tunings on this number of rows, which are validated once."""
    changes = {"steps": settings.updates, "validate_every": settings.updates, "baseline": False}
    return [
        replace(one, name=f"{one.name}-{rows}-rows", changes={**one.changes, **changes})
        for one in (FULL, NO_AUXILIARY)
    ]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: with and without L1 on each number of rows, once a seed."""
    settings = _settings(scale)
    return set[tuple[str, str]]().union(
        *(piece_names(scale, [settings.set], variants(settings, rows)) for rows in settings.rows)
    )


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune with and without L1, and compare L2 over the updates."""
    scale, settings = laboratory.scale, _settings(laboratory.scale)
    curves: dict[tuple[int, str], list[list[float]]] = {}
    for rows in settings.rows:
        with laboratory.at(_with_rows(scale, settings, rows)):
            for variant, name in zip(variants(settings, rows), _TITLES, strict=True):
                for seed in scale.seeds:
                    curves.setdefault((rows, name), []).append(_l2(laboratory, settings.set, variant, seed))
    means = {key: [fmean(curve) for curve in seeds] for key, seeds in curves.items()}
    halves = {key: [fmean(curve[: len(curve) // 2]) for curve in seeds] for key, seeds in curves.items()}
    gains = [differences(halves[rows, NO_AUXILIARY.name], halves[rows, FULL.name]) for rows in settings.rows]
    return Findings(
        rows=[
            Row(f"{rows:,} rows, {_TITLES[name]}", measure, values)
            for measure, of in (("mean L2, first half of the updates", halves), ("mean L2, all updates", means))
            for (rows, name), values in of.items()
        ],
        findings=[judge_all(CLAIMS["gpt1_convergence.faster"], gains, part="number of rows")],
        setup=[
            *describe(laboratory, ["gpt1"]),
            describe_recipe(scale),
            ("rows", f"{' and '.join(f'{rows:,}' for rows in settings.rows)} of {settings.set}"),
            ("compared", f"the first {settings.updates} updates"),
        ],
        notes=[
            "Both fine-tunings of a seed have the same head, the same rows and the same order.",
            *training_notes(scale, ["gpt1"]),
        ],
        figures={
            "l2-over-updates": lambda figure: bands(
                figure,
                {f"{rows:,} rows, {_TITLES[name]}": _smoothed(seeds) for (rows, name), seeds in curves.items()},
                "updates",
                "L2, nats; mean of five updates",
                dashed=[f"{rows:,} rows, {_TITLES[NO_AUXILIARY.name]}" for rows in settings.rows],
            )
        },
    )


def _with_rows(scale: Scale, settings: ConvergenceSettings, rows: int) -> Scale:
    """Return the scale with this number of training rows of the set, and few rows of its other parts."""
    sets = scale.labelled.sets | {settings.set: Rows(train=rows, validation=_MEASURED, test=_MEASURED)}
    return scale.model_copy(update={"labelled": scale.labelled.model_copy(update={"sets": sets})})


def _l2(laboratory: Laboratory, name: str, variant: Variant, seed: int) -> list[float]:
    """Return L2 of each update's batch."""
    folder = fine_tune(laboratory, name, variant, seed)[0].folder
    return [float(line["l2"] if "l2" in line else line["loss"]) for line in read_journal(folder / "metrics.jsonl")]


def _smoothed(seeds: Sequence[Sequence[float]], width: int = 5) -> dict[int, list[float]]:
    """Return the mean of each `width` updates by their last one, one value a seed."""
    ends = range(width, len(seeds[0]) + 1, width)
    return {end: [fmean(curve[end - width : end]) for curve in seeds] for end in ends}


CONVERGENCE = Experiment(
    name="gpt1_convergence",
    title="Convergence with and without the auxiliary objective",
    paper="GPT-1",
    section="3.2",
    claim="Including language modelling as an auxiliary objective accelerates convergence.",
    models=("gpt1",),
    any_base=True,
    settings=ConvergenceSettings,
    arranged=arranged,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: sets_missing(scale, [_settings(scale).set], data),
)
