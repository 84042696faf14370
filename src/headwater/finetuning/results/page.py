"""`report.html` of a fine-tuning: curves, confusion matrix, the most confident mistakes and their explanations.

The page, rendered from `report.html.j2`, is one file without scripts or external resources and follows the
reader's light or dark mode. The template escapes all text from the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.baseline import ADVICE
from headwater.finetuning.results.explanation import explain
from headwater.finetuning.results.metrics import confusion_matrix
from headwater.finetuning.rows.row import Raw
from headwater.report import Series, line_chart, template

# Wrong predictions shown, and the most classes of a printed confusion matrix.
_MISTAKES, _MOST_CLASSES = 12, 24
_IN_TERMINAL, _SHORT = 3, 120  # mistakes, and characters of each


def page(
    fine_tuned: FineTuned,
    metrics: Mapping[str, Any],
    rows: Sequence[Raw],
    encoded: Encoded,
    probabilities: npt.NDArray[np.float32],
) -> tuple[str, list[dict[str, Any]]]:
    """Return the page, about the validation rows and their predicted probabilities, and the first few mistakes.

    Of each mistake: {"row", "label", "predicted", "text"}, a long text shortened.
    """
    labels, curve, name = fine_tuned.labels, metrics["curve"], metrics["metric"]
    losses = [
        Series("training loss", [(p["step"], p["training_loss"]) for p in curve], marked=True),
        Series("validation loss", [(p["step"], p["validation_loss"]) for p in curve], marked=True),
    ]
    measured = [Series(f"validation {name}", [(p["step"], p[name]["value"]) for p in curve], marked=True)]
    confusion: list[tuple[str, list[int]]] = []
    if labels.target == "class" and labels.outputs <= _MOST_CLASSES:
        truth, chosen = encoded.targets.astype(np.int64), probabilities.argmax(axis=1).astype(np.int64)
        counts = confusion_matrix(truth, chosen, labels.outputs).astype(int).tolist()
        confusion = list(zip(labels.names, counts, strict=True))
    wrong = _mistakes(fine_tuned, encoded, probabilities)
    cases = [_case(fine_tuned, rows[n], probabilities[n]) for n in wrong]
    written: str = template(Path(__file__).with_name("report.html.j2")).render(
        task=fine_tuned.task,
        metrics=metrics,
        baseline=_of_baseline(metrics),
        coverage=_calibration(metrics)[1].get("coverage", []),
        calibration=_of_probabilities(metrics),
        losses=losses,
        loss_chart=Markup(line_chart(losses, "updates", "loss")),
        measured_metric=measured,
        metric_chart=Markup(line_chart(measured, "updates", name)),
        confusion=confusion,
        is_score=labels.target == "score",
        wrong=cases,
    )
    return written, [
        {key: case[key] for key in ("row", "label", "predicted")} | {"text": _shortened(rows[n])}
        for n, case in zip(wrong[:_IN_TERMINAL], cases, strict=False)
    ]


def _shortened(row: Raw) -> str:
    text = " ".join(" ".join(row.segments).split())
    return text if len(text) <= _SHORT else f"{text[:_SHORT]} …"


def card(base: str, fine_tuned: FineTuned, metrics: Mapping[str, Any]) -> str:
    """Return the folder's README.md: the scores, tests first; then rows, classes, rate, licence and limits."""
    rate, counts, name = metrics["learning_rate"], metrics["counts"], metrics["metric"]
    scores = [
        f"- {test.capitalize()} {name}: {_with_interval(measured[name])}, {measured['labelled']:,} rows\n"
        for test, measured in metrics["tests"].items()
        if name in measured
    ]
    shown_lines = [f"- {line}\n" for line in result_lines(metrics)]
    chosen = ", chosen on these rows" if metrics["selected_on_validation"] else ""
    measured_on, rows = "Validation", f"{counts['train']:,} to train on, {counts['validation']:,} to validate on"
    if metrics["cross_validated"]:
        measured_on, rows = "Cross-validated", f"{counts['train']:,}, all trained on"
    classes = metrics["data"]["classes"]
    shown = ", ".join(f"{label}: {count:,}" for label, count in list(classes.items())[:20])
    return (
        f"# {base}, fine-tuned\n\nFor the task {fine_tuned.task}, by Headwater, from the base {base}.\n\n"
        f"{''.join(scores)}- {measured_on} {name}: {_with_interval(metrics)}{chosen}\n"
        f"{''.join(shown_lines)}"
        f"- Rows: {rows}\n"
        f"- Training rows of each label: {shown}{', …' if len(classes) > 20 else ''}\n"
        f"- Learning rate: {rate['value']:g}, {rate['reason']}; {metrics['curve'][-1]['epoch']:g} epochs\n"
        "- Licence: that of the base and of the rows; see the base's card\n"
        "- Limits: it knows these labels alone, and texts like the training rows; at most "
        f"{fine_tuned.model.model.config.context:,} tokens of a text are read\n\n"
        "    headwater predict --model FOLDER FILE --out predictions.csv\n\n"
        "`report.html` shows curves and mistakes, `metrics.json` every figure.\n"
    )


