"""Silent and odd choices of GPT-1's code, each switched alone: does any of them matter?

Every training starts from the same model and has the same rows; a seed decides head, order of rows and dropout.
A quirk's effect is the score with the code's choice less the score with the other one, seed by seed and test row
by test row. The deviation of the first position rows acts only without pre-training, so that both of its sides
train the base's shape from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.finetuning import FinetuneConfig
from headwater_papers.claims import CLAIMS, judge_all
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.items import ItemValues
from headwater_papers.labelled import sample_set, sets_missing, tables_of
from headwater_papers.laboratory import Laboratory
from headwater_papers.quirk_training import Choices, train_with
from headwater_papers.scale import Rows, Scale
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, as_measured, differences, over_seeds
from headwater_papers.task_sets import BY_NAME

PERCENT = 100
_REFERENCE = "headwater finetune"


class Quirk(NamedTuple):
    """A choice of the authors' code, and the other choice, as changes to `Choices`."""

    title: str
    code: Mapping[str, Any] = {}
    other: Mapping[str, Any] = {}


_SCRATCH: Mapping[str, Any] = {"pretrained": False}
QUIRKS = {
    "matrix-dropout": Quirk("dropout on the embedding matrix, not on the sum", other={"drops": "sum"}),
    "position-rows": Quirk("position rows in the softmax of L1", other={"rows": "vocabulary"}),
    "adam": Quirk("ε before the bias correction of Adam, decay by the corrected step", other={"adam": "standard"}),
    "clip": Quirk("gradients clipped at a norm of 1", other={"clip": 0.0}),
    "by-sequence": Quirk("L1 as a mean over each sequence, not over all tokens", other={"by_sequence": False}),
    "task-tokens": Quirk("L1 also predicts the delimiter and extract tokens", other={"task_tokens": False}),
    "truncation": Quirk("each text cut to half of the context less two tokens", code={"half": True}),
    "partial-batch": Quirk("the last partial batch of an epoch left out", code={"drops_partial": True}),
    "positions": Quirk(
        "first position rows at a deviation of 0.01, not 0.02, from scratch",
        code={**_SCRATCH, "position_deviation": 0.01},
        other=_SCRATCH,
    ),
}


class QuirkSettings(Config):
    """The base and the set of the trainings."""

    base: str = "gpt1-mini"
    """A model folder, or the name of a model that ships, for every seed."""
    set: str = "sst2"
    """The labelled set."""
    train: int | None = Field(default=1_103, ge=16)
    """Training rows; the last batch of an epoch should be partial."""
    test: int | None = Field(default=1_000, ge=1)
    """Test rows."""
    context: int = Field(default=64, ge=8)
    """Tokens of a sequence, so that some texts are longer than half of it."""


def arranged(scale: Scale) -> Scale:
    """Return the scale with the base and the rows of the settings."""
    settings = _settings(scale)
    sets = scale.labelled.sets | {settings.set: Rows(train=settings.train, test=settings.test)}
    labelled = scale.labelled.model_copy(update={"sets": sets})
    return scale.with_base("gpt1", settings.base).model_copy(update={"labelled": labelled})


