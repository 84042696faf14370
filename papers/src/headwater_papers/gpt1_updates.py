"""GPT-1, figure 2 on the right: zero-shot heuristics over pre-training updates, Transformer and LSTM.

Each score is rescaled as in the paper: 0 is a random guess, 1 the best system of its time. The paper does not
print the constants. Here they are the scores of the best earlier systems in its tables 3 and 4; on RACE these are
ensembles, since the paper prints no single model. The models are the snapshots that pre-training saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from headwater.config import Config
from headwater.errors import DataError, HeadwaterError
from headwater.evaluation import DataFiles, all_tasks
from headwater.pretraining import PretrainConfig
from headwater_papers.claims import CLAIMS, Finding, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import COLOURS, Curve, bands
from headwater_papers.gpt1_perplexity import MODELS
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import TABLES
from headwater_papers.scale import Scale, trainings
from headwater_papers.scores import ScoreTable, left_out_notes, result_of
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, differences, mean_of_sets, over_seeds


@dataclass(frozen=True)
class Heuristic:
    """A heuristic: its name in the figure, its metric, the random guess, and the system whose score becomes 1.

    fine_tuned: the set of tables 3 and 4 with the same task.
    """

    title: str
    metric: str
    chance: float
    best: float
    system: str
    fine_tuned: str = ""

    def rescaled(self, values: Measured) -> Measured:
        """Return values on the axis of the figure, where chance is 0 and the best system 1."""
        span = self.best - self.chance
        return values.linear(1 / span, -self.chance / span)


def _from_table(
    title: str,
    table: str,
    column: str,
    system: str,
    fine_tuned: str,
    metric: str = "accuracy",
    chance: float = 0.5,
) -> Heuristic:
    best = TABLES[f"gpt1-table-{table}"].value(system, column) / 100
    note = ", an ensemble of nine: the paper prints no single model" if "9×" in system else ""
    return Heuristic(title, metric, chance, best, system + note, fine_tuned)


def _race(column: str) -> Heuristic:
    return _from_table("question answering", "3", column, "BiAttention MRU (9×)", "race", chance=0.25)


_SENTIMENT = _from_table("sentiment analysis", "4", "SST-2 acc", "Sparse byte mLSTM", "sst2")
HEURISTICS = {
    "sst-2.very": _SENTIMENT,
    "sst-2.whole-word": _SENTIMENT,
    "dprd.substitution": Heuristic(
        "Winograd schema resolution", "accuracy", 0.5, 1.0, "every answer right: the paper's tables have no system"
    ),
    "cola.mean-log-probability": _from_table(
        "linguistic acceptability", "4", "CoLA mc", "Single-task BiLSTM+ELMo+Attn", "cola", "matthews", 0.0
    ),
    # The figure is over all of RACE. The sample of both parts has 500 questions of each.
    "race.mean": _race("RACE"),
    "race-sample.mean": _race("RACE"),
    "race-middle.mean": _race("RACE-m"),
    "race-high.mean": _race("RACE-h"),
    "story-cloze.mean": _from_table("story endings", "3", "Story Cloze", "Hidden Coherence Model", "storycloze"),
}
_Scores = Mapping[str, Mapping[str, Measured]]  # by task, then by `_label`
_PAPER = ("sst-2.very", "cola.mean-log-probability", "dprd.substitution", "race.mean", "race-sample.mean")


class UpdateSettings(Config):
    """The protocols with the number of examples of each."""

    tasks: dict[str, int] = Field(default_factory=lambda: dict.fromkeys(_PAPER, 1_000))

    @field_validator("tasks")
    @classmethod
    def _are_heuristics(cls, tasks: dict[str, int]) -> dict[str, int]:
        if not tasks or not tasks.keys() <= HEURISTICS.keys():
            raise ValueError(f"expected some of {', '.join(HEURISTICS)}")
        return tasks


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: both models once a seed, and every protocol at every snapshot."""
    tasks = scale.settings("gpt1_updates", UpdateSettings).tasks
    runs = [(model, seed) for model in MODELS for seed in scale.seeds]
    return {("pre-training", name) for name in trainings(scale, MODELS)} | {
        ("scores", _name(model, seed, step, task))
        for model, seed in runs
        for step in scale.models[model].snapshots
        for task in tasks
    }


def run(laboratory: Laboratory) -> Findings:
    """Score every snapshot of both models with each heuristic."""
    scale = laboratory.scale
    wanted = scale.settings("gpt1_updates", UpdateSettings).tasks
    table = ScoreTable((task, HEURISTICS[task].metric) for task in wanted)
    for model in MODELS:
        for seed in scale.seeds:
            for step, folder in laboratory.snapshots(model, seed).items():
                for task, limit in wanted.items():
                    name = _name(model, seed, step, task)
                    table.add(
                        laboratory, _label(model, step), *laboratory.evaluate(name, folder, [task], limit=limit)
                    )
    scores = {task: of for (task, _), of in table.better.items()}
    if not scores:
        raise DataError("; ".join(f"{task} cannot be evaluated: {why}" for task, why in table.left_out.items()))
    asked = {task: HEURISTICS[task] for task in wanted if task in scores}
    steps = {model: scale.models[model].snapshots for model in MODELS}
    rows = [
        Row(
            f"{one.title} ({task}), {_label(model, step)}",
            one.metric,
            scores[task][_label(model, step)],
            None,
            table.counts[task, one.metric],
            f"a random guess gets {one.chance:g}",
        )
        for task, one in asked.items()
        for model in MODELS
        for step in steps[model]
    ]
    curves = {
        f"{one.title}, {title}": {step: one.rescaled(scores[task][_label(model, step)]) for step in steps[model]}
        for task, one in asked.items()
        for model, title in MODELS.items()
    }
    scales = "; ".join(
        f"{one.title} ({task}) {one.chance:g} to {one.best:g} ({one.system})" for task, one in asked.items()
    )
    return Findings(
        rows=rows,
        findings=_findings(scores, steps),
        setup=describe(laboratory, list(MODELS)),
        notes=[
            f"Rescaled from a random guess to a system of the paper's tables: {scales}.",
            *left_out_notes(table.left_out),
        ],
        figures={"figure-2-right": lambda figure: _draw(figure, curves)},
    )


