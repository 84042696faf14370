"""The twelve sets of GPT-1 at a scale: so many rows of each, and the four variants of table 5 fine-tuned on
them.

Rows are taken evenly over a part, since some files are sorted by their source. What was taken is a stage of its
own, so that a fine-tuned model names the very rows that it saw.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headwater.datasets.benchmarks import Benchmark
from headwater.datasets.rows import Raw
from headwater.datasets.sets import BY_NAME, Found, find, is_there
from headwater.errors import DataError, UsageError, nearest
from headwater.finetune.examples import to_examples
from headwater.finetune.fine_tuned import FineTuned
from headwater.finetune.finetuning import Parts, arrange_parts, run_stage
from headwater.finetune.metrics import OF_CONFUSION, OF_SCORES, confusion_matrix
from headwater.finetune.task_sets import table_rows
from headwater.finetune.training import FinetuneConfig, measure_probabilities
from headwater.reproduce.items import Items, ItemValues, average, pseudo_values
from headwater.reproduce.laboratory import Laboratory, evenly_placed
from headwater.reproduce.scale import Rows, Scale
from headwater.reproduce.statistics import NORMAL, Measured
from headwater.storage.files import read_json, read_text, write_json, write_json_lines
from headwater.storage.provenance import open_folder
from headwater.storage.stage import Stage
from headwater.train.parallel import choose_device

FOLDER = "finetune"  # below the data folder
# How far a class's share may be off among n rows that were taken, times 1/√n: six deviations of a random draw.
_FAR_OFF = 3.0


@dataclass(frozen=True)
class Variant:
    """One row of table 5: which model of the scale, and what fine-tuning does otherwise."""

    name: str
    title: str
    model: str = "gpt1"
    changes: Mapping[str, Any] | None = None


# GPT-1, table 5. "Without pre-training" changes that alone: the auxiliary objective stays.
FULL = Variant("full", "Transformer with auxiliary objective (full)")
NO_PRETRAINING = Variant("no-pretraining", "Transformer without pre-training", changes={"from_scratch": True})
NO_AUXILIARY = Variant("no-auxiliary", "Transformer without auxiliary objective", changes={"lambda_lm": 0.0})
LSTM = Variant("lstm", "LSTM with auxiliary objective", model="lstm")
VARIANTS = (FULL, NO_PRETRAINING, NO_AUXILIARY, LSTM)


@dataclass(frozen=True)
class FinetunedScore:
    """One figure of one fine-tuned model on one test part; `baseline` is what blind answers get.

    error: standard error of the value over the test examples. items: one value for each test example, of which
    `value` is the mean (for a metric that is not a mean over examples, jackknife pseudo-values).
    folder: of the fine-tuned model.
    """

    task: str
    metric: str
    value: float
    published: float | None
    examples: int
    trained_on: int
    baseline: float
    remarks: Sequence[str]
    error: float = 0.0
    items: Items | None = None
    folder: Path | None = None


def sets_there(scale: Scale, wanted: Sequence[str], data: Path) -> tuple[list[str], list[str]]:
    """Of the sets wanted, those that the scale takes rows of and whose files are there, and the others."""
    there: list[str] = []
    left_out: list[str] = []
    for name in wanted:
        is_here = is_there(_benchmark(name), data / FOLDER) and name in scale.labelled.sets
        (there if is_here else left_out).append(name)
    return there, left_out


def sets_missing(scale: Scale, wanted: Sequence[str], data: Path) -> list[str]:
    """What an experiment on these sets lacks where not one of them is there; see Experiment."""
    there, _ = sets_there(scale, wanted, data)
    return [] if there else [f"one of the sets {', '.join(wanted)} ({FOLDER}) with rows in the scale"]


def left_out_note(sets: Sequence[str]) -> list[str]:
    """A note on sets that are left out; none where there is none."""
    return [f"Not at hand, so left out: {', '.join(sets)}."] if sets else []


def piece_names(sets: Sequence[str], variants: Sequence[Variant], seeds: Sequence[int]) -> set[tuple[str, str]]:
    """The work that `fine_tune` does, as the laboratory counts it, with the pre-training before it."""
    names = {("pre-training", f"{variant.model}, seed {seed}") for variant in variants for seed in seeds}
    for one in sets:
        names |= {
            (f"fine-tuning on {one}", f"{variant.name}, seed {seed}") for variant in variants for seed in seeds
        }
    return names


class _Tuned(NamedTuple):
    """A fine-tuned model: its folder, its configuration, its metrics, and the folder of its rows."""

    folder: Path
    config: FinetuneConfig
    metrics: dict[str, Any]
    rows: Path


def _tuned(
    laboratory: Laboratory,
    benchmark: str,
    variant: Variant,
    seed: int,
    layers: int | None,
    base: Path | None = None,
) -> _Tuned:
    rows = sample_set(laboratory, benchmark)
    task = _benchmark(benchmark)
    model = base or laboratory.model(variant.model, seed)
    config = FinetuneConfig.build(
        laboratory.scale.labelled.recipe,
        {
            "task": task.task,
            "target": task.target,
            "metric": task.metric,
            "validation_share": task.validation_share,
            "seed": seed,
        },
        variant.changes or {},
        {} if layers is None else {"transfer_layers": layers},
        source="labelled.recipe",
    )
    label = variant.name if layers is None else f"{layers} layers"
    name = f"tuned-{benchmark}-{label.replace(' ', '-')}-{seed}"
    out = laboratory.place(name, config.to_dict(), {"model": model, "rows": rows})
    with laboratory.piece(f"fine-tuning on {benchmark}", f"{label}, seed {seed}", out):
        metrics = run_stage(
            config.model_copy(update={"device": laboratory.device}),
            out,
            lambda: _parts(config, rows),
            model=model,
            tokenizer=None,
            inputs={"rows": rows},
            progress=laboratory.progress,
        )
    return _Tuned(out, config, metrics, rows)


def fine_tune(
    laboratory: Laboratory,
    benchmark: str,
    variant: Variant,
    seed: int,
    *,
    layers: int | None = None,
    base: Path | None = None,
) -> list[FinetunedScore]:
    """Fine-tune one variant on one set; with `layers`, only so many blocks come from pre-training.

    base: a model folder in place of the variant's. Returns the set's own metric for each test part,
    or for validation where there is no test part with labels.
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
            baseline=_baseline(rows, row["task"], row["metric"], metrics.get("majority")),
            remarks=row["remarks"],
            error=(row["interval"][1] - row["interval"][0]) / (2 * NORMAL),
            items=_items(f"{benchmark} {row['task']}", out, row["task"], row["metric"]),
            folder=out,
        )
        for row in table_rows(Found(task, [], None, {}, {}, list(remarks)), metrics)
        if row["metric"] == task.metric
    ]


