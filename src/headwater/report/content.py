"""Read the content of a report from folders: runs, results, samples, fine-tuned models, and their lineage.

The kind in `headwater.json` selects the reader, which returns plain rows and numbers for the template.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.config import read_toml
from headwater.errors import FolderError, duration
from headwater.report.claims import KIND, Reproduction, read_reproduction
from headwater.report.plots import Point
from headwater.shipped import hub_name
from headwater.storage import (
    MANIFEST,
    Manifest,
    input_place,
    intact_json_lines,
    lineage,
    open_folder,
    read_json,
    read_manifest,
)

SHOWN = ("run", "results", "samples", "model", KIND)  # kinds that a report shows
_Z95 = 1.96  # of the normal distribution
_SHARES = ("accuracy", "exact match")  # how the names of metrics begin that are shares of right answers
EXPONENT_FROM = 1e9  # larger numbers are shown with an exponent: a perplexity can have hundreds of digits
_BREAKS_IN_A_ROW = 2
_SCRATCH = "from scratch"
_LINE = ("step", "tokens", "loss")  # keys of every line of a journal
_FOLLOWED = "zero-shot "  # prefix of zero-shot scores in the journal of pre-training


@dataclass(frozen=True)
class RunSummary:
    """One pre-training run: its losses over tokens, and its sizes."""

    name: str
    training: Sequence[Point]
    held_out: Sequence[Point]
    facts: Mapping[str, str]
    complete: bool
    followed: Mapping[str, Sequence[Point]] = field(default_factory=dict)  # zero-shot scores while training


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
    chance: float | None = None
    majority: float | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    note: str = ""
    is_scratch: bool = False  # a model trained from random weights
    is_baseline: bool = False  # a linear model on the same rows


@dataclass(frozen=True)
class Token:
    """One token of a sample: its text and its probability."""

    text: str
    probability: float

    @property
    def step(self) -> int:
        """Rarity from 0 to 4: probability at least 1/2, 1/5, 1/20, 1/100, less."""
        return sum(self.probability < bound for bound in (0.5, 0.2, 0.05, 0.01))


@dataclass(frozen=True)
class Sample:
    """One continuation of a prompt."""

    prompt: str
    tokens: Sequence[Token]
    settings: str


@dataclass(frozen=True)
class Content:
    """The content of a report.

    steps: the lineages of all folders, as `storage.lineage` returns them. corpora: the corpus folders.
    """

    runs: Sequence[RunSummary]
    bars: Sequence[Bar]
    scores: Sequence[ScoreRow]
    skipped: Sequence[tuple[str, str]]
    samples: Sequence[Sample]
    fine_tuned: Sequence[tuple[str, Sequence[ScoreRow]]]
    steps: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    reproductions: Sequence[Reproduction] = ()
    corpora: Sequence[Path] = ()


def read_content(folders: Sequence[Path]) -> Content:
    """Read Headwater folders, or those inside other folders; raises FolderError for a folder without any."""
    found = _expand(folders)
    kinds: dict[str, list[tuple[Path, Manifest]]] = {kind: [] for kind in SHOWN}
    for path, manifest in found:
        kinds.get(manifest.kind, []).append((path, manifest))
    bars: list[Bar] = []
    scores: list[ScoreRow] = []
    skipped: list[tuple[str, str]] = []
    base, steps = _common_parent(found), dict[str, dict[str, Any]]()
    results = [(read_json(path / "results.json"), path, manifest) for path, manifest in kinds["results"]]
    places = [_model_place(str(one["model"]), path, manifest, base) for one, path, manifest in results]
    named = Counter(_model_name(place) for place in set(places))
    for (one, _, _), place in zip(results, places, strict=True):
        name = _model_name(place)
        _read_results(one, name if named[name] == 1 else place, bars, scores, skipped)
    names = {path: _add_steps(lineage(path), base, steps) for path, _ in found}
    models = [(path, manifest) for path, manifest in kinds["model"] if (path / "metrics.json").exists()]
    return Content(
        runs=[_read_run(path, manifest, names[path]) for path, manifest in kinds["run"]],
        bars=_ordered(bars),
        scores=scores,
        skipped=skipped,
        samples=[sample for path, _ in kinds["samples"] for sample in _read_samples(path)],
        fine_tuned=_read_fine_tuned(models),
        steps=list(steps.values()),
        versions=found[-1][1].versions if found else {},
        reproductions=[read_reproduction(path, names[path]) for path, _ in kinds[KIND]],
        corpora=[path for path, manifest in found if manifest.kind == "corpus"],
    )


def _expand(folders: Sequence[Path]) -> list[tuple[Path, Manifest]]:
    """Return the Headwater folders among `folders`, and those inside the others."""
    found: dict[Path, Manifest] = {}
    for folder in folders:
        if (folder / MANIFEST).exists():
            found[folder] = read_manifest(folder)
            continue
        if not folder.is_dir():
            seen = "is a file" if folder.exists() else "does not exist"
            raise FolderError(f"{folder} {seen}", expected="a folder to report on")
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
        inside += sorted(
            path.parent for path in folder.glob(f"*/*/{MANIFEST}") if path.parent.parent not in inside
        )
        inside = [path for path in inside if not path.name.startswith(".")]
        if not inside:
            raise FolderError(f"{folder} contains no folder that a Headwater command wrote")
        found |= {path: read_manifest(path) for path in inside}
    for path, manifest in found.items():
        if manifest.complete:
            open_folder(path)
    return list(found.items())


def _common_parent(found: Sequence[tuple[Path, Manifest]]) -> Path:
    paths = [str(path.resolve().parent) for path, _ in found]
    try:
        return Path(os.path.commonpath(paths))
    except ValueError:  # on different drives
        return Path.cwd()


def _read_run(path: Path, manifest: Manifest, name: str) -> RunSummary:
    training: list[Point] = []
    held_out: list[Point] = []
    followed: dict[str, list[Point]] = {}
    last: dict[str, Any] = {}
    journal = path / "metrics.jsonl"
    for line in intact_json_lines(journal) if journal.exists() else ():
        if not all(isinstance(line.get(key), int | float) for key in _LINE):
            continue
        training.append((line["tokens"], line["loss"]))
        if "validation_loss" in line:
            held_out.append((line["tokens"], line["validation_loss"]))
        for key, value in line.items():
            if key.startswith(_FOLLOWED):
                followed.setdefault(key.removeprefix(_FOLLOWED), []).append((line["tokens"], value))
        last = line
    config = read_toml(path / "config.toml") if (path / "config.toml").exists() else {}
    model = config.get("model", {})
    facts = {}
    if {"layers", "width"} <= model.keys():
        facts["model"] = f"{model['layers']} layers × {model['width']}"
    if "context" in config:
        facts["context"] = f"{config['context']:,} tokens"
    if "vocabulary" in model:
        facts["vocabulary"] = f"{model['vocabulary']:,}"
    if last:
        facts["updates"] = f"{last['step']:,}"
        facts["tokens read"] = f"{last['tokens']:,}"
        facts["training time"] = duration(float(last.get("seconds", 0)))
    return RunSummary(name, training, held_out, facts, manifest.complete, followed)


def _model_place(model: str, folder: Path, manifest: Manifest, base: Path) -> str:
    """Return the path of the evaluated model, relative to `base` if it is below it.

    Return `model` for a shipped or hub model, and if the manifest has no model.
    """
    inputs = [one.path for one in manifest.inputs if one.role == "model"]
    if model in shipped.names() or not inputs:
        return model
    place = input_place(folder, inputs[0])
    if hub_name(place):
        return model
    place = place.parent.resolve() / place.name  # a link keeps its own name
    return place.relative_to(base).as_posix() if place.is_relative_to(base) else str(place)


def _model_name(model: str) -> str:
    return shipped.name_of(Path(model))


def _read_results(
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
        low, high = interval(entry["metric"], entry["value"], error, entry["count"])
        scores.append(
            ScoreRow(
                name=entry["protocol"],
                metric=entry["metric"],
                value=entry["value"],
                low=low,
                high=high,
                count=entry["count"],
                chance=entry.get("chance"),
                published=entry["published"],
                model=model,
                note=origin,
            )
        )
    for entry in content["skipped"]:
        some = f"{entry['examples']:,} examples left out: " if entry["examples"] else ""
        skipped.append((entry["protocol"], some + entry["reason"]))


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share, factor = right / count, 1 + _Z95**2 / count
    middle = (share + _Z95**2 / (2 * count)) / factor
    half = _Z95 / factor * math.sqrt(share * (1 - share) / count + _Z95**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(
    metric: str, value: float, error: float | None, count: int
) -> tuple[float, float] | tuple[None, None]:
    """Return the 95 % interval of a score; Wilson's for a share of 0 or 1."""
    if error is None:
        return None, None
    if value in (0, 1) and metric.startswith(_SHARES):
        return wilson(round(value * count), count)
    return value - _Z95 * error, value + _Z95 * error


