"""`report.html` of a fine-tuning: curves, confusion matrix, the most confident mistakes and their explanations.

One file without scripts or external resources. It follows the reader's light or dark mode, and all text from the
data is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.datasets.rows import Raw
from headwater.finetune.baseline import ADVICE
from headwater.finetune.examples import Labels
from headwater.finetune.explain import Piece, explain
from headwater.finetune.fine_tuned import FineTuned
from headwater.finetune.inputs import Encoded
from headwater.finetune.metrics import confusion_matrix
from headwater.report.plots import Series, line_chart

# Wrong and right predictions shown, and the most classes of a printed confusion matrix.
_MISTAKES, _RIGHT, _MOST_CLASSES = 12, 4, 24

_STYLE = """
:root { --paper: #fbfaf7; --panel: #fff; --ink: #20262b; --soft: #667078; --line: #e2dfd8; --for: 28, 111, 140;
  --against: 180, 85, 45; --water: #1c6f8c; --clay: #b4552d; --moss: #5d7a3a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181b; --panel: #1b2024; --ink: #e4e2dc; --soft: #98a2a9;
  --line: #2e353a; --for: 109, 189, 214; --against: 224, 146, 106; --water: #6dbdd6; --clay: #e0926a;
  --moss: #a3c078; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 57rem; padding: 1.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Apple SD Gothic Neo", sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 1rem 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .5rem; }
p { margin: 0 0 1rem; max-width: 42rem; }
.soft { color: var(--soft); }
.big { font-size: 2.4rem; font-weight: 650; line-height: 1.2; margin: 1rem 0 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border: 1px solid var(--line); text-align: right; }
th { font-weight: 500; color: var(--soft); text-align: left; }
svg.chart { width: 100%; height: auto; display: block; } svg.narrow { display: none; }
svg text { fill: var(--soft); font-size: 12px; } .grid { stroke: var(--line); }
.series { fill: none; stroke: currentColor; stroke-width: 2; } .point { fill: currentColor; }
.s0 { color: var(--clay); } .s1 { color: var(--water); } .s2 { color: var(--moss); }
.legend span { margin-right: 1.25rem; } .legend b { display: inline-block; width: 1rem; height: 3px;
  background: currentColor; vertical-align: .22em; margin-right: .4rem; }
.case { margin: 0 0 .9rem; padding: .8rem 1rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: .6rem; overflow-wrap: anywhere; }
.case p { margin: 0; max-width: none; white-space: pre-wrap; } .case .soft { font-size: .88rem; }
.tag { font-size: .75rem; color: var(--soft); border: 1px solid var(--line); border-radius: .3rem; }
@media (max-width: 40rem) { svg.wide { display: none; } svg.narrow { display: block; } }
"""


def page(
    fine_tuned: FineTuned,
    metrics: Mapping[str, Any],
    rows: Sequence[Raw],
    encoded: Encoded,
    probabilities: npt.NDArray[np.float32],
) -> str:
    """Return the page, about the validation rows and their predicted probabilities."""
    labels = fine_tuned.labels
    parts = [_head(fine_tuned, metrics), _curves(metrics)]
    if labels.target == "class":
        parts.append(_classes(metrics))
    if labels.target == "class" and labels.outputs <= _MOST_CLASSES:
        parts.append(_confusions(labels, encoded, probabilities))
    parts.append(_cases(fine_tuned, rows, encoded, probabilities))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Fine-tuning: {escape(fine_tuned.task)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _head(fine_tuned: FineTuned, metrics: Mapping[str, Any]) -> str:
    low, high = metrics["interval"]
    lines = [
        f"<h1>Fine-tuning: {escape(fine_tuned.task)}</h1>",
        f'<p class="big">{metrics["value"]:.3f}</p>',
        f"<p>{escape(metrics['metric'])} on {metrics['count']:,} validation rows, 95&nbsp;% interval {low:.3f} to "
        f"{high:.3f}.",
    ]
    if "chance" in metrics:
        lines.append(
            f"Chance gives {metrics['chance']:.3f}; always answering {escape(str(metrics['majority_class']))}, "
            f"the commonest in training, {metrics['majority']:.3f}."
        )
    lines.append(
        f"Trained on {metrics['counts']['train']:,} rows; the state after update {metrics['best_step']:,} of "
        f"{metrics['steps']:,} was best and is kept.</p>"
    )
    lines.append(f"<p>{escape(baseline_sentence(metrics))}</p>")
    lines += [f"<p><b>Warning:</b> {escape(warning)}.</p>" for warning in metrics["warnings"]]
    if metrics["selected_on_validation"]:
        lines.append(
            '<p class="soft">The same rows chose that state, so the figure is slightly optimistic; '
            "give --test for rows that chose nothing.</p>"
        )
    for name, test in metrics["tests"].items():
        if metrics["metric"] in test:
            measured = test[metrics["metric"]]
            low, high = measured["interval"]
            lines.append(
                f"<p>{escape(name)}: <b>{measured['value']:.3f}</b> ({low:.3f} to {high:.3f}) on "
                f"{test['count']:,} rows.</p>"
            )
    return "\n".join(lines)


def baseline_sentence(metrics: Mapping[str, Any]) -> str:
    """Return the baseline's result on the same rows and, if the model does not beat it, what to try."""
    baseline = metrics["baseline"]
    low, high = baseline["interval"]
    shown = f"Baseline ({baseline['name']}): {metrics['metric']} {baseline['value']:.3f} [{low:.3f}, {high:.3f}]"
    if metrics["value"] > baseline["value"]:
        return f"{shown}."
    return f"{shown}. The model does not beat it: {ADVICE}."


def _classes(metrics: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(one['class'])}</th><td>{one['precision']:.3f}</td><td>{one['recall']:.3f}</td>"
        f"<td>{one['f1']:.3f}</td><td>{one['count']:,}</td><td>{one['predicted']:,}</td></tr>"
        for one in metrics["classes"]
    )
    header = "".join(f"<th>{name}</th>" for name in ("", "precision", "recall", "F1", "rows", "predicted"))
    return (
        f"<h2>Classes</h2><p class='soft'>Macro-F1, the mean of their F1: {metrics['macro_f1']:.3f}.</p>"
        f"<div class='scroll'><table><tr>{header}</tr>{rows}</table></div>"
    )


