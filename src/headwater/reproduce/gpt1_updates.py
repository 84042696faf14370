"""GPT-1, figure 2 on the right: zero-shot heuristics over pre-training updates, Transformer and LSTM.

Each score is rescaled as in the paper: 0 is a random guess, 1 the best system of its time. The paper does not
print the constants. Those used here are the best earlier systems of its tables 3 and 4. On RACE those are
ensembles, as the paper prints no single model there, and the page says so. The models are the snapshots that
pre-training kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from headwater.config import Config
from headwater.datasets.paper_tables import TABLES
from headwater.datasets.places import DataFiles
from headwater.errors import DataError, HeadwaterError
from headwater.evaluate.tasks import TASKS
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, judge
from headwater.reproduce.figures import COLOURS, Curve, bands
from headwater.reproduce.gpt1_perplexity import MODELS
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.scores import better, result_of, skipped_because
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, differences, mean_of_sets, over_seeds
from headwater.reproduce.statistics import Measured as Seeds


@dataclass(frozen=True)
class Heuristic:
    """A heuristic: its name in the figure, its metric, the random guess, and which system stands for 1.

    fine_tuned: the set of tables 3 and 4 that asks for the same.
    """

    title: str
    metric: str
    chance: float
    best: float
    system: str
    fine_tuned: str = ""


_SST2, _COLA = TABLES["gpt1-table-4"].value("Sparse byte mLSTM", "SST-2 acc"), "Single-task BiLSTM+ELMo+Attn"
_RACE = "BiAttention MRU (9×)"
_RACE_SYSTEM = f"{_RACE}, an ensemble of nine: the paper prints no single model"
_STORIES = "Hidden Coherence Model"


def _race(column: str) -> Heuristic:
    best = TABLES["gpt1-table-3"].value(_RACE, column) / 100
    return Heuristic("question answering", "accuracy", 0.25, best, _RACE_SYSTEM, "race")


HEURISTICS = {
    "sst-2.very": Heuristic("sentiment analysis", "accuracy", 0.5, _SST2 / 100, "Sparse byte mLSTM", "sst2"),
    "sst-2.whole-word": Heuristic("sentiment analysis", "accuracy", 0.5, _SST2 / 100, "Sparse byte mLSTM", "sst2"),
    "dprd.substitution": Heuristic(
        "Winograd schema resolution", "accuracy", 0.5, 1.0, "every answer right: the paper's tables have no system"
    ),
    "cola.mean-log-probability": Heuristic(
        "linguistic acceptability",
        "matthews",
        0.0,
        TABLES["gpt1-table-4"].value(_COLA, "CoLA mc") / 100,
        _COLA,
        "cola",
    ),
    # The figure is over all of RACE. The sample of both parts has 500 questions of each.
    "race.mean": _race("RACE"),
    "race-sample.mean": _race("RACE"),
    "race-middle.mean": _race("RACE-m"),
    "race-high.mean": _race("RACE-h"),
    "story-cloze.mean": Heuristic(
        "story endings",
        "accuracy",
        0.5,
        TABLES["gpt1-table-3"].value(_STORIES, "Story Cloze") / 100,
        _STORIES,
        "storycloze",
    ),
}
_Raw = dict[tuple[str, str], list[dict[int, Seeds]]]
_PAPER = ("sst-2.very", "cola.mean-log-probability", "dprd.substitution", "race.mean", "race-sample.mean")


class UpdateSettings(Config):
    """Protocols, and how many examples of each."""

    tasks: dict[str, int] = Field(default_factory=lambda: dict.fromkeys(_PAPER, 1_000))

    @field_validator("tasks")
    @classmethod
    def _are_heuristics(cls, tasks: dict[str, int]) -> dict[str, int]:
        if not tasks or not tasks.keys() <= HEURISTICS.keys():
            raise ValueError(f"expected some of {', '.join(HEURISTICS)}")
        return tasks


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Both models once a seed, and every protocol at every snapshot."""
    settings = scale.settings("gpt1_updates", UpdateSettings)
    found = set()
    for model in MODELS:
        for seed in scale.seeds:
            found.add(("pre-training", f"{model}, seed {seed}"))
            for step in scale.models[model].snapshots:
                found |= {("scores", _name(model, seed, step, task)) for task in settings.tasks}
    return found


