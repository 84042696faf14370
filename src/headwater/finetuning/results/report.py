"""What a training says of itself: sentences for the terminal, `report.html`, and the card of the folder.

The page, rendered from `report.html.j2`, is one file without scripts or external resources and follows the
reader's light or dark mode. The template escapes all text from the data. A sentence is one element of the page, so
that the catalogue of a language has it whole.
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
from headwater.finetuning.results.wrong_labels import SUSPECTS_FILE
from headwater.finetuning.rows.row import Raw
from headwater.report import Series, line_chart, template

# Wrong predictions shown, and the most classes of a printed confusion matrix.
_MISTAKES, _MOST_CLASSES = 12, 24
_IN_TERMINAL, _SHORT = 3, 120  # mistakes, and characters of each
_MANY_CLASSES = 20  # of more, those with the fewest rows are named


def report_page(
    fine_tuned: FineTuned,
    metrics: Mapping[str, Any],
    rows: Sequence[Raw],
    encoded: Encoded,
    probabilities: npt.NDArray[np.float32],
) -> tuple[str, list[dict[str, Any]]]:
    """Return the page, about the validation rows and their predicted probabilities, and the first few mistakes.

    Of each mistake: {"row", "label", "predicted", "text"}, a long text shortened; of a score also "difference".
    """
    labels, name = fine_tuned.labels, metrics["metric"]
    losses, measured = _curves(metrics, bool(rows))
    wrong = _mistakes(fine_tuned, encoded, probabilities) if rows else np.zeros(0, np.intp)
    cases = [_case(fine_tuned, rows[n], probabilities[n]) for n in wrong]
    confusion: list[tuple[str, list[int]]] = []
    if rows and labels.target == "class" and labels.outputs <= _MOST_CLASSES:
        truth, chosen = encoded.targets.astype(np.int64), probabilities.argmax(axis=1).astype(np.int64)
        counts = confusion_matrix(truth, chosen, labels.outputs).astype(int).tolist()
        confusion = list(zip(labels.names, counts, strict=True))
    written: str = template(Path(__file__).with_name("report.html.j2")).render(
        task=_task(metrics),
        metrics=metrics,
        sentences=[*result_lines(metrics), *_rate_lines(metrics)],
        coverage=_calibration(metrics)[1].get("coverage", []),
        losses=losses,
        loss_chart=Markup(line_chart(losses, "updates", "loss")),
        measured_metric=measured,
        metric_chart=Markup(line_chart(measured, "updates", name)) if measured else "",
        confusion=confusion,
        is_score=labels.target == "score",
        wrong=cases,
    )
    return written, [
        {key: value for key, value in case.items() if key != "pieces"} | {"text": _shortened(rows[n])}
        for n, case in zip(wrong[:_IN_TERMINAL], cases, strict=False)
    ]


def _curves(metrics: Mapping[str, Any], validated: bool) -> tuple[list[Series], list[Series]]:
    """Return the losses over the updates, those of one head, and the metric of the validation rows."""
    curve, name = metrics["curve"], metrics["metric"]
    same = [p for p in curve if p.get("head") == "cosines"] or curve
    losses = [Series("training loss", [(p["step"], p["training_loss"]) for p in same], marked=True)]
    if not validated:
        return losses, []
    losses.append(Series("validation loss", [(p["step"], p["validation_loss"]) for p in same], marked=True))
    return losses, [Series(f"validation {name}", [(p["step"], p[name]["value"]) for p in curve], marked=True)]


def _task(metrics: Mapping[str, Any]) -> str:
    """Return the task as `--task` names it, and what its labels are if that is not plain."""
    if metrics["task"] == "classify" and metrics["target"] == "score":
        return "regress"
    return f"{metrics['task']}{', several labels' if metrics['target'] == 'labels' else ''}"


def _shortened(row: Raw) -> str:
    text = " ".join(" ".join(row.segments).split())
    return text if len(text) <= _SHORT else f"{text[:_SHORT]} …"


def card(base: str, fine_tuned: FineTuned, metrics: Mapping[str, Any]) -> str:
    """Return the folder's README.md: the scores, tests first; then rows, rate, licence and limits."""
    lines = [
        *result_lines(metrics),
        *(f"Rows: {note}" for note in metrics["data"]["notes"]),
        *_rate_lines(metrics),
        "Licence: that of the base and of the rows; see the base's card",
        "Limits: it knows these labels alone, and texts like the training rows; at most "
        f"{fine_tuned.model.model.config.context:,} tokens of a text are read",
    ]
    shown = "".join(f"- {line}\n" for line in lines)
    return (
        f"# {base}, fine-tuned\n\nFor the task {_task(metrics)}, by Headwater, from the base {base}.\n\n{shown}\n"
        "    headwater predict --model FOLDER FILE --out predictions.csv\n\n"
        "`report.html` shows curves and mistakes, `metrics.json` every figure.\n"
    )