def _ordered(bars: Sequence[Bar]) -> list[Bar]:
    """Sort the bars, best first, without repeated yardsticks."""
    unique = {(bar.name, round(bar.value, 6)): bar for bar in bars}
    return sorted(unique.values(), key=lambda bar: bar.value)


def _read_samples(path: Path) -> Iterator[Sample]:
    for entry in read_json(path / "samples.json"):
        names = {"temperature": "temperature", "top_k": "top-k", "top_p": "top-p", "seed": "seed"}
        settings = [f"{name} {entry[key]}" for key, name in names.items() if entry.get(key) is not None]
        tokens = [Token(str(token["text"]), float(token["probability"])) for token in entry["tokens"]]
        yield Sample(str(entry["prompt"]), _shorten_breaks(str(entry["prompt"]), tokens), ", ".join(settings))


def _shorten_breaks(before: str, tokens: Sequence[Token]) -> list[Token]:
    """Replace each line break after two consecutive ones by `↵`, to save space."""
    shown = []
    breaks = len(before) - len(before.rstrip("\n"))
    for token in tokens:
        text = ""
        for character in token.text:
            breaks = breaks + 1 if character == "\n" else 0
            text += character if breaks <= _BREAKS_IN_A_ROW else "↵"
        shown.append(Token(text, token.probability))
    return shown