def _curves(metrics: Mapping[str, Any]) -> str:
    curve, name = metrics["curve"], metrics["metric"]
    losses = [
        Series("training loss", [(p["step"], p["training_loss"]) for p in curve], marked=True),
        Series("validation loss", [(p["step"], p["validation_loss"]) for p in curve], marked=True),
    ]
    values = [Series(f"validation {name}", [(p["step"], p[name]["value"]) for p in curve], marked=True)]
    legend = "".join(f'<span class="s{n}"><b></b>{escape(s.name)}</span>' for n, s in enumerate(losses))
    return (
        f"<h2>Learning curves</h2>{line_chart(losses, 'updates', 'loss')}<p class='legend'>{legend}</p>"
        f"{line_chart(values, 'updates', name)}<p class='legend'><span class='s0'><b></b>{escape(values[0].name)}"
        "</span></p>"
    )


def _confusions(labels: Labels, encoded: Encoded, probabilities: npt.NDArray[np.float32]) -> str:
    confusion = confusion_matrix(
        encoded.targets.astype(np.int64), probabilities.argmax(axis=1).astype(np.int64), labels.outputs
    )
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    header = "".join(f"<th>{escape(name)}</th>" for name in labels.names)
    lines = []
    for row, name in enumerate(labels.names):
        cells = ""
        for column in range(labels.outputs):
            tint = f"rgba(var({'--for' if row == column else '--against'}), {shares[row, column]:.2f})"
            cells += f'<td style="background: {tint}">{int(confusion[row, column]):,}</td>'
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return (
        "<h2>Confusion matrix</h2><p class='soft'>Rows: labels. Columns: predictions.</p>"
        f"<div class='scroll'><table><tr><th></th>{header}</tr>{''.join(lines)}</table></div>"
    )


def _cases(
    fine_tuned: FineTuned, rows: Sequence[Raw], encoded: Encoded, probabilities: npt.NDArray[np.float32]
) -> str:
    """Return the most confident mistakes and right answers; for scores the largest and smallest errors."""
    decided = fine_tuned.decide(probabilities)
    if fine_tuned.labels.target == "score":
        order = np.argsort(-np.abs(decided - encoded.targets), kind="stable")
        wrong, right = order[:_MISTAKES], order[::-1][:_RIGHT]
        title = "The largest errors"
    else:
        order = np.argsort(-probabilities.max(axis=1), kind="stable")
        hit = decided[order] == encoded.targets[order]
        wrong, right = order[~hit][:_MISTAKES], order[hit][:_RIGHT]
        title = "The most confident mistakes"
    shown = [
        f"<h2>{title}</h2><p class='soft'>The tint shows how much each word changes the answer: "
        '<span style="background: rgba(var(--for), .35)">for it</span> or '
        '<span style="background: rgba(var(--against), .35)">against it</span>. '
        "Each word was left out in turn; a change by 100 percentage points has the full tint.</p>"
    ]
    shown += [_case(fine_tuned, rows[n], probabilities[n]) for n in wrong]
    if not len(wrong):
        shown.append("<p>There is none.</p>")
    if len(right):
        shown.append("<h2>The most confident right answers</h2>")
        shown += [_case(fine_tuned, rows[n], probabilities[n]) for n in right]
    return "\n".join(shown)


def _case(fine_tuned: FineTuned, row: Raw, share: npt.NDArray[np.float32]) -> str:
    prediction = fine_tuned.prediction(row.row, share)
    output = int(share.argmax())
    said = f"{prediction.label} ({share[output]:.0%})" if fine_tuned.labels.target != "score" else prediction.label
    text = ""
    segment = 0
    levels = fine_tuned.labels.levels
    largest = max(levels) - min(levels) if fine_tuned.labels.target == "score" else 1.0
    for piece in explain(fine_tuned, row.segments, output):
        text += '<span class="tag">·</span> ' if piece.segment != segment else ""
        segment = piece.segment
        text += _tinted(piece, largest)
    return (
        f'<div class="case"><p class="soft">row {row.row:,}: predicted <b>{escape(str(said))}</b>, labelled '
        f"<b>{escape(str(row.label))}</b></p><p>{text}</p></div>"
    )


def _tinted(piece: Piece, largest: float) -> str:
    strength = min(0.6, 0.6 * abs(piece.change) / largest)
    if strength < 0.03:
        return escape(piece.text)
    side = "--for" if piece.change > 0 else "--against"
    title = f"{piece.change:+.3g}"
    return (
        f'<span style="background: rgba(var({side}), {strength:.2f})" title="{title}">{escape(piece.text)}</span>'
    )