def result_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return what was measured, in sentences: the tests first, then the validation rows; at the end warnings."""
    return [
        *_test_lines(metrics),
        *_validation_lines(metrics),
        *_baseline_lines(metrics),
        *_probability_lines(metrics),
        *_suspect_lines(metrics),
        *(f"Warning: {warning}" for warning in metrics["warnings"]),
    ]


def _test_lines(metrics: Mapping[str, Any]) -> list[str]:
    name, lines = metrics["metric"], []
    for test, measured in metrics["tests"].items():
        if name in measured:
            baseline = f"; baseline {measured['baseline']['value']:.3f}" if "baseline" in measured else ""
            shown = f"{test.capitalize()} {name} {_with_interval(measured[name])}"
            lines.append(f"{shown} on {measured['labelled']:,} rows{baseline}")
    return lines


def _validation_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the rows that the training itself measured."""
    if not metrics["count"]:
        return ["No validation figure: the base was trained on every row that could give one."]
    kind = "Cross-validated" if metrics["cross_validated"] else "Validation"
    chosen = ", which chose the state that is kept" if metrics["selected_on_validation"] else ""
    lines = [f"{kind} {metrics['metric']} {_with_interval(metrics)} on {metrics['count']:,} rows{chosen}"]
    others = {"chance": "chance", "majority": "the most common class", "macro_f1": "macro-F1"}
    if known := [f"{named} {metrics[key]:.3f}" for key, named in others.items() if key in metrics]:
        lines.append(", ".join(known))
    if len(metrics.get("classes", [])) > _MANY_CLASSES and "rarest" in metrics:
        rare = ", ".join(f"{one['class']!r} ({one['rows']:,}, F1 {one['f1']:.3f})" for one in metrics["rarest"])
        lines.append(f"Fewest training rows: {rare}")
    if "value" in (new := metrics.get("new_rows", {})):
        lines.append(f"On the {new['count']:,} new rows of them: {_with_interval(new)}")
    continued = metrics.get("continued", {})
    if "after" in continued:
        new = f"{continued['rows_new_to_both']:,} rows that neither was trained on"
        lines.append(f"On the {new}: {_with_interval(continued['after'])}")
        lines.append(f"The model that it continues has {_with_interval(continued['before'])} on them")
    elif "before" in continued:
        lines.append(f"The model that it continues has {_with_interval(continued['before'])} on the same rows")
    return lines


def _rate_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the length and the learning rate of the training."""
    rate, epochs = metrics["learning_rate"], metrics["curve"][-1]["epoch"]
    lines = [f"Learning rate {rate['value']:g}: {rate['reason']}; {epochs:g} epochs"]
    if tried := [f"{one['learning_rate']:g} ({one[metrics['metric']]:.3f})" for one in rate.get("tried", [])]:
        lines.append(f"Learning rates tried: {', '.join(tried)}")
    if step := metrics["best_step"]:
        lines.append(f"The state after update {step:,} of {metrics['steps']:,} is kept")
    return lines


def _suspect_lines(metrics: Mapping[str, Any]) -> list[str]:
    doubtful = metrics.get("suspects", {})
    if not doubtful.get("count"):
        return []
    first = ", ".join(f"{one['row']:,} ({one['label']!r} → {one['suggested']!r})" for one in doubtful["first"][:3])
    return [
        f"Labels to check: {doubtful['count']:,} of {doubtful['rows']:,} training rows; row and likelier label "
        f"of the first: {first}; all in {SUSPECTS_FILE}"
    ]


def _calibration(metrics: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the rows that the probabilities are measured on, those of a test if there is one, and the figures."""
    for name, test in metrics["tests"].items():
        if "calibration" in test:
            return f"{name} rows", test["calibration"]
    return "validation rows, which chose the temperature", metrics.get("calibration") or {}


def _probability_lines(metrics: Mapping[str, Any]) -> list[str]:
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
    several = metrics.get("target") == "labels"  # without a single probability to compare with a threshold
    advice = "" if several else f": headwater predict --threshold {sure['threshold']:.2f}"
    return [
        f"Probabilities: off by {measured['ece']:.3f} on average (ECE, {where}) with the temperature "
        f"{fitted['temperature']:.3g}; by {fitted['ece_before']:.3f} on validation rows without it.",
        f"Of the surest 80 % of these {'labels' if several else 'rows'}, from a probability of "
        f"{sure['threshold']:.2f}, {100 * sure['accuracy']:.1f} % are right{advice}.",
    ]


def _with_interval(measured: Mapping[str, Any]) -> str:
    low, high = measured["interval"]
    return f"{measured['value']:.3f} [{low:.3f}, {high:.3f}]"


def _baseline_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return the baseline's result on the same rows and, if the model does not beat it, what to try."""
    if (baseline := metrics.get("baseline")) is None:
        return ["No baseline was measured."]
    recipes = metrics.get("recipes", {})
    lines = [f"Baseline ({baseline['name']}): {metrics['metric']} {_with_interval(baseline)}"]
    if "probe" in recipes:
        kind = "Regression" if metrics.get("target") == "score" else "Logistic regression"
        lines.append(f"{kind} on the base's features: {_with_interval(recipes['probe'])}")
    if metrics["value"] > baseline["value"]:
        return lines
    if metrics["value"] == baseline["value"] == 1:
        lines.append("Both have every row right: use the baseline, or validate on more rows and harder ones.")
    elif len(recipes) > 1:
        lines.append(f"No start of this base beats TF-IDF: {ADVICE}.")
    elif metrics.get("features") == "tfidf+base":
        lines.append(f"The model does not beat it: {ADVICE}.")
    else:
        lines.append(f"The model does not beat it: {ADVICE}, or leave --set recipe out.")
    if metrics["value"] < 1 and metrics.get("task") == "classify" and metrics.get("features") == "base":
        lines.append("The base can be read together with TF-IDF: --set features=tfidf+base")
    return lines


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
    case = {"row": row.row, "predicted": prediction.label, "label": row.label}
    if is_score:
        predicted, true = float(prediction.label), float(row.label)  # type: ignore[arg-type]
        case |= {"label": true, "difference": round(predicted - true, 6)}
    else:
        case |= {
            "predicted": f"{labels.as_named(prediction.label)} ({share[output]:.0%})",
            "label": labels.as_named(row.label),
        }
    return case | {"pieces": pieces}


def _tint(change: float) -> str:
    """Return the background of a word that changes the answer by this share; empty for a small change."""
    strength = min(0.6, 0.6 * abs(change))
    if strength < 0.03:
        return ""
    return f"rgba(var({'--for' if change > 0 else '--against'}), {strength:.2f})"
