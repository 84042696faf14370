"""The twelve sets of GPT-1 at a scale: a number of rows of each, and the four variants of table 5 fine-tuned on
them.

Rows are evenly spaced in a part, since some files are sorted by source. The chosen rows are a stage of their own,
so that the lineage of a fine-tuned model names the rows that it saw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headwater.device import choose_device
from headwater.errors import DataError, UsageError, suggest
from headwater.evaluation import read_json_rows
from headwater.finetuning import (
    METRICS,
    Build,
    FinetuneConfig,
    FineTuned,
    Raw,
    TaskName,
    arrange_rows,
    measure_decisions,
    run_stage,
)
from headwater.storage import Stage, open_folder, write_json_lines
from headwater_papers.items import Items, ItemValues, of_two_classes, pseudo_values
from headwater_papers.laboratory import Laboratory, evenly_placed, once
from headwater_papers.scale import Rows, Scale, trainings
from headwater_papers.statistics import NORMAL, Measured, mean_of_sets
from headwater_papers.task_sets import BY_NAME, Benchmark, find, is_there, separate_texts, table_rows

FOLDER = "finetune"  # below the data folder
# Largest deviation of a class's share among n chosen rows, times 1/√n: six deviations of a random draw.
_FAR_OFF = 3.0


@dataclass(frozen=True)
class Variant:
    """One row of table 5: a model of the scale, and changes to the fine-tuning."""

    name: str
    title: str
    model: str = "gpt1"
    changes: Mapping[str, Any] = field(default_factory=dict)
    build: Build | None = None


# GPT-1, table 5. "Without pre-training" changes that alone: the auxiliary objective stays.
FULL = Variant("full", "Transformer with auxiliary objective (full)")
NO_PRETRAINING = Variant("no-pretraining", "Transformer without pre-training", changes={"from_scratch": True})
NO_AUXILIARY = Variant("no-auxiliary", "Transformer without auxiliary objective", changes={"lambda_lm": 0.0})
LSTM = Variant("lstm", "LSTM with auxiliary objective", model="lstm")
VARIANTS = (FULL, NO_PRETRAINING, NO_AUXILIARY, LSTM)


@dataclass(frozen=True)
class FinetunedScore:
    """One metric of one fine-tuned model on one test part; `baseline` is the score of a constant answer.

    error: standard error of the value over the test examples. items: one value for each test example, whose mean
    is `value` (jackknife pseudo-values for a metric that is not a mean). folder: the fine-tuned model.
    """

    task: str
    metric: str
    value: float
    published: float | None
    examples: int
    trained_on: int
    baseline: float
    remarks: Sequence[str]
    folder: Path
    error: float = 0.0
    items: Items | None = None


def sets_there(scale: Scale, wanted: Sequence[str], data: Path) -> tuple[list[str], list[str]]:
    """Return the wanted sets that have rows in the scale and files in `data`, and the other ones."""
    there: list[str] = []
    left_out: list[str] = []
    for name in wanted:
        is_here = is_there(_benchmark(name), data / FOLDER) and name in scale.labelled.sets
        (there if is_here else left_out).append(name)
    return there, left_out


def sets_missing(scale: Scale, wanted: Sequence[str], data: Path) -> list[str]:
    """Return what is missing if none of these sets is available, in the form of `Experiment.lacks`."""
    there, _ = sets_there(scale, wanted, data)
    return [] if there else [f"one of the sets {', '.join(wanted)} ({FOLDER}) with rows in the scale"]


def left_out_note(sets: Sequence[str]) -> list[str]:
    """Return a note on sets that are left out."""
    return [f"Left out, since they are not available: {', '.join(sets)}."] if sets else []


def piece_names(scale: Scale, sets: Sequence[str], variants: Sequence[Variant]) -> set[tuple[str, str]]:
    """Return the work that `fine_tune` does, as the laboratory counts it, with the pre-training."""
    tuned = [name + _model_suffix(scale, one) for one in variants for name in trainings(scale, [one.name])]
    bases = {variant.model for variant in variants if not scale.models[variant.model].model}
    pretrained = {("pre-training", name) for name in trainings(scale, bases)}
    return pretrained | {(f"fine-tuning on {one}", name) for one in sets for name in tuned}


def _model_suffix(scale: Scale, variant: Variant) -> str:
    """Return the part of a piece's name that tells a model that exists from one that the scale trains."""
    return f" of {scale.models[variant.model].model}" if scale.models[variant.model].model else ""