def zero_shot_pieces(scale: Scale) -> set[tuple[str, str]]:
    """Return the work that `zero_shot` does."""
    plan = scale.models["gpt1"]
    if plan.model:
        return {("scores", f"{plan.model}, {task}") for task in _fine_tuned_tasks(scale)}
    return {
        ("scores", _name("gpt1", seed, step, task))
        for task in _fine_tuned_tasks(scale)
        for seed in scale.seeds
        for step in plan.snapshots[-1:]
    }


def _fine_tuned_tasks(scale: Scale) -> dict[str, int]:
    """Return the tasks that GPT-1 was also fine-tuned for, with the number of examples."""
    tasks = scale.settings("gpt1_updates", UpdateSettings).tasks
    return {task: limit for task, limit in tasks.items() if HEURISTICS[task].fine_tuned}


def zero_shot(laboratory: Laboratory) -> dict[str, tuple[str, Measured, int]]:
    """Return GPT-1's scores: set -> (task, one value a seed, examples).

    They are those of its last snapshots, or of the one model that exists.
    """
    scores: dict[str, tuple[str, Measured, int]] = {}
    plan, seeds = laboratory.scale.models["gpt1"], laboratory.scale.seeds
    if plan.model:
        models = {plan.model: laboratory.model("gpt1", seeds[0])}
    else:
        last = [(seed, step) for seed in seeds for step in plan.snapshots[-1:]]
        models = {
            f"gpt1, seed {seed}, {step} updates": laboratory.snapshots("gpt1", seed)[step] for seed, step in last
        }
    for task, limit in _fine_tuned_tasks(laboratory.scale).items():
        values, counts = Measured(), []
        for name, folder in models.items():
            results, _ = laboratory.evaluate(f"{name}, {task}", folder, [task], limit=limit)
            measured = result_of(results, task, HEURISTICS[task].metric)
            if measured is not None:
                values.add(measured.value, measured.stderr)
                counts.append(measured.count)
        if counts:
            scores.setdefault(HEURISTICS[task].fine_tuned, (task, values, counts[0]))
    return scores


_AXIS = "on an axis from a guess (0) to the best system then (1)"


def _findings(scores: _Scores, steps: Mapping[str, Sequence[int]]) -> list[Finding]:
    def mean(model: str, step: int) -> Measured:
        return mean_of_sets([HEURISTICS[task].rescaled(of[_label(model, step)]) for task, of in scores.items()])

    start, end = steps["gpt1"][0], steps["gpt1"][-1]
    first, last, lstm = mean("gpt1", start), mean("gpt1", end), mean("lstm", end)
    return [
        judge(
            CLAIMS["gpt1_updates.rises"],
            differences(last, first),
            here=f"{over_seeds(first).value:.3f} after {start:,} updates, {over_seeds(last).text()} after "
            f"{end:,}, {_AXIS}",
        ),
        judge(
            CLAIMS["gpt1_updates.lstm"],
            differences(last, lstm),
            here=f"{over_seeds(last).value:.3f} against {over_seeds(lstm).value:.3f}, {_AXIS}",
        ),
    ]


def snapshots_missing(scale: Scale, models: Iterable[str]) -> list[str]:
    """Return the snapshots after a model's last update, in the form of `Experiment.lacks`."""
    last = {name: scale.models[name].snapshots[-1:] for name in models if not scale.models[name].model}
    updates = {name: PretrainConfig.build(scale.models[name].recipe).steps for name in last}
    return [
        f"snapshots of {name} within its {updates[name]:,} updates, not at {step:,}"
        for name, steps in last.items()
        for step in steps
        if step > updates[name]
    ]


def _lacks(scale: Scale, data: Path) -> list[str]:
    """Return what is wrong with the snapshots, or which files are missing if no heuristic has all of its files."""
    last = {scale.models[name].snapshots[-1:] for name in MODELS}
    if len(last) > 1 or not all(last):
        return [f"snapshots of {' and '.join(MODELS)} that end at the same update"]
    missing = snapshots_missing(scale, MODELS)
    if missing:
        return missing
    listing = DataFiles([data])
    for task in scale.settings("gpt1_updates", UpdateSettings).tasks:
        try:
            listing.locate(all_tasks()[task].sources)
        except HeadwaterError:
            missing += [" or ".join(source.names) for source in all_tasks()[task].sources if source.needed]
        else:
            return []
    return [f"a set of the heuristics ({'; '.join(dict.fromkeys(missing))})"]


def _label(model: str, step: int) -> str:
    return f"{MODELS[model]}, {step:,} updates"


def _name(model: str, seed: int, step: int, task: str) -> str:
    return f"{model}, seed {seed}, {step} updates, {task}"


def _draw(figure: object, curves: Mapping[str, Curve]) -> None:
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
    paper_tables=("gpt1-figure-2-right",),
)
