"""The content of metrics.json: what the model is measured on, and what it is compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.finetuning.learning.choose import Learned
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.train import TrainingOutcome, measure_probabilities
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.baseline import compare
from headwater.finetuning.results.calibration import calibrate, reliability
from headwater.finetuning.results.metrics import by_class, confused_pairs
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import Seen, row_hash
from headwater.storage import Progress

METRICS_FILE = "metrics.json"
_FEW_ROWS = 10  # with fewer, no figure is worth much
_MOST_PAIRS, _RAREST = 20, 5  # confused and rare classes that are shown


def measure(learned: Learned) -> dict[str, Any]:
    """Calibrate the model, and return the content of metrics.json without the baselines."""
    prepared, outcome = learned.prepared, learned.outcome
    parts, encoded, tuned = prepared.parts, prepared.encoded, outcome.fine_tuned
    calibration = calibrate(outcome, encoded["validation"])
    classes = prepared.about_rows.get("classes", {})
    metrics: dict[str, Any] = _summary(prepared, outcome) | {"warnings": []}
    if parts.validation.rows:
        metrics |= _by_class(outcome, encoded["validation"], classes)
        metrics["warnings"] += _weak_figure_warnings(metrics)
    metrics["tests"] = {
        name: _on_test(tuned, encoded[name], tuned.probabilities(encoded[name])) for name in parts.tests
    }
    if prepared.continued is not None:
        metrics["continued"] = prepared.continued | _compared(prepared, outcome)
        metrics["warnings"] += _continuation_warnings(prepared, metrics)
    if prepared.seen is not None:
        new = prepared.seen.new_rows(parts.validation.rows)
        metrics["new_rows"] = {"count": int(new.sum())}
        if new.any() and not new.all():
            on_new = measure_probabilities(tuned, encoded["validation"].targets[new], outcome.probabilities[new])
            metrics["new_rows"] |= on_new[outcome.metric]
    metrics["learning_rate"]["reason"] = prepared.given.rate_reason(prepared.shape)
    if learned.rates:
        metrics["learning_rate"]["tried"] = learned.rates
    metrics["features"] = prepared.config.features
    return metrics | {"calibration": calibration, "recipe": learned.recipe, "recipes": learned.recipes}


def add_baselines(
    metrics: dict[str, Any],
    prepared: Prepared,
    outcome: TrainingOutcome,
    progress: Progress,
) -> None:
    """Measure the baseline on validation and the tests, and add it to the metrics."""
    config, parts = prepared.config, prepared.parts
    if not parts.validation.rows and not parts.tests:
        return
    progress.start("baseline")
    rows = {part: ([row.segments for row in rows], parts.targets[part]) for part, rows in parts.rows.items()}
    measured = compare(
        config.task,
        parts.labels,
        outcome.metric,
        rows.pop("train"),
        rows,
        seed=config.seed,
        class_weight=config.class_weight,
        fold=parts.fold if parts.cross_validated else None,
    )
    progress.finish(*[one["name"] for one in measured.values()][:1])
    if "validation" in measured:
        metrics["baseline"] = measured["validation"]
    for name, test in metrics["tests"].items():
        if name in measured:
            test["baseline"] = measured[name]


def _on_test(fine_tuned: FineTuned, encoded: Encoded, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return the metrics of a test part, on its rows with text and label; only the counts if there is none."""
    known = encoded.known
    figures: dict[str, Any] = {"count": len(encoded), "labelled": int(known.sum())}
    if known.any():
        targets, labels = encoded.targets[known], fine_tuned.labels
        figures |= measure_probabilities(fine_tuned, targets, probabilities[known])
        if labels.target != "score":
            figures["calibration"] = reliability(labels, targets, probabilities[known])
    return figures


def _compared(prepared: Prepared, outcome: TrainingOutcome) -> dict[str, Any]:
    """Return the metric of the model that was continued, `before`, on validation rows that neither was trained on.

    If these are not all, also that of the new model on them, `after`, and how many they are, `rows_new_to_both`.
    """
    start, validation, parts = prepared.start, prepared.encoded["validation"], prepared.parts
    assert start is not None
    trained = (prepared.seen or Seen()).extended(parts.train.rows, ()).train
    new = np.array([row_hash(row) not in trained for row in parts.validation.rows], dtype=np.bool_)
    found: dict[str, Any] = {}
    if not new.all():
        found["rows_new_to_both"] = int(new.sum())
    if not new.any():
        return found
    unknown = replace(validation, targets=np.full_like(validation.targets, np.nan))  # it may not have their labels
    shares = start.probabilities(unknown)
    padded = np.zeros_like(outcome.probabilities)
    padded[:, : shares.shape[1]] = shares
    for name, predicted in (("before", padded), ("after", outcome.probabilities))[: 1 if new.all() else 2]:
        figures = measure_probabilities(outcome.fine_tuned, validation.targets[new], predicted[new])
        found[name] = figures[outcome.metric]
    return found