def run(laboratory: Laboratory) -> Findings:
    """Score every snapshot of both models with each heuristic."""
    settings = laboratory.scale.settings("gpt1_updates", UpdateSettings)
    raw, counts, left_out = _measured(laboratory, settings)
    tasks = [task for task in settings.tasks if (next(iter(MODELS)), task) in raw]
    if not tasks:
        raise DataError("; ".join(f"{task} cannot be asked: {reason}" for task, reason in left_out.items()))
    rows = [
        Row(
            f"{HEURISTICS[task].title} ({task}), {MODELS[model]}, {step:,} updates",
            HEURISTICS[task].metric,
            _values(raw, model, task, step),
            None,
            counts[task],
            f"a random guess gets {HEURISTICS[task].chance:g}",
        )
        for task in tasks
        for model in MODELS
        for step in raw[model, task][0]
    ]
    curves: dict[str, list[Curve]] = {}
    errors: dict[str, list[float]] = {}
    for task in tasks:
        for model, title in MODELS.items():
            name = f"{HEURISTICS[task].title}, {title}"
            steps = list(raw[model, task][0])
            scores = [_rescaled(task, _values(raw, model, task, step)) for step in steps]
            curves[name] = [
                [(step, values[seed]) for step, values in zip(steps, scores, strict=True)]
                for seed in range(len(scores[0]))
            ]
            errors[name] = [values.item_error for values in scores]
    scales = "; ".join(
        f"{HEURISTICS[t].title} ({t}) {HEURISTICS[t].chance:g} to {HEURISTICS[t].best:g} ({HEURISTICS[t].system})"
        for t in tasks
    )
    notes = [f"Rescaled from a random guess to a system of the paper's tables: {scales}."]
    notes += [f"{task} is left out: {reason}" for task, reason in left_out.items()]
    return Findings(
        rows=rows,
        findings=_findings(raw, tasks),
        setup=describe(laboratory, list(MODELS)),
        notes=notes,
        figures={"figure-2-right": lambda figure: _draw(figure, curves, errors)},
    )


def zero_shot_pieces(scale: Scale) -> set[tuple[str, str]]:
    """Return the work that `zero_shot` does."""
    steps = scale.models["gpt1"].snapshots[-1:]
    return {
        ("scores", _name("gpt1", seed, step, task))
        for task in _joined(scale)
        for seed in scale.seeds
        for step in steps
    }


def _joined(scale: Scale) -> dict[str, int]:
    """The tasks that GPT-1 was also fine-tuned for, with the number of examples."""
    tasks = scale.settings("gpt1_updates", UpdateSettings).tasks
    return {task: limit for task, limit in tasks.items() if HEURISTICS[task].fine_tuned}


def zero_shot(laboratory: Laboratory) -> dict[str, tuple[str, Seeds, int]]:
    """Return GPT-1's scores at its last snapshot: set -> (task, one value a seed, examples)."""
    found: dict[str, tuple[str, Seeds, int]] = {}
    if not laboratory.scale.models["gpt1"].snapshots:
        return found
    for task, limit in _joined(laboratory.scale).items():
        values, counts = Seeds(), []
        for seed in laboratory.scale.seeds:
            step, folder = list(laboratory.snapshots("gpt1", seed).items())[-1]
            results, _ = laboratory.evaluate(_name("gpt1", seed, step, task), folder, [task], limit=limit)
            measured = result_of(results, task, HEURISTICS[task].metric)
            if measured is not None:
                values.add(measured.value, measured.stderr)
                counts.append(measured.count)
        if counts:
            found.setdefault(HEURISTICS[task].fine_tuned, (task, values, counts[0]))
    return found


