"""`headwater finetune` as a stage: from a model folder and labelled files to a fine-tuned model folder.

Beside the model lie `metrics.json` (every figure, with its interval, against chance and the majority class),
`config.toml` (resolved) and `report.html`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headwater.errors import DataError, MismatchError
from headwater.finetune import check
from headwater.finetune.examples import Labels, Raw, learn_labels, read_rows, to_examples
from headwater.finetune.fine_tuned import predict_probabilities
from headwater.finetune.inputs import Encoded, encode
from headwater.finetune.training import (
    FinetuneConfig,
    Outcome,
    measure_probabilities,
    prepare_base,
    train_task,
)
from headwater.model.folder import load_model
from headwater.progress import SILENT, Progress
from headwater.provenance import Stage
from headwater.storage import read_json, write_json
from headwater.tokenizer import Tokenizer
from headwater.train.parallel import choose_device

METRICS_FILE = "metrics.json"


@dataclass
class Parts:
    """The rows of a training, checked, and what their labels mean."""

    train: check.Usable
    validation: check.Usable
    test: check.Usable | None
    labels: Labels
    split_off: bool


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    model: Path,
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    tokenizer: Path | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fine-tune the model in folder `model` and write folder `out`; returns what its metrics.json holds.

    With `config.from_scratch` only the model's shape and tokenizer are used. Without `validation` a part of
    `train` is split off. `test` is measured once, at the end. `tokenizer` is a folder, where the model's has none.
    Returns at once when `out` is complete. Raises DataError for tables that cannot be learned from, FolderError
    for folders, UsageError for configuration.
    """
    inputs = {"model": model, "train": train, "validation": validation, "test": test, "tokenizer": tokenizer}
    stage = Stage(
        out,
        kind="model",
        config=config.to_dict(),
        inputs={role: path for role, path in inputs.items() if path is not None},
        seed=config.seed,
    )
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        return dict(read_json(out / METRICS_FILE))
    parts = read_parts(config, train, validation, test)
    base, extended = prepare_base(
        config, load_model(model, device=choose_device("auto")), load_tokenizer(tokenizer or model)
    )
    figures, notes = check.report(parts.train, parts.validation, parts.labels)
    encoded = encode_part(parts.train.rows, config, parts.labels, str(train), extended, base.config.context)
    held = str(validation or train)
    measured = encode_part(parts.validation.rows, config, parts.labels, held, extended, base.config.context)
    for note in [*notes, *_truncation_notes(encoded, measured)]:
        progress.note(note)
    with stage.write() as work:
        outcome = train_task(config, base, extended, encoded, measured, parts.labels, progress)
        metrics = summarise(outcome, encoded, measured, parts, figures)
        if parts.test is not None and test is not None:
            final = encode_part(parts.test.rows, config, parts.labels, str(test), extended, base.config.context)
            probabilities = predict_probabilities(outcome.fine_tuned.model, final, parts.labels)
            metrics["test"] = {
                "count": len(final),
                **measure_probabilities(outcome.fine_tuned, final, probabilities),
            }
        outcome.fine_tuned.save(work)
        config.save(work / "config.toml")
        write_json(work / METRICS_FILE, metrics)
    return metrics


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that lies in a model folder."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise MismatchError(
            f"{folder} has no tokenizer beside its weights",
            expected="tokenizer.json",
            repair="Give the tokenizer's folder with --tokenizer",
        )
    return Tokenizer.load(folder)


def read_parts(config: FinetuneConfig, train: Path, validation: Path | None, test: Path | None = None) -> Parts:
    """Read and check all rows, learn the labels from the training rows, split validation off where needed."""
    parts = [_usable(config, path) for path in (train, validation, test) if path is not None]
    labels = learn_labels(parts[0].rows, config.task, config.target, str(train))
    if validation is not None:
        return Parts(parts[0], parts[1], parts[2] if test else None, labels, split_off=False)
    kept, held = check.split(parts[0].rows, config.validation_share, config.seed, labels)
    if not kept or not held:
        raise DataError(
            f"{train} has {len(parts[0].rows)} usable rows, too few to split a validation part off",
            expected="at least two rows of each class",
        )
    sides = [check.Usable(kept, parts[0].empty, parts[0].unlabelled), check.Usable(held, 0, 0)]
    return Parts(sides[0], sides[1], parts[1] if test else None, labels, split_off=True)


def encode_part(
    rows: Sequence[Raw], config: FinetuneConfig, labels: Labels, name: str, tokenizer: Tokenizer, context: int
) -> Encoded:
    """Rows as the model reads them."""
    return encode(to_examples(rows, labels, name), config.task, tokenizer, context)


def summarise(
    outcome: Outcome, train: Encoded, validation: Encoded, parts: Parts, figures: dict[str, Any]
) -> dict[str, Any]:
    """What metrics.json holds."""
    best = next(point for point in outcome.curve if point["step"] == outcome.best_step)
    labels = outcome.fine_tuned.labels
    chosen = best[outcome.metric]
    summary: dict[str, Any] = {
        "task": outcome.fine_tuned.task,
        "metric": outcome.metric,
        "value": chosen["value"],
        "interval": chosen["interval"],
        "count": len(validation),
        "selected_on_validation": len(outcome.curve) > 1,
    }
    if labels.target != "score":
        targets = train.targets.astype(np.int64)
        majority = Counter(targets.tolist()).most_common(1)[0][0]
        summary["accuracy"] = best["accuracy"]["value"]
        summary["accuracy_interval"] = best["accuracy"]["interval"]
        summary["chance"] = (
            float(np.mean(1 / np.diff(validation.first))) if labels.target == "answer" else (1 / labels.outputs)
        )
        summary["majority"] = float((validation.targets == majority).mean())
        summary["majority_class"] = (
            labels.names[majority] if labels.target == "class" else str(labels.first_answer + majority)
        )
    return summary | {
        "best_step": outcome.best_step,
        "steps": outcome.steps,
        "counts": {"train": len(train), "validation": len(validation)},
        "validation_split_off": parts.split_off,
        "data": figures,
        "truncated": {
            name: {"examples": part.truncation.examples, "tokens": part.truncation.tokens}
            for name, part in (("train", train), ("validation", validation))
        },
        "curve": outcome.curve,
    }


def _usable(config: FinetuneConfig, path: Path) -> check.Usable:
    rows = islice(read_rows(path, config.task, config.columns), config.limit)
    return check.usable(rows, config.task, str(path))


def _truncation_notes(train: Encoded, validation: Encoded) -> list[str]:
    notes = []
    for name, part in (("training", train), ("validation", validation)):
        sentence = part.truncation.sentence(len(part))
        if sentence:
            notes.append(f"{name}: {sentence}")
    return notes