def _tuned(
    laboratory: Laboratory,
    benchmark: str,
    variant: Variant,
    seed: int,
    layers: int | None,
    base: Path | None = None,
) -> tuple[Path, FinetuneConfig, dict[str, Any], Path]:
    """Return the folder of a fine-tuned model, its configuration, its metrics, and the folder of its rows."""
    rows = sample_set(laboratory, benchmark)
    model = base or laboratory.model(variant.model, seed)
    recipe = dict(laboratory.scale.labelled.recipe)
    if "steps" in variant.changes:
        recipe.pop("epochs", None)  # only one of them sets the length
    config = FinetuneConfig.build(
        recipe,
        _benchmark(benchmark).fine_tuning | {"seed": seed},
        variant.changes,
        {} if layers is None else {"transfer_layers": layers},
        source="labelled.recipe",
    )
    label = variant.name if layers is None else f"{layers} layers"
    name = f"tuned-{benchmark}-{label.replace(' ', '-')}-{seed}"
    out = laboratory.place(name, config.to_dict(), {"model": model, "rows": rows})
    piece = f"{label}, seed {seed}{_model_suffix(laboratory.scale, variant)}"
    with laboratory.piece(f"fine-tuning on {benchmark}", piece, out):
        metrics = run_stage(
            config.with_keys(device=laboratory.device),
            out,
            lambda: arrange_rows(config, tables_of(rows)),
            model=model,
            inputs={"rows": rows},
            build=variant.build,
            progress=laboratory.progress,
        )
    return out, config, metrics, rows


def fine_tune(
    laboratory: Laboratory,
    benchmark: str,
    variant: Variant,
    seed: int,
    *,
    layers: int | None = None,
    base: Path | None = None,
) -> list[FinetunedScore]:
    """Fine-tune one variant on one set; return the set's own metric for each test part.

    layers: the number of blocks that come from pre-training. base: a model folder instead of the variant's. If no
    test part has labels, the metric is measured on validation.
    """
    out, _, metrics, rows = _tuned(laboratory, benchmark, variant, seed, layers, base)
    task = _benchmark(benchmark)
    remarks = open_folder(rows).config["remarks"]
    return [
        FinetunedScore(
            task=row["task"],
            metric=row["metric"],
            value=row["value"],
            published=row["published"],
            examples=row["count"],
            trained_on=row["train"],
            baseline=constant_score(
                [str(one["label"]) for one in _predictions(out, row["task"], task.task)], row["metric"]
            ),
            remarks=row["remarks"],
            error=(row["interval"][1] - row["interval"][0]) / (2 * NORMAL),
            items=_items(f"{benchmark} {row['task']}", _predictions(out, row["task"], task.task), row["metric"]),
            folder=out,
        )
        for row in table_rows(task, remarks, metrics)
        if row["metric"] == task.metric
    ]