def training_score(
    laboratory: Laboratory, benchmark: str, seed: int, layers: int | None, count: int
) -> dict[str, float]:
    """Return {"value", "error", "examples"} of the full model on at most `count` of the rows it learned from."""
    out, config, _, rows = _tuned(laboratory, benchmark, FULL, seed, layers)
    asked = {"count": count}
    inputs = {"model": out, "rows": rows}
    place = laboratory.place(f"training-score-{benchmark}-{seed}", asked, inputs)
    stage = Stage(place, kind="training score", config=asked, inputs=inputs)
    if not stage.is_complete():
        learned = _parts(config, rows).train.rows
        chosen = [learned[int(index)] for index in evenly_placed(len(learned), count)]
        tuned = FineTuned.load(out, device=choose_device(laboratory.device, training=False))
        encoded = tuned.encode(to_examples(chosen, tuned.labels, "train"))
        found = measure_probabilities(tuned, encoded, tuned.probabilities(encoded))[_benchmark(benchmark).metric]
        low, high = found["interval"]
        score = {"value": found["value"], "error": (high - low) / (2 * NORMAL), "examples": len(chosen)}
        with stage.write() as work:
            write_json(work / "score.json", score)
    return dict(read_json(place / "score.json"))


def over_parts(seeds: Sequence[Sequence[FinetunedScore]]) -> Measured:
    """Return the mean over the test parts of a set, one value a seed; the parts share no examples."""
    measured = Measured()
    for scores in seeds:
        known = [score.items for score in scores if score.items is not None]
        measured.add(
            math.fsum(score.value for score in scores) / len(scores),
            math.hypot(*(score.error for score in scores)) / len(scores),
            average(known) if len(known) == len(scores) else None,
        )
    return measured


def _items(name: str, folder: Path, task: str, metric: str) -> Items | None:
    values = _item_values(folder, task, metric)
    return None if values is None else {name: values}


def _item_values(folder: Path, task: str, metric: str) -> ItemValues | None:
    """Return the values by item of a fine-tuned model's predictions; None where it has no labelled predictions."""
    path = folder / f"predictions-{task}.jsonl"
    path = path if path.exists() else folder / "predictions-validation.jsonl"
    if not path.exists():
        return None
    rows = [json.loads(line) for line in read_text(path).split("\n") if line]
    if any(row["label"] is None for row in rows):
        return None
    ids = tuple(str(row["row"]) for row in rows)
    if metric == "accuracy":
        right = [float(str(row["label"]) == str(row["prediction"])) for row in rows]
        return ItemValues(ids, np.array([right]))
    if metric in OF_SCORES:
        score = OF_SCORES[metric]
        truth, predicted = (np.array([float(row[key]) for row in rows]) for key in ("label", "prediction"))
        return ItemValues(ids, pseudo_values(truth, predicted, lambda a, b: float(score(a, b)))[None])
    names = sorted({str(row[key]) for row in rows for key in ("label", "prediction")})
    if metric not in OF_CONFUSION or len(names) != 2:  # F1 is that of the second of two classes
        return None
    of_confusion = OF_CONFUSION[metric]
    first, second = (
        np.array([float(names.index(str(row[key]))) for row in rows]) for key in ("label", "prediction")
    )
    values = pseudo_values(
        first,
        second,
        lambda a, b: float(of_confusion(confusion_matrix(a.astype(np.int64), b.astype(np.int64), 2))),
    )
    return ItemValues(ids, values[None])


