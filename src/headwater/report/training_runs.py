"""Read pre-training runs for a report: their sizes, and their curves over the tokens read.

A run that continues from a checkpoint of another one begins where that one had come to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.config import read_toml
from headwater.display import duration
from headwater.reading import intact_json_lines
from headwater.report.plots import Point
from headwater.shipped import step_of
from headwater.storage import Manifest, has_manifest, read_manifest

_LINE = ("step", "tokens", "loss")  # keys of every line of a journal
ZERO_SHOT = "zero-shot "  # prefix of scores in the journal
_MOST_BRANCHES = 20  # of branches of branches
# Files of a tokenizer that decide its ids.
_VOCABULARY = {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"}


@dataclass(frozen=True)
class RunSummary:
    """One pre-training run: its sizes, and its curves over the tokens read, by the keys of its journal.

    tokenizer: what identifies it; runs of equal ones have comparable losses.
    """

    name: str
    facts: Mapping[str, str]
    complete: bool
    curves: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    tokenizer: object = None


def read_run(path: Path, manifest: Manifest, name: str) -> RunSummary:
    """Read a run folder; `name` is its name on the page."""
    start, parent = _start(path, manifest)
    curves: dict[str, list[Point]] = {}
    last: dict[str, Any] = {}
    for line in measured_lines(path):
        for key, value in line.items():
            if isinstance(value, int | float):
                curves.setdefault(key, []).append((start + line["tokens"], value))
        last = line
    config = read_toml(path / "config.toml") if (path / "config.toml").exists() else {}
    model = config.get("model", {})
    facts = {"continues": parent} if parent else {}
    if {"layers", "width"} <= model.keys():
        facts["model"] = f"{model['layers']} layers × {model['width']}"
    if "context" in config:
        facts["context"] = f"{config['context']:,} tokens"
    if "vocabulary" in model:
        facts["vocabulary"] = f"{model['vocabulary']:,}"
    if held_out := curves.get("validation_loss"):
        facts["held-out loss"] = (
            f"{held_out[-1][1]:.3f} nats per token{_bits_per_byte(path, manifest, held_out[-1][1])}"
        )
    if last:
        facts["updates"] = f"{last['step']:,}"
        facts["tokens read"] = f"{last['tokens']:,}"
        facts["training time"] = duration(float(last.get("seconds", 0)))
    if speeds := sorted(speed for _, speed in curves.get("tokens_per_second", ())):
        facts["speed"] = f"{speeds[len(speeds) // 2]:,.0f} tokens/s"
    whole_name = f"{name} from {parent}" if parent else name
    return RunSummary(whole_name, facts, manifest.complete, curves, _tokenizer(path, manifest))


def _tokenizer(run: Path, manifest: Manifest) -> object:
    """Return the hashes of the tokenizer's files in the tokens folder or, if that is gone, in the model."""
    tokens = next((entry.path_from(run) for entry in manifest.inputs if entry.role == "tokens"), None)
    files = read_manifest(tokens).files if tokens is not None and has_manifest(tokens) else manifest.files
    return tuple(sorted(files[name].sha256 for name in files if name.rpartition("/")[2] in _VOCABULARY))


def _bits_per_byte(run: Path, manifest: Manifest, loss: float) -> str:
    """Return the held-out loss in bits per byte, by the bytes of the packed text; "" if the tokens are gone."""
    tokens = next((entry.path_from(run) for entry in manifest.inputs if entry.role == "tokens"), None)
    if tokens is None or not has_manifest(tokens):
        return ""
    counts = read_manifest(tokens).config.get("counts", {}).get("validation", {})
    return f", {loss / math.log(2) * counts['tokens'] / counts['bytes']:.3f} bits per byte" if counts else ""


def measured_lines(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics that have an update, its tokens and its loss."""
    lines = intact_json_lines(run / "metrics.jsonl")
    return [line for line in lines if all(isinstance(line.get(key), int | float) for key in _LINE)]


def _start(run: Path, manifest: Manifest) -> tuple[int, str]:
    """Return the tokens that the run's checkpoint had read, and its name, such as `run@283`; (0, "") if none."""
    tokens, first = 0, ""
    for _ in range(_MOST_BRANCHES):
        model = next((entry for entry in manifest.inputs if entry.role == "model"), None)
        checkpoint = model.path_from(run) if model is not None else run
        step = step_of(checkpoint.name) if checkpoint.parent.name == "checkpoints" else None
        parent = checkpoint.parent.parent
        if step is None or not has_manifest(parent):
            break
        first = first or f"{parent.name}@{step}"
        tokens += max((line["tokens"] for line in measured_lines(parent) if line["step"] <= step), default=0)
        run, manifest = parent, read_manifest(parent)
    return tokens, first