def _measured(laboratory: Laboratory, settings: UpdateSettings) -> tuple[_Raw, dict[str, int], dict[str, str]]:
    """(model, task) -> the value by update, one table a seed; task -> examples; task -> why it is left out."""
    raw: _Raw = {}
    counts: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for model in MODELS:
        for seed in laboratory.scale.seeds:
            for task, limit in settings.tasks.items():
                found: dict[int, Seeds] = {}
                for step, folder in laboratory.snapshots(model, seed).items():
                    name = _name(model, seed, step, task)
                    results, scored = laboratory.evaluate(name, folder, [task], limit=limit)
                    measured = result_of(results, task, HEURISTICS[task].metric)
                    if measured is not None:
                        found[step], counts[task] = better(measured, scored), measured.count
                    left_out |= skipped_because(laboratory, results)
                if found:
                    raw.setdefault((model, task), []).append(found)
    return raw, counts, left_out


def _values(raw: _Raw, model: str, task: str, step: int) -> Seeds:
    values = Seeds()
    for one in raw[model, task]:
        values.add(one[step][0], one[step].errors[0], one[step].items)
    return values


def _findings(raw: _Raw, tasks: Sequence[str]) -> list[Finding]:
    steps = list(raw["gpt1", tasks[0]][0])
    first, last = steps[0], steps[-1]

    def mean(model: str, step: int) -> Seeds:
        return mean_of_sets([_rescaled(task, _values(raw, model, task, step)) for task in tasks])

    transformer = mean("gpt1", last)
    return [
        judge(
            "Zero-shot performance rises over pre-training.",
            "all four heuristics rise steadily (figure 2, right)",
            differences(transformer, mean("gpt1", first)),
            here=f"{over_seeds(mean('gpt1', first)).value:.3f} after {first:,} updates, "
            f"{over_seeds(transformer).text()} after {last:,}",
            sentences={
                HOLDS: "The mean of the rescaled scores rises over training, by {here}.",
                FAILS: "The mean of the rescaled scores falls over this short training: {here}.",
                OPEN: "Over this few updates the mean of the rescaled scores does not move beyond the spread "
                "({here}).",
            },
        ),
        judge(
            "The Transformer's zero-shot performance ends above the LSTM's.",
            "higher on every heuristic, and steadier",
            differences(transformer, mean("lstm", last)),
            here=f"{over_seeds(transformer).value:.3f} against {over_seeds(mean('lstm', last)).value:.3f}",
            sentences={
                HOLDS: "The Transformer ends {here} above the LSTM.",
                FAILS: "After this few updates the LSTM ends above the Transformer ({here}).",
                OPEN: "After this few updates the two are not told apart ({here}).",
            },
        ),
    ]


def _lacks(scale: Scale, data: Path) -> list[str]:
    """Why no heuristic can be asked, where none can."""
    missing = []
    listing = DataFiles([data])
    for task in scale.settings("gpt1_updates", UpdateSettings).tasks:
        try:
            listing.locate(TASKS[task].sources)
        except HeadwaterError:
            missing += [" or ".join(source.names) for source in TASKS[task].sources if source.needed]
        else:
            return []
    return [f"a set of the heuristics ({'; '.join(dict.fromkeys(missing))})"]


def _rescaled(task: str, values: Seeds) -> Seeds:
    chance, best = HEURISTICS[task].chance, HEURISTICS[task].best
    return values.linear(1 / (best - chance), -chance / (best - chance))


def _name(model: str, seed: int, step: int, task: str) -> str:
    return f"{model}, seed {seed}, {step} updates, {task}"


def _draw(figure: object, curves: dict[str, list[Curve]], errors: dict[str, list[float]]) -> None:
    titles = list(dict.fromkeys(name.rpartition(", ")[0] for name in curves))
    colours = {name: COLOURS[titles.index(name.rpartition(", ")[0]) % len(COLOURS)] for name in curves}
    bands(
        figure,
        curves,
        "# of pre-training updates",
        "relative task performance",
        log_x=True,
        dashed=[name for name in curves if name.endswith("LSTM")],
        colours=colours,
        item_errors=errors,
    )


UPDATES = Experiment(
    name="gpt1_updates",
    title="Zero-shot over updates (figure 2, right)",
    paper="GPT-1",
    section="5",
    claim="Zero-shot performance rises steadily over pre-training, and the LSTM's is lower and less steady.",
    models=tuple(MODELS),
    settings=UpdateSettings,
    pieces=pieces,
    run=run,
    lacks=_lacks,
    beside=("gpt1-figure-2-right",),
)