def _read_fine_tuned(models: Sequence[tuple[Path, Manifest]]) -> list[tuple[str, Sequence[ScoreRow]]]:
    """Return one table of fine-tuned models for each training set and task."""
    groups: dict[tuple[str, str], list[tuple[str, ScoreRow]]] = {}
    for path, manifest in models:
        metrics = read_json(path / "metrics.json")
        train = next((entry for entry in manifest.inputs if entry.role == "train"), None)
        # The metrics of a regression have the task classify, whose input it shares, but no majority class.
        task = "regress" if metrics["task"] == "classify" and "majority" not in metrics else str(metrics["task"])
        title = _task_title(path, train.path if train else "", task)
        scratch = manifest.config.get("from_scratch")
        low, high = metrics["interval"]
        score = ScoreRow(
            name=_SCRATCH if scratch else "from the pre-trained weights",
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


def _task_title(path: Path, train: str, task: str) -> str:
    """Return a title such as `package (classify)`: the task of the labels folder, or the file's name."""
    if not train:
        return task
    source = input_place(path, train)
    folder = source if (source / MANIFEST).exists() else source.parent
    if (folder / MANIFEST).exists():
        named = read_manifest(folder).config.get("task")
        if named:
            return f"{named} ({task})"
    return f"{source.name} ({task})"


def _add_steps(entry: Mapping[str, Any], base: Path, steps: dict[str, dict[str, Any]]) -> str:
    """Add the folders of a lineage to `steps` by name, each once and after its inputs; return its root's name."""
    sources = [_add_steps(inner, base, steps) for inner in entry["inputs"]]
    is_url = "://" in entry["path"]
    place = entry["path"] if is_url else str(Path(entry["path"]).resolve())
    names = [place] if is_url else _names(place, base)
    name = next(name for name in names if name not in steps or steps[name]["place"] == place)
    found = {"command": "", "seed": None, **entry, "name": name, "place": place, "sources": sources}
    steps.setdefault(name, found)
    return name


def _names(place: str, base: Path) -> Iterator[str]:
    """Yield possible names of a folder: its path from `base`, its last part, its last two parts, and so on."""
    path = Path(place)
    if path.is_relative_to(base):
        yield path.relative_to(base).as_posix()
    for count in range(1, len(path.parts)):
        yield "/".join(path.parts[-count:])
    yield place