def training_score(
    laboratory: Laboratory, benchmark: str, seed: int, layers: int | None, count: int
) -> dict[str, float]:
    """Return {"value", "error", "examples"} of the full model on at most `count` of the rows it learned from."""
    out, config, _, rows = _tuned(laboratory, benchmark, FULL, seed, layers)

    def measure() -> dict[str, float]:
        learned = arrange_rows(config, tables_of(rows)).divided(config, crossed=False).train.rows
        chosen = [learned[int(index)] for index in evenly_placed(len(learned), count)]
        tuned = FineTuned.load(out, device=choose_device(laboratory.device, training=False))
        encoded = tuned.encode(chosen, tuned.labels, "train")
        labels, decided = tuned.labels, tuned.decide(tuned.probabilities(encoded))
        figures = measure_decisions(labels.target, encoded.targets, decided, labels.outputs)
        measured = figures[_benchmark(benchmark).metric]
        low, high = measured["interval"]
        return {"value": measured["value"], "error": (high - low) / (2 * NORMAL), "examples": len(chosen)}

    return laboratory.measured(
        f"training-score-{benchmark}-{seed}",
        "score.json",
        measure,
        kind="training score",
        name=f"{benchmark}, seed {seed}",
        config={"count": count},
        inputs={"model": out, "rows": rows},
    )


def over_parts(seeds: Sequence[Sequence[FinetunedScore]]) -> Measured:
    """Return the mean over the test parts of a set, one value a seed; the parts share no examples."""
    parts = [Measured() for _ in seeds[0]]
    for scores in seeds:
        for part, score in zip(parts, scores, strict=True):
            part.add(score.value, score.error, score.items)
    return mean_of_sets(parts)


def _items(name: str, rows: Sequence[Mapping[str, Any]], metric: str) -> Items | None:
    """Return the values by item of a fine-tuned model's predictions; None if there are none."""
    if not rows:
        return None
    ids = tuple(str(row["row"]) for row in rows)
    if metric == "accuracy":
        values = np.array([float(str(row["label"]) == str(row["prediction"])) for row in rows])
    elif metric in ("pearson", "spearman"):
        score = METRICS[metric]
        truth, predicted = (np.array([float(row[key]) for row in rows]) for key in ("label", "prediction"))
        values = pseudo_values(truth, predicted, lambda a, b: float(score(a, b)))
    else:
        names = sorted({str(row[key]) for row in rows for key in ("label", "prediction")})
        if metric not in METRICS or len(names) != 2:  # F1 is that of the second of two classes
            return None
        truth, predicted = (
            np.array([float(names.index(str(row[key]))) for row in rows]) for key in ("label", "prediction")
        )
        values = pseudo_values(truth, predicted, of_two_classes(METRICS[metric]))
    return {name: ItemValues(ids, values[None])}


def _predictions(folder: Path, part: str, task: TaskName) -> list[dict[str, Any]]:
    """Return the predictions that a test part is measured on, else those of validation."""
    for name in (part, "validation"):
        path = folder / f"predictions-{name}.jsonl"
        rows = read_json_rows(path, dict, "predictions") if path.exists() else []
        measured = [
            row for row in rows if row["label"] is not None and not Raw(tuple(row["texts"])).is_empty(task)
        ]
        if measured:
            return measured
    return []


@once
def sample_set(laboratory: Laboratory, benchmark: str) -> Path:
    """Return the rows of a set that the scale uses, as a folder with one JSON Lines file a part."""
    taken = laboratory.scale.labelled.sets[benchmark]
    located = find(_benchmark(benchmark), laboratory.data / FOLDER)
    if located is None:
        raise DataError(
            f"{laboratory.data / FOLDER} does not contain {benchmark}", repair="headwater finetune --download"
        )
    config = {"set": benchmark, "rows": taken.to_dict(), "remarks": located.remarks}
    out = laboratory.place(f"rows-{benchmark}", config, located.paths)
    stage = Stage(out, kind="labelled rows", config=config, inputs=located.paths)
    if not stage.is_complete():
        parts = {"train": evenly(located.train, taken.train)}
        parts |= {f"test-{name}": evenly(rows, taken.test) for name, rows in located.tests.items()}
        for part, rows in parts.items():
            labels = {str(row.label) for row in rows if row.label is not None}
            if len(labels) < 2 and (labels or part == "train"):  # a test part may hide all its labels
                raise DataError(
                    f"the {len(rows):,} rows of {benchmark}'s part {part} have fewer than two labels",
                    expected="at least two classes",
                    repair=f"Take more rows in labelled.sets.{benchmark}, or leave the set out",
                )
        if located.validation is not None:
            parts["validation"] = evenly(located.validation, taken.validation)
        with stage.write() as work:
            for part, rows in parts.items():
                plain = ({"segments": row.segments, "label": row.label, "row": row.row} for row in rows)
                write_json_lines(work / f"{part}.jsonl", plain)
    return out