def sample_set(laboratory: Laboratory, benchmark: str) -> Path:
    """The rows of a set that the scale takes, as a folder of JSON Lines, one file a part."""
    return laboratory.once(("rows", benchmark), lambda: _sample_set(laboratory, benchmark))


def _sample_set(laboratory: Laboratory, benchmark: str) -> Path:
    taken = laboratory.scale.labelled.sets[benchmark]
    found = find(_benchmark(benchmark), laboratory.data / FOLDER)
    if found is None:
        raise DataError(
            f"{laboratory.data / FOLDER} does not hold {benchmark}", repair="headwater finetune --download"
        )
    config = {"set": benchmark, "rows": taken.to_dict(), "remarks": found.remarks}
    out = laboratory.place(f"rows-{benchmark}", config, found.paths)
    stage = Stage(out, kind="labelled rows", config=config, inputs=found.paths)
    if not stage.is_complete():
        for part, rows in (("train", evenly(found.train, taken.train)), *_tests(found, taken.test)):
            if len({str(row.label) for row in rows}) < 2:
                raise DataError(
                    f"the {len(rows):,} rows of {benchmark}'s part {part} have one label",
                    expected="two classes at least",
                    repair=f"Take more rows in labelled.sets.{benchmark}, or leave the set out",
                )
        with stage.write() as work:
            _write(work / "train.jsonl", evenly(found.train, taken.train))
            if found.validation is not None:
                _write(work / "validation.jsonl", evenly(found.validation, taken.validation))
            for name, rows in _tests(found, taken.test):
                _write(work / f"test-{name}.jsonl", rows)
    return out


def _tests(found: Found, count: int | None) -> list[tuple[str, Sequence[Raw]]]:
    return [(name, evenly(rows, count)) for name, rows in found.tests.items()]


def evenly(rows: Sequence[Raw], count: int | None) -> Sequence[Raw]:
    """`count` of the rows, evenly over all of them, in their order.

    Raises DataError where this meets a period of the file, as it does where classes take turns: where a class has
    so many more or fewer of the taken rows than of all.
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
                f"{wanted:.0%}: the classes take turns in this file",
                repair=f"Take another number of rows, as {count - 1:,}",
            )
    return taken


def describe_rows(taken: Rows) -> str:
    """`1,000 to train, 500 to choose the epoch, 1,000 to test`."""
    parts = ((taken.train, "to train"), (taken.validation, "to choose the epoch"), (taken.test, "to test"))
    return ", ".join(f"{f'at most {count:,}' if count else 'all'} {what}" for count, what in parts)


def test_texts(rows: Path) -> list[str]:
    """The texts that a set is tested on here, one a row: the test parts, else validation, else all rows."""
    files = sorted(rows.glob("test-*.jsonl")) or [rows / "validation.jsonl"]
    files = files if files[0].exists() else [rows / "train.jsonl"]
    return [" ".join(raw.segments) for path in files for raw in _read(path)]


def _benchmark(name: str) -> Benchmark:
    if name not in BY_NAME:
        raise UsageError(
            f"the scale names the set {name!r}, which is none of GPT-1's",
            repair=nearest(name, BY_NAME).capitalize(),
        )
    return BY_NAME[name]


def _baseline(rows: Path, task: str, metric: str, majority: float | None) -> float:
    """What blind answers get: the most frequent one of the training rows, or yes always by F1, where that is best.

    A correlation of answers that are all the same counts as 0.
    """
    if metric in ("matthews", "pearson", "spearman"):
        return 0.0
    test = rows / f"test-{task}.jsonl"
    if not test.exists():
        return majority or 0.0
    most = Counter(str(raw.label) for raw in _read(rows / "train.jsonl")).most_common(1)[0][0]
    labels = [str(raw.label) for raw in _read(test)]
    share = labels.count(most) / len(labels)
    if metric == "accuracy":
        return share
    positive = labels.count("1") / len(labels)
    return 2 * positive / (1 + positive)


def _parts(config: FinetuneConfig, rows: Path) -> Parts:
    validation = rows / "validation.jsonl"
    tests = {path.stem.removeprefix("test-"): _read(path) for path in sorted(rows.glob("test-*.jsonl"))}
    benchmark = open_folder(rows).config["set"]
    names = {part: f"{benchmark} {part}" for part in ("train", "validation", *tests)}
    held = _read(validation) if validation.exists() else None
    return arrange_parts(config, _read(rows / "train.jsonl"), held, tests, names)


def _write(path: Path, rows: Sequence[Raw]) -> None:
    write_json_lines(path, ({"segments": row.segments, "label": row.label, "row": row.row} for row in rows))


def _read(path: Path) -> list[Raw]:
    rows = [json.loads(line) for line in read_text(path).split("\n") if line]
    return [Raw(tuple(row["segments"]), row["label"], row["row"]) for row in rows]