def _weak_figure_warnings(metrics: dict[str, Any]) -> list[str]:
    """Return warnings if the figures are those of very few rows, or not better than guessing."""
    warnings = []
    if metrics["count"] < _FEW_ROWS:
        rows = counted(metrics["count"], "row")
        warnings.append(f"{rows} cannot tell a good model from a bad one: give --validation FILE, or more rows")
    if "chance" in metrics and metrics["accuracy"] < metrics["chance"]:
        warnings.append(
            f"accuracy {metrics['accuracy']:.3f} is below chance, {metrics['chance']:.3f}: these rows do not "
            "teach the labels; correct or add rows, or take another base: --model"
        )
    return warnings


def _continuation_warnings(prepared: Prepared, metrics: dict[str, Any]) -> list[str]:
    """Return warnings if the model that was continued is better, or if rows of its training are missing."""
    parts, seen, continued = prepared.parts, prepared.seen, metrics["continued"]
    base, warnings = continued["from"], []
    before, after = continued.get("before"), continued.get("after", metrics)
    if before and before["value"] > after["value"]:
        warnings.append(
            f"{base} is better on the same rows: {metrics['metric']} {before['value']:.3f}, now "
            f"{after['value']:.3f}"
        )
    if not before and parts.validation.rows:
        warnings.append(f"not compared with {base}: each row to measure on was trained on")
    if seen is not None and (missing := seen.missing([*parts.train.rows, *parts.validation.rows])):
        total = len(seen.train | seen.validation)
        warnings.append(
            f"{missing:,} of the {counted(total, 'row')} that {base} learned from or was measured on are not in "
            "these rows: the model may forget what only they teach, and the metrics do not show it; add them"
        )
    return warnings


def _by_class(outcome: TrainingOutcome, validation: Encoded, training: dict[str, int]) -> dict[str, Any]:
    """Return the metrics of each class, and a warning if only one is predicted; training: rows of each class."""
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
    f1, rows = {one["class"]: one["f1"] for one in classes}, Counter(training)
    rarest = [{"class": name, "rows": rows[name], "f1": f1[name]} for name in sorted(f1, key=rows.__getitem__)]
    return {"warnings": warnings, "classes": classes, "confused": confused, "rarest": rarest[:_RAREST]}


def _summary(prepared: Prepared, outcome: TrainingOutcome) -> dict[str, Any]:
    parts, train, validation = prepared.parts, prepared.encoded["train"], prepared.encoded["validation"]
    best = outcome.best_entry()
    labels = outcome.fine_tuned.labels
    summary: dict[str, Any] = {
        "task": outcome.fine_tuned.task,
        "target": labels.target,
        "metric": outcome.metric,
        **best.get(outcome.metric, {}),
        "count": len(validation),
        "selected_on_validation": len(outcome.curve) > 1,
    }
    if outcome.start is not None:
        summary["start"] = asdict(outcome.start)
    if len(validation):
        summary |= _further_figures(best, labels, train, validation)
    return summary | {
        "best_step": outcome.best_step,
        "steps": outcome.steps,
        "counts": {"train": len(train), "validation": len(validation)},
        "validation_split_off": parts.split_off,
        "cross_validated": parts.cross_validated,
        "data": prepared.about_rows,
        "truncated": {
            name: {"examples": int(np.count_nonzero(part.cut)), "tokens": int(part.cut.sum())}
            for name, part in (("train", train), ("validation", validation))
        },
        "curve": outcome.curve,
        "learning_rate": {"value": outcome.learning_rate},
    }


def _further_figures(best: dict[str, Any], labels: Labels, train: Encoded, validation: Encoded) -> dict[str, Any]:
    """Return what metrics.json has of the validation rows next to the metric, and of guesses at them."""
    summary: dict[str, Any] = {}
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
    return summary
