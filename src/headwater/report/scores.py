"""Scores in a report: of held-out text, of zero-shot protocols, and of fine-tuned models next to their baselines.

Every score names its model. `compare` arranges the scores of several models as a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.errors import counted_examples
from headwater.intervals import of_score
from headwater.reading import read_json
from headwater.storage import Input, Manifest, has_manifest, read_manifest

EXPONENT_FROM = 1e9  # larger numbers, such as a random model's perplexity, are shown with an exponent
_SCRATCH = "from scratch"


@dataclass(frozen=True)
class Bar:
    """Held-out bits per byte of a model (`is_model`) or a yardstick; `ships` marks Headwater's own model."""

    name: str
    value: float
    stderr: float | None
    is_model: bool
    note: str = ""
    ships: bool = False


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
    note: str = ""
    higher_is_better: bool = True
    without_overlap: tuple[float, int] | None = None  # the score without them, and their number
    is_scratch: bool = False  # a model trained from random weights
    is_baseline: bool = False  # a linear model on the same rows


@dataclass(frozen=True)
class MatrixRow:
    """One metric of one protocol for several models; `best` is the model whose interval is above all others'."""

    name: str
    metric: str
    scores: Mapping[str, ScoreRow]
    best: str | None

    @property
    def first(self) -> ScoreRow:
        """One of the scores: chance and the papers' values are the same for all."""
        return next(iter(self.scores.values()))


def compare(scores: Sequence[ScoreRow]) -> list[MatrixRow]:
    """Return one row for each protocol and metric, in the order of `scores`, with the score of each model."""
    rows: dict[tuple[str, str], dict[str, ScoreRow]] = {}
    for score in scores:
        rows.setdefault((score.name, score.metric), {}).setdefault(score.model, score)
    return [MatrixRow(name, metric, row, _best(row)) for (name, metric), row in rows.items()]


def _best(row: Mapping[str, ScoreRow]) -> str | None:
    """Return the model whose interval is better than and apart from every other's; None if there is none."""
    if len(row) < 2 or any(score.low is None for score in row.values()):
        return None
    sign = 1 if next(iter(row.values())).higher_is_better else -1
    ends = {model: sorted((sign * (s.low or 0.0), sign * (s.high or 0.0))) for model, s in row.items()}
    best = max(ends, key=lambda model: ends[model][0])
    return best if all(ends[best][0] > high for model, (_, high) in ends.items() if model != best) else None


def _without_overlap(measured: Mapping[str, Any]) -> tuple[float, int] | None:
    if measured.get("value without") is None:
        return None
    return float(measured["value without"]), int(measured["examples"])


def read_scores(
    content: Mapping[str, Any],
    model: str,
    bars: list[Bar],
    scores: list[ScoreRow],
    skipped: list[tuple[str, str]],
) -> None:
    """Add the scores of `results.json` to the lists; `model` is the name of the model on the page."""
    ships = content["model"] in shipped.names()
    origin = f"ships with Headwater, trained on {shipped.TRAINED_ON}" if ships else ""
    for entry in content["results"]:
        error = entry["stderr"]
        if entry["metric"] == "bits per byte" and entry["task"] == "heldout":
            tokens = entry["details"].get("tokens")
            documents = entry["details"].get("documents", 0)
            part = f"{entry['count']:,} of {documents:,} held-out documents" if documents > entry["count"] else ""
            note = "; ".join(filter(None, (origin, f"{tokens:,} held-out tokens" if tokens else "", part)))
            bars.append(Bar(model, entry["value"], error, True, note, ships))
            for yardstick in entry["details"].get("yardsticks", []):
                size = yardstick["training_bytes"]
                whole = entry["details"].get("training text bytes", size)
                share = f" of {whole / 1e6:.1f}" if whole > size else ""
                note = f"has read {size / 1e6:.1f}{share} MB of the training text" if size else ""
                bars.append(Bar(yardstick["name"], yardstick["bits_per_byte"], None, False, note))
            continue
        low, high = of_score(entry["metric"], entry["value"], error, entry["count"])
        scores.append(
            ScoreRow(
                name=entry["protocol"],
                metric=entry["metric"],
                value=entry["value"],
                low=low,
                high=high,
                count=entry["count"],
                examples=counted_examples(entry["count"], entry["details"]),
                chance=entry.get("chance"),
                published=entry["published"],
                model=model,
                note=origin,
                higher_is_better=entry.get("higher_is_better", True),
                without_overlap=_without_overlap(entry["details"].get("overlap", {})),
            )
        )
    for entry in content["skipped"]:
        some = f"{entry['examples']:,} examples left out: " if entry["examples"] else ""
        skipped.append((entry["protocol"], some + entry["reason"]))


def order_bars(bars: Sequence[Bar]) -> list[Bar]:
    """Sort the bars, best first, without repeated yardsticks."""
    unique = {(bar.name, round(bar.value, 6)): bar for bar in bars}
    return sorted(unique.values(), key=lambda bar: bar.value)


def read_fine_tuned(models: Sequence[tuple[Path, Manifest]]) -> list[tuple[str, Sequence[ScoreRow]]]:
    """Return one table of fine-tuned models for each training set and task."""
    groups: dict[tuple[str, str], list[tuple[str, ScoreRow]]] = {}
    for path, manifest in models:
        metrics = read_json(path / "metrics.json")
        train = next((entry for entry in manifest.inputs if entry.role == "train"), None)
        # The metrics of a regression have the task classify, whose input it shares, but no majority class.
        task = "regress" if metrics["task"] == "classify" and "majority" not in metrics else str(metrics["task"])
        title = _task_title(path, train, task)
        scratch = manifest.config.get("from_scratch")
        low, high = metrics["interval"]
        start = (
            f"from {metrics['continued']['from']}" if "continued" in metrics else "from the pre-trained weights"
        )
        score = ScoreRow(
            name=_SCRATCH if scratch else start,
            metric=str(metrics["metric"]),
            value=float(metrics["value"]),
            low=low,
            high=high,
            count=int(metrics["count"]),
            chance=metrics.get("chance") if metrics["metric"] == "accuracy" else None,
            majority=metrics.get("majority") if metrics["metric"] == "accuracy" else None,
            model=path.name,
            is_scratch=bool(scratch),
        )
        group = groups.setdefault((train.identity if train else str(path), task), [])
        group.append((title, score))
        if baseline := metrics.get("baseline"):
            name, (low, high) = f"baseline: {baseline['name']}", baseline["interval"]
            value = float(baseline["value"])
            row = replace(
                score, name=name, value=value, low=low, high=high, model="", is_scratch=False, is_baseline=True
            )
            if all(row != other for _, other in group):  # models with the same rows have the same baseline
                group.append((title, row))
    tables: list[tuple[str, Sequence[ScoreRow]]] = []
    for group in groups.values():
        scores = sorted(
            (score for _, score in group), key=lambda one: (one.is_baseline, one.is_scratch, one.model)
        )
        tables.append((group[0][0], scores))
    return tables


def _task_title(path: Path, train: Input | None, task: str) -> str:
    """Return a title such as `package (classify)`: the task of the labels folder, or the file's name."""
    if train is None:
        return task
    source = train.path_from(path)
    folder = source if has_manifest(source) else source.parent
    if has_manifest(folder):
        named = read_manifest(folder).config.get("task")
        if named:
            return f"{named} ({task})"
    return f"{source.name} ({task})"
