"""The content of metrics.json: what the model is measured on, and what it is compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.train import TrainingOutcome, measure_probabilities
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.baseline import compare
from headwater.finetuning.results.metrics import by_class, confused_pairs
from headwater.storage import Progress

METRICS_FILE = "metrics.json"
_MOST_PAIRS = 20  # of confused classes


def measure(prepared: Prepared, outcome: TrainingOutcome) -> dict[str, Any]:
    """Return the content of metrics.json without the baselines."""
    parts, encoded, tuned = prepared.parts, prepared.encoded, outcome.fine_tuned
    metrics = _summary(prepared, outcome) | _by_class(outcome, encoded["validation"])
    metrics["tests"] = {
        name: _on_test(tuned, encoded[name], tuned.probabilities(encoded[name])) for name in parts.tests
    }
    if prepared.continued is not None:
        metrics["continued"] = prepared.continued
    if prepared.seen is not None:
        new = prepared.seen.new_rows(parts.validation.rows)
        metrics["new_rows"] = {"count": int(new.sum())}
        if new.any() and not new.all():
            on_new = measure_probabilities(tuned, encoded["validation"].targets[new], outcome.probabilities[new])
            metrics["new_rows"] |= on_new[outcome.metric]
    return metrics


def add_baselines(
    metrics: dict[str, Any],
    prepared: Prepared,
    outcome: TrainingOutcome,
    known: dict[str, dict[str, Any]] | None,
    progress: Progress,
) -> None:
    """Measure the baseline on validation and the tests, unless it is `known`, and add it to the metrics."""
    config, parts = prepared.config, prepared.parts
    if known is None:
        rows = {part: ([row.segments for row in rows], parts.targets[part]) for part, rows in parts.rows.items()}
        progress.start("baseline")
        known = compare(
            config.task,
            parts.labels,
            outcome.metric,
            rows.pop("train"),
            rows,
            seed=config.training.seed,
            class_weight=config.class_weight,
        )
        progress.finish(str(known["validation"]["name"]))
    metrics["baseline"] = known["validation"]
    for name, test in metrics["tests"].items():
        if name in known:
            test["baseline"] = known[name]


def _on_test(fine_tuned: FineTuned, encoded: Encoded, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return the metrics of a test part, on its rows with text and label; only the counts if there is none."""
    known = encoded.known
    figures: dict[str, Any] = {"count": len(encoded), "labelled": int(known.sum())}
    if known.any():
        figures |= measure_probabilities(fine_tuned, encoded.targets[known], probabilities[known])
    return figures


def _by_class(outcome: TrainingOutcome, validation: Encoded) -> dict[str, Any]:
    """Return the metrics of each class, and a warning if only one is predicted."""
    labels, decided = outcome.fine_tuned.labels, outcome.fine_tuned.decide(outcome.probabilities)
    if labels.target == "labels":
        return {"warnings": [], "classes": by_class(validation.targets, decided, labels.names)}
    if labels.target != "class":
        return {"warnings": []}
    truth, chosen = validation.targets.astype(np.int64), decided.astype(np.int64)
    warnings = []
    if len(set(chosen.tolist())) == 1 and len(set(truth.tolist())) > 1:
        warnings.append(
            f"the model predicts {labels.names[chosen[0]]!r} for all {len(chosen):,} validation rows; "
            "try more epochs, a larger --learning-rate or --set class_weight=balanced"
        )
    classes = by_class(truth, chosen, labels.names)
    confused = confused_pairs(truth, chosen, labels.names, _MOST_PAIRS)
    return {"warnings": warnings, "classes": classes, "confused": confused}


def _summary(prepared: Prepared, outcome: TrainingOutcome) -> dict[str, Any]:
    parts, train, validation = prepared.parts, prepared.encoded["train"], prepared.encoded["validation"]
    best = outcome.best_entry()
    labels = outcome.fine_tuned.labels
    summary: dict[str, Any] = {
        "task": outcome.fine_tuned.task,
        "metric": outcome.metric,
        **best[outcome.metric],
        "count": len(validation),
        "selected_on_validation": len(outcome.curve) > 1,
    }
    if outcome.start is not None:
        summary["start"] = asdict(outcome.start)
    if labels.target in ("labels", "class", "answer"):
        summary["accuracy"] = best["accuracy"]["value"]
        summary["accuracy_interval"] = best["accuracy"]["interval"]
    if labels.target in ("labels", "class"):
        summary["macro_f1"] = best["macro_f1"]["value"]
    if labels.target in ("class", "answer"):
        majority = Counter(train.targets.astype(np.int64).tolist()).most_common(1)[0][0]
        summary["majority"] = float((validation.targets == majority).mean())
        if labels.target == "class":
            summary["chance"] = 1 / labels.outputs
            summary["majority_class"] = labels.names[majority]
        else:
            summary["chance"] = float(np.mean(1 / np.diff(validation.first)))
            summary["majority_class"] = str(labels.first_answer + majority)
    return summary | {
        "best_step": outcome.best_step,
        "steps": outcome.steps,
        "counts": {"train": len(train), "validation": len(validation)},
        "validation_split_off": parts.split_off,
        "data": prepared.figures,
        "truncated": {
            name: {"examples": int(np.count_nonzero(part.cut)), "tokens": int(part.cut.sum())}
            for name, part in (("train", train), ("validation", validation))
        },
        "curve": outcome.curve,
        "learning_rate": {"value": outcome.learning_rate},
    }