def result_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the baseline and on the calibration of the probabilities."""
    return [_of_baseline(metrics), *_of_probabilities(metrics)]


def _calibration(metrics: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the rows that the probabilities are measured on, those of a test if there is one, and the figures."""
    for name, test in metrics["tests"].items():
        if "calibration" in test:
            return f"{name} rows", test["calibration"]
    return "validation rows, which chose the temperature", metrics.get("calibration") or {}


def _of_probabilities(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the calibration of the probabilities, on test rows if there are any."""
    if (fitted := metrics.get("calibration")) is None:
        return []
    if "slope" in fitted:
        return [
            f"Scores: spread by the factor {fitted['slope']:.3g}, by {fitted['rows']:,} validation rows; they can "
            "lie beyond those of the training rows."
        ]
    where, measured = _calibration(metrics)
    sure = next(one for one in measured["coverage"] if one["share"] == 0.8)
    return [
        f"Probabilities: off by {measured['ece']:.3f} on average (ECE, {where}) with the temperature "
        f"{fitted['temperature']:.3g}; by {fitted['ece_before']:.3f} on validation rows without it.",
        f"The surest 80 % of these rows, from a probability of {sure['threshold']:.2f}, are right at "
        f"{sure['accuracy']:.3f}: headwater predict --threshold {sure['threshold']:.2f}.",
    ]


def _with_interval(measured: Mapping[str, Any]) -> str:
    low, high = measured["interval"]
    return f"{measured['value']:.3f} [{low:.3f}, {high:.3f}]"


def _of_baseline(metrics: Mapping[str, Any]) -> str:
    """Return the baseline's result on the same rows and, if the model does not beat it, what to try."""
    if (baseline := metrics.get("baseline")) is None:
        return "No baseline was measured."
    shown = f"Baseline ({baseline['name']}): {metrics['metric']} {_with_interval(baseline)}"
    recipes = metrics.get("recipes", {})
    if "probe" in recipes:
        shown += f"; a regression on the base's features: {_with_interval(recipes['probe'])}"
    if metrics["value"] > baseline["value"]:
        return f"{shown}."
    if metrics["value"] == baseline["value"] == 1:
        return f"{shown}. Both have every row right: use the baseline, or validate on more rows and harder ones."
    if len(recipes) > 1:
        return f"{shown}. No start of this base beats TF-IDF: {ADVICE}."
    return f"{shown}. The model does not beat it: {ADVICE}, or leave --set recipe out."


def _mistakes(
    fine_tuned: FineTuned, encoded: Encoded, probabilities: npt.NDArray[np.float32]
) -> npt.NDArray[np.intp]:
    """Return the most confident mistakes; for scores the largest errors."""
    decided = fine_tuned.decide(probabilities)
    if fine_tuned.labels.target == "score":
        return np.argsort(-np.abs(decided - encoded.targets), kind="stable")[:_MISTAKES]
    order = np.argsort(-probabilities.max(axis=1), kind="stable")
    right = (decided == encoded.targets).reshape(len(decided), -1).all(axis=1)[order]
    return order[~right][:_MISTAKES]


def _case(fine_tuned: FineTuned, row: Raw, share: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return one row with its prediction, and its text in pieces with the tint of each."""
    prediction, labels, output = fine_tuned.prediction(row.row, share), fine_tuned.labels, int(share.argmax())
    is_score = labels.target == "score"
    largest = max(labels.levels) - min(labels.levels) if is_score else 1.0
    pieces, segment = [], 0
    for piece in explain(fine_tuned, row.segments, output):
        pieces.append(
            {
                "text": piece.text,
                "change": piece.change,
                "tint": _tint(piece.change / largest),
                "new_segment": piece.segment != segment,
            }
        )
        segment = piece.segment
    predicted = prediction.label if is_score else f"{_named(prediction.label)} ({share[output]:.0%})"
    return {"row": row.row, "predicted": predicted, "label": _named(row.label), "pieces": pieces}


def _named(label: Any) -> Any:
    """Return a label as it is shown: several are joined."""
    return (", ".join(label) or "none") if isinstance(label, list | tuple) else label


def _tint(change: float) -> str:
    """Return the background of a word that changes the answer by this share; empty for a small change."""
    strength = min(0.6, 0.6 * abs(change))
    if strength < 0.03:
        return ""
    return f"rgba(var({'--for' if change > 0 else '--against'}), {strength:.2f})"