def _settings(scale: Scale) -> QuirkSettings:
    return scale.settings("gpt1_quirks", QuirkSettings)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: one training for each set of choices, once a seed."""
    return {("quirk", _piece(name, seed)) for name in variants() for seed in scale.seeds}


def variants() -> dict[str, Choices]:
    """Return the different choices of all quirks by name."""
    by_name = {_REFERENCE: Choices(), "from scratch": Choices(**_SCRATCH)}
    for name, quirk in QUIRKS.items():
        for side in (quirk.code, quirk.other):
            choices = Choices(**side)
            if choices not in by_name.values():
                by_name[name] = choices
    return by_name


def _piece(name: str, seed: int) -> str:
    return f"{name}, seed {seed}"


def run(laboratory: Laboratory) -> Findings:
    """Train every variant once a seed, and compare both sides of each quirk."""
    settings = _settings(laboratory.scale)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in variants()}
    for seed in laboratory.scale.seeds:  # outermost: an interrupted run has whole seeds
        for name, choices in variants().items():
            results[name].append(_result(laboratory, name, choices, seed))
    values = {name: _measured(trained) for name, trained in results.items()}
    names = {choices: name for name, choices in variants().items()}
    effects = {}
    for name, quirk in QUIRKS.items():
        code, other = (values[names[Choices(**side)]] for side in (quirk.code, quirk.other))
        effects[name] = {measure: differences(code[measure], other[measure]) for measure in code}
    rows = [
        Row(f"effect: {QUIRKS[name].title}", f"{measure}, the code's choice less the other", trained)
        for name, both in effects.items()
        for measure, trained in both.items()
    ]
    rows += [
        Row(f"trained as: {name}", measure, trained, examples=len(next(iter((trained.items or {}).values())).ids))
        for name, both in values.items()
        for measure, trained in both.items()
    ]
    accuracy = {name: both["accuracy"] for name, both in effects.items()}
    claim = CLAIMS["gpt1_quirks.matters"]
    bound = claim.plans[0]["chosen"]
    parts = [trained.linear(sign, bound) for trained in accuracy.values() for sign in (1.0, -1.0)]
    largest = max(accuracy, key=lambda name: abs(over_seeds(accuracy[name]).value))
    finding = judge_all(
        claim,
        parts,
        here=f"the largest effect is {over_seeds(accuracy[largest].linear(PERCENT)).text(1)} points "
        f"({QUIRKS[largest].title})",
        part="side of an effect",
    )
    plan = laboratory.scale.labelled.recipe
    recipe = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in plan.items())
    taken = laboratory.scale.labelled.sets[settings.set]
    cut = results["truncation"][0]["cut"]
    return Findings(
        rows=rows,
        findings=[finding],
        setup=[
            *describe(laboratory, ["gpt1"]),
            ("fine-tuning", recipe or "as the paper"),
            (
                "rows",
                f"{settings.set}: {taken.train or 'all'} to train, {taken.test or 'all'} to test; sequences of "
                f"{settings.context} tokens",
            ),
            ("reference", "headwater finetune with its defaults, but the last state instead of the best one"),
        ],
        notes=[
            "Each effect is paired by seed and test row. Seeds change head, order of rows and dropout, not the "
            "base. Intervals are not corrected for the number of effects.",
            f"With the code's truncation, {cut:.0%} of the training rows lose tokens.",
            "Headwater follows the code in dropout, position rows, Adam, clipping and L1. It does not in "
            "truncation and the partial batch. The deviation of 0.01 is that of GPT-2's code.",
        ],
        figures={"effects": lambda figure: _draw(figure, accuracy)},
    )


def _measured(results: Sequence[Mapping[str, Any]]) -> dict[str, Measured]:
    """Return accuracy and test loss of a variant, one value a seed, with their values by test row."""
    by_measure = {"accuracy": Measured(), "test loss, nats per row": Measured()}
    for result in results:
        for measured, key in zip(by_measure.values(), ("correct", "loss"), strict=True):
            values = np.array(result[key])
            error = float(values.std(ddof=1)) / len(values) ** 0.5
            items = {"test rows": ItemValues(tuple(result["ids"]), values[None])}
            measured.add(float(values.mean()), error, items)
    return by_measure


def _result(laboratory: Laboratory, name: str, choices: Choices, seed: int) -> dict[str, Any]:
    """Return what `train_with` found with these choices and this seed."""
    scale = laboratory.scale
    settings = _settings(scale)
    rows, base = sample_set(laboratory, settings.set), laboratory.model("gpt1", seed)
    keys = BY_NAME[settings.set].fine_tuning | {"seed": seed}
    config = FinetuneConfig.build(scale.labelled.recipe, keys, source="labelled.recipe")
    result: dict[str, Any] = laboratory.measured(
        f"quirk-{name.replace(' ', '-')}-{seed}",
        "rows.json",
        lambda: _train(laboratory, choices, config, base, rows, settings.context),
        kind="quirk",
        name=_piece(name, seed),
        config=choices._asdict() | {"context": settings.context, "finetune": config.to_dict()},
        inputs={"model": base, "rows": rows},
    )
    return result


def _train(
    laboratory: Laboratory, choices: Choices, config: FinetuneConfig, base: Path, rows: Path, context: int
) -> dict[str, Any]:
    tables = tables_of(rows)
    return train_with(choices, config, base, tables, context=context, device=laboratory.device).to_dict()


def _draw(figure: Any, effects: Mapping[str, Sequence[float]]) -> None:
    """Draw each effect on the accuracy with its interval, in points."""
    axes = figure.subplots()
    points = [over_seeds(as_measured(values).linear(PERCENT)) for values in effects.values()]
    for place, (value, low, high) in enumerate(points):
        axes.plot(value, place, "o", color="black")
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color="black", linewidth=1)
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_yticks(range(len(points)), [QUIRKS[name].title for name in effects], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("accuracy, points: the code's choice less the other")


def _lacks(scale: Scale, data: Path) -> list[str]:
    return sets_missing(scale, [_settings(scale).set], data)


QUIRKS_OF_THE_CODE = Experiment(
    name="gpt1_quirks",
    title="Silent choices of the authors' code, each switched alone",
    paper="GPT-1",
    section="4.1",
    claim="The paper does not mention these choices of its code; none of them should matter.",
    models=("gpt1",),
    any_base=True,
    settings=QuirkSettings,
    arranged=arranged,
    pieces=pieces,
    run=run,
    lacks=_lacks,
)
