"""Scores in a report: of held-out text, of zero-shot protocols, and of fine-tuned models next to their baselines.

Every score names its model. `compare` arranges the scores of several models as a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.display import counted, counted_examples
from headwater.intervals import of_score
from headwater.reading import intact_json_lines, read_json
from headwater.storage import Manifest

EXPONENT_FROM = 1e9  # larger numbers, such as a random model's perplexity, are shown with an exponent


@dataclass(frozen=True)
class Bar:
    """Held-out bits per byte of a model (`is_model`) or a yardstick."""

    name: str
    value: float
    stderr: float | None
    is_model: bool
    note: str = ""
    text: str = ""  # which held-out text: bars of one text are comparable


@dataclass(frozen=True)
class ScoreRow:
    """One row of a table of scores: the value and its 95 % interval, if it has one."""

    name: str
    metric: str
    value: float
    low: float | None
    high: float | None
    count: int
    examples: str = ""  # the number in words, with how many there are if a limit left out some
    chance: float | None = None
    majority: float | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    without_overlap: tuple[float, int] | None = None  # the score without them, and their number
    is_scratch: bool = False  # a model trained from random weights
    is_baseline: bool = False  # a linear model on the same rows


def compare(scores: Sequence[ScoreRow]) -> dict[tuple[str, str], dict[str, ScoreRow]]:
    """Return the score of each model by protocol and metric, in the order of `scores`."""
    rows: dict[tuple[str, str], dict[str, ScoreRow]] = {}
    for score in scores:
        rows.setdefault((score.name, score.metric), {}).setdefault(score.model, score)
    return rows


def read_scores(content: Mapping[str, Any], model: str) -> tuple[list[Bar], list[ScoreRow], list[tuple[str, str]]]:
    """Return what `results.json` has: held-out bits per byte, other scores, and what was skipped with the reason.

    model: its name on the page.
    """
    origin = (
        f"ships with Headwater, trained on {shipped.TRAINED_ON}" if content["model"] in shipped.names() else ""
    )
    bars, scores, skipped = list[Bar](), list[ScoreRow](), list[tuple[str, str]]()
    for entry in content["results"]:
        if entry["metric"] == "bits per byte" and entry["task"] == "heldout":
            bars += _held_out_bars(entry, model, origin)
        else:
            scores.append(_score_row(entry, model))
    for entry in content["skipped"]:
        some = f"{entry['examples']:,} examples left out: " if entry["examples"] else ""
        skipped.append((entry["protocol"], some + entry["reason"]))
    return bars, scores, skipped


def _held_out_bars(entry: Mapping[str, Any], model: str, origin: str) -> Iterator[Bar]:
    """Yield the bars of a model and of its yardsticks; `origin` is what the model was trained on, if it ships."""
    details, count = entry["details"], entry["count"]
    tokens, size = details.get("tokens"), details.get("bytes")
    part = f"{count:,} of {details['available']:,} held-out documents" if "available" in details else ""
    note = "; ".join(filter(None, (origin, f"{tokens:,} held-out tokens" if tokens else "", part)))
    text = f"{counted(count, 'document')}, {size:,} bytes" if size else ""
    text += _lost(details)
    yield Bar(model, entry["value"], entry["stderr"], True, note, text)
    for yardstick in details.get("yardsticks", []):
        size = yardstick["training_bytes"]
        whole = details.get("training text bytes", size)
        share = f" of {whole / 1e6:.1f}" if whole > size else ""
        note = f"has read {size / 1e6:.1f}{share} MB of the training text" if size else ""
        yield Bar(yardstick["name"], yardstick["bits_per_byte"], None, False, note, text)


def _lost(details: Mapping[str, Any]) -> str:
    """Return what a tokenizer loses of the scored text: losses are comparable only where that is equal."""
    lost = details.get("lost text", {}).get("lost", 0.0)
    return f"; {lost:.1%} of the text is lost by the tokenizer" if lost else ""


def _score_row(entry: Mapping[str, Any], model: str) -> ScoreRow:
    name, cut = entry["protocol"], entry["details"].get("cut contexts", 0)
    if entry.get("higher_is_better") is False:
        name += _lost(entry["details"])
    if cut:
        name += f"; {counted(cut, 'context')} cut to fit the model"
    overlap = entry["details"].get("overlap", {})
    has_score = overlap.get("value without") is not None
    short = overlap.get("cannot be judged", 0)
    unjudged = f", {short:,} too short to be judged for overlap" if short else ""
    low, high = of_score(entry["metric"], entry["value"], entry["stderr"], entry["count"])
    return ScoreRow(
        name=name,
        metric=entry["metric"],
        value=entry["value"],
        low=low,
        high=high,
        count=entry["count"],
        examples=counted_examples(entry["count"], entry["details"]) + unjudged,
        chance=entry.get("chance"),
        published=entry["published"],
        model=model,
        without_overlap=(float(overlap["value without"]), int(overlap["examples"])) if has_score else None,
    )


def order_bars(bars: Sequence[Bar]) -> list[Bar]:
    """Sort the bars, best first, without repeated yardsticks; those of one held-out text are together."""
    unique = {(bar.text, bar.name, round(bar.value, 6)): bar for bar in bars}
    texts = [*dict.fromkeys(bar.text for bar in bars)]
    return sorted(unique.values(), key=lambda bar: (texts.index(bar.text), bar.value))


def read_fine_tuned(models: Sequence[tuple[Path, Manifest]]) -> list[tuple[str, Sequence[ScoreRow]]]:
    """Return one table of fine-tuned models for each training set, task, metric and set of validation rows."""
    tables: dict[tuple[str, ...], tuple[str, list[ScoreRow]]] = {}
    for path, manifest in models:
        metrics = read_json(path / "metrics.json")
        train = next((entry for entry in manifest.inputs if entry.role == "train"), None)
        task, metric = _task_name(metrics), str(metrics["metric"])
        measured, identity = _validation_rows(path, manifest, metrics)
        group = (train.identity if train else str(path), task, metric, identity)
        name = f"{_file_name(train.path_from(path))} ({task})" if train else task
        _, rows = tables.setdefault(group, (f"{name}: {metric} on {measured}", []))
        rows.append(_tuned_row(path, manifest, metrics))
        if baseline := metrics.get("baseline"):
            row = _baseline_row(rows[-1], baseline)
            if row not in rows:  # models with the same rows have the same baseline
                rows.append(row)
    return [
        (title, sorted(rows, key=lambda row: (row.is_baseline, row.is_scratch, row.model)))
        for title, rows in tables.values()
    ]


def _task_name(metrics: Mapping[str, Any]) -> str:
    """Return the task; a regression has the task classify, whose input it shares."""
    target = metrics["target"]
    task = "regress" if metrics["task"] == "classify" and target == "score" else str(metrics["task"])
    return f"{task}, several labels" if target == "labels" else task


def _tuned_row(path: Path, manifest: Manifest, metrics: Mapping[str, Any]) -> ScoreRow:
    scratch, is_accuracy = bool(manifest.config.get("from_scratch")), metrics["metric"] == "accuracy"
    low, high = metrics["interval"]
    return ScoreRow(
        name="from scratch" if scratch else "from the pre-trained weights",
        metric=str(metrics["metric"]),
        value=float(metrics["value"]),
        low=low,
        high=high,
        count=int(metrics["count"]),
        chance=metrics.get("chance") if is_accuracy else None,
        majority=metrics.get("majority") if is_accuracy else None,
        model=path.name,
        is_scratch=scratch,
    )


def _baseline_row(tuned: ScoreRow, baseline: Mapping[str, Any]) -> ScoreRow:
    """Return the score of a baseline on the rows of a fine-tuned model."""
    name, value, (low, high) = f"baseline: {baseline['name']}", float(baseline["value"]), baseline["interval"]
    return replace(tuned, name=name, value=value, low=low, high=high, model="", is_scratch=False, is_baseline=True)


def _validation_rows(path: Path, manifest: Manifest, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Return which rows measured a fine-tuned model, in words and as an identity: a file, or a split by seed."""
    file = next((entry for entry in manifest.inputs if entry.role == "validation"), None)
    if file is not None:
        return file.path_from(path).name, file.identity
    seed = "" if manifest.seed is None else f" by seed {manifest.seed}"
    words = "all rows by cross-validation" if metrics.get("cross_validated") else "rows split off"
    rows = [line.get("row") for line in intact_json_lines(path / "predictions-validation.jsonl")]
    return f"{words}{seed}", f"{words}{seed} {rows}"


def _file_name(path: Path) -> str:
    """Return the name of a file with that of its folder, such as `source/train.jsonl`."""
    return f"{path.parent.name}/{path.name}"