def evenly(rows: Sequence[Raw], count: int | None) -> Sequence[Raw]:
    """Return `count` evenly spaced rows, in their order.

    Raises DataError if the share of a class among the chosen rows differs too much from its share among all. This
    happens if the classes alternate in the file, and the chosen rows are always of the same class.
    """
    if count is None or count >= len(rows):
        return rows
    taken = [rows[index * len(rows) // count] for index in range(count)]
    shares, expected = (Counter(str(row.label) for row in some) for some in (taken, rows))
    for label, number in expected.items():
        there, wanted = shares[label] / count, number / len(rows)
        if abs(there - wanted) > _FAR_OFF / math.sqrt(count):
            raise DataError(
                f"of {count:,} rows taken evenly from {len(rows):,}, {there:.0%} are of class {label}, of all "
                f"{wanted:.0%}: the classes alternate in this file",
                repair=f"Take another number of rows, such as {count - 1:,}",
            )
    return taken


def describe_rows(taken: Rows) -> str:
    """Return `1,000 to train, 500 to choose the epoch, 1,000 to test`."""
    parts = ((taken.train, "to train"), (taken.validation, "to choose the epoch"), (taken.test, "to test"))
    return ", ".join(f"{f'at most {count:,}' if count else 'all'} {what}" for count, what in parts)


def test_texts(rows: Path) -> list[str]:
    """Return the test texts of a set, one a row: those of the test parts, else of validation."""
    return [" ".join(raw.segments) for raw in _tested(rows)]


def percent_shared(benchmark: str, rows: Path) -> float:
    """Return the percentage of a set's test rows (see `test_texts`) with a text that is also in a training row."""
    task = _benchmark(benchmark).task
    known = {text for row in _read(rows / "train.jsonl") for text in separate_texts(row, task)}
    tested = _tested(rows)
    return 100 * sum(not known.isdisjoint(separate_texts(row, task)) for row in tested) / len(tested)


def _tested(rows: Path) -> list[Raw]:
    files = sorted(rows.glob("test-*.jsonl")) or [rows / "validation.jsonl"]
    return [raw for path in files for raw in _read(path)]


def _benchmark(name: str) -> Benchmark:
    if name not in BY_NAME:
        raise UsageError(
            f"the scale names the set {name!r}, which is not one of GPT-1's", **suggest(name, BY_NAME)
        )
    return BY_NAME[name]


def constant_score(labels: Sequence[str], metric: str) -> float:
    """Return the score of the best constant answer to rows with these labels: for F1 always the second class.

    For accuracy it is the most frequent class of the measured rows. The most frequent class of the training rows
    can be rarer there; then a model that always gives the other class would look better than a constant answer.
    The correlation of a constant answer counts as 0.
    """
    if metric in ("matthews", "pearson", "spearman"):
        return 0.0
    counts = Counter(labels)
    if metric == "accuracy":
        return max(counts.values()) / len(labels)
    positive = counts[max(counts)] / len(labels)
    return 2 * positive / (1 + positive)


def tables_of(rows: Path) -> dict[str, tuple[str, Iterator[Raw]]]:
    """Return the tables of a folder of `sample_set`, as fine-tuning reads them."""
    benchmark = open_folder(rows).config["set"]
    parts = {path.stem.removeprefix("test-"): path for path in sorted(rows.glob("*.jsonl"))}
    return {part: (f"{benchmark} {part}", _read(path)) for part, path in parts.items()}


def _read(path: Path) -> Iterator[Raw]:
    yield from read_json_rows(
        path, lambda row: Raw(tuple(row["segments"]), row["label"], row["row"]), "rows of a set"
    )
