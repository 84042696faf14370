"""The report of a training: sentences for the terminal, and `report.html`.

The page, rendered from `report.html.j2`, is one file without scripts or external resources and follows the
reader's light or dark mode. The template escapes all text from the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from headwater.display import counted
from headwater.finetuning.results.analyses import (
    DOUBTFUL_FILE,
    BaselineComparison,
    Figures,
    FinetuneResults,
    MemberFigures,
    Mistake,
)
from headwater.finetuning.results.explanation import Piece
from headwater.finetuning.results.metrics import Score, confusion_matrix
from headwater.finetuning.rows.labels import Labels
from headwater.report import Series, line_chart, template

_MOST_CLASSES = 24  # of a printed confusion matrix
_IN_TERMINAL, _SHORT = 3, 120  # mistakes, and characters of each
_TABLED, _PAIRS = 20, 8  # classes whose table is printed, and confused pairs of more classes
_SHOWN_DOUBTS = 10  # in the page
_NAMES = {
    "tfidf": "words and characters (TF-IDF)",
    "probe": "the language model {base}, unchanged",
    "lp-ft": "the language model {base}, tuned",
    "gpt1": "the language model {base}, tuned as in GPT-1's paper",
}


def result_lines(results: FinetuneResults) -> list[str]:
    """Return the results as sentences: the weights, the scores, the comparison, warnings."""
    return [
        _weights_line(results),
        *(_test_line(results, name, figures) for name, figures in results.tests.items() if figures.scores),
        *_measured_lines(results),
        *_comparison_lines(results),
        *_probability_lines(results),
        *_training_lines(results),
        *_doubt_lines(results),
        *(f"Warning: {warning}" for warning in results.warnings),
    ]


def summary_lines(results: FinetuneResults) -> list[str]:
    """Return the lines for the terminal: the sentences, a table of the classes, and the first mistakes."""
    lines = result_lines(results)
    if results.classes and len(results.classes) <= _TABLED:
        # The class comes last, so that columns align in any script.
        lines.append("precision  recall     f1    rows  predicted  class")
        lines += [
            f"{figures.precision:9.3f}  {figures.recall:6.3f}  {figures.f1:5.3f}  {figures.count:6,}"
            f"  {figures.predicted:9,}  {figures.name}"
            for figures in results.classes
        ]
    elif results.confused:
        lines.append("Most often confused:")
        lines += [
            f"  {pair.count:,} of {pair.label!r} taken for {pair.predicted!r}"
            for pair in results.confused[:_PAIRS]
        ]
    if results.mistakes:
        lines.append(f"{_mistakes_title(results)}:")
    for mistake in results.mistakes[:_IN_TERMINAL]:
        text = mistake.text if len(mistake.text) <= _SHORT else f"{mistake.text[:_SHORT]} …"
        lines.append(
            f"  row {mistake.row:,}: predicted {mistake.predicted}, {_labelled(results)} {mistake.label}"
            f"{_difference(mistake)}: {json.dumps(text, ensure_ascii=False)}"
        )
    return lines


def _weights_line(results: FinetuneResults) -> str:
    parts = sorted((part for part in results.members if part.weight), key=lambda part: -part.weight)
    shown = [f"{part.weight:.0%} {_named(part, results.base)}" for part in parts]
    return f"The model: {', '.join(shown) if len(parts) > 1 else _named(parts[0], results.base)}"


def _named(member: MemberFigures, base: str) -> str:
    return _NAMES[member.name].format(base=base)


def _test_line(results: FinetuneResults, name: str, figures: Figures) -> str:
    shown = f"{name.capitalize()} {results.metric} {_with_interval(figures.scores[results.metric])}"
    alone = [member.name for member in results.members] == ["tfidf"]
    baseline = "" if figures.baseline is None or alone else f"; {_compared(figures.baseline)}"
    return f"{shown} on {counted(figures.labelled, 'row')}{baseline}"


def _measured_lines(results: FinetuneResults) -> list[str]:
    kind = "Cross-validated" if results.crossed else "Validation"
    settings = "the members and their settings" if len(results.members) > 1 else "its settings"
    chosen = f"; the same rows chose {settings}" if results.chose else ""
    rows = counted(results.measured.count, "row")
    score = f"{kind} {results.metric} {_with_interval(results.score)} on {rows}{chosen}"
    guesses = {"chance": results.chance, "the most common class": results.majority}
    others = [f"{name} {value:.3f}" for name, value in guesses.items() if value is not None]
    if "macro_f1" in results.measured.scores and results.metric != "macro_f1":
        others.append(f"macro-F1 {results.measured.scores['macro_f1']['value']:.3f}")
    lines = [score, *([", ".join(others)] if others else [])]
    if len(results.classes) > _TABLED:
        rare = ", ".join(f"{name!r} ({rows:,}, F1 {f1:.3f})" for name, rows, f1 in results.rarest)
        lines.append(f"Fewest training rows: {rare}")
    return lines


def _comparison_lines(results: FinetuneResults) -> list[str]:
    """Return the members' own figures, and whether TF-IDF alone would do as well."""
    lines = []
    alone = [member for member in results.members if member.score is not None]
    if len(alone) > 1:
        shown = [f"{_named(part, results.base)} {_with_interval(part.score)}" for part in alone if part.score]
        lines.append(f"Each alone, on the same rows: {'; '.join(shown)}")
    baseline = results.measured.baseline
    if baseline is None or [member.name for member in results.members] == ["tfidf"]:
        return lines
    lines.append(_compared(baseline))
    if baseline.verdict == "not apart" and any(part.weight and part.name != "tfidf" for part in results.members):
        lines.append("TF-IDF alone may do as well, and is faster: --set recipe=tfidf")
    elif baseline.verdict == "worse":
        lines.append("TF-IDF alone is better on these rows: --set recipe=tfidf, or leave --set recipe out")
    return lines


def _compared(baseline: BaselineComparison) -> str:
    low, high = baseline.difference_interval
    apart = "" if baseline.verdict == "not apart" else "the model is "
    difference = f"difference {baseline.difference:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"{baseline.name} alone {baseline.value:.3f}: {apart}{baseline.verdict}, {difference}"


def _training_lines(results: FinetuneResults) -> list[str]:
    training = results.training
    lines = []
    if training is not None:
        lines.append(f"Learning rate {training.learning_rate:g}, {training.reason}; {_epochs(training.epochs)}")
        if training.best_step < training.steps:
            lines.append(f"The state after update {training.best_step:,} of {training.steps:,} is kept")
    if results.left_out:
        lines.append(
            f"The linear models learned from rows drawn at random, without {results.left_out:,} of the others"
        )
    return lines


def _epochs(count: float) -> str:
    return f"{count:g} {'epoch' if count == 1 else 'epochs'}"


def _doubt_lines(results: FinetuneResults) -> list[str]:
    doubts = results.doubts
    if doubts.reason:
        return [f"Labels were not searched for errors: {doubts.reason}"]
    if not doubts.rows:
        return []
    first = ", ".join(f"{doubt.row:,} ({doubt.label!r} → {doubt.suggested!r})" for doubt in doubts.rows[:3])
    more = f" (the first {len(doubts.rows):,} of {doubts.count:,})" if doubts.count > len(doubts.rows) else ""
    return [f"Labels to check{more}: rows {first}, …; all in {DOUBTFUL_FILE}, the most doubtful first"]


def _probability_lines(results: FinetuneResults) -> list[str]:
    """Return sentences on how far the probabilities are off, on test rows if there are any."""
    tested = [(f"{name} rows", part.calibration) for name, part in results.tests.items() if part.calibration]
    where, measured = [*tested, ("the measured rows", results.measured.calibration)][0]
    if measured is None:
        return []
    sure = next(point for point in measured.coverage if point.share == 0.8)
    several = results.target == "labels"  # without a single probability to compare with a threshold
    advice = "" if several else f": headwater predict --threshold {sure.threshold:.2f}"
    fitted = "" if results.temperature == 1 else f" with the temperature {results.temperature:.3g}"
    return [
        f"Probabilities: off by {measured.ece:.3f} on average (ECE, {where}){fitted}.",
        f"Of the surest 80 % of these {'labels' if several else 'rows'}, from a probability of "
        f"{sure.threshold:.2f}, {100 * sure.accuracy:.1f} % are right{advice}.",
    ]


def _with_interval(score: Score) -> str:
    low, high = score["interval"]
    return f"{score['value']:.3f} [{low:.3f}, {high:.3f}]"


def _mistakes_title(results: FinetuneResults) -> str:
    return "The largest errors" if results.target == "score" else "The most confident mistakes"


def _labelled(results: FinetuneResults) -> str:
    return "true" if results.target == "score" else "labelled"


def _difference(mistake: Mistake) -> str:
    return "" if mistake.difference is None else f", difference {mistake.difference:+.6g}"


def report_page(
    results: FinetuneResults, labels: Labels, truth: npt.NDArray[np.float64], decided: npt.NDArray[np.float64]
) -> str:
    """Return the page; truth, decided: the classes of the measured rows."""
    confusion: list[tuple[str, list[int]]] = []
    if labels.target == "class" and labels.outputs <= _MOST_CLASSES:
        counts = confusion_matrix(truth.astype(np.int64), decided.astype(np.int64), labels.outputs)
        confusion = list(zip(labels.names, counts.astype(int).tolist(), strict=True))
    losses = _curves(results)
    largest = labels.levels[-1] - labels.levels[0] if labels.levels else 1.0
    calibration = next(
        (part.calibration for part in (*results.tests.values(), results.measured) if part.calibration), None
    )
    page: str = template(Path(__file__).with_name("report.html.j2")).render(
        task=_task(results),
        results=results,
        score=results.score["value"],
        sentences=result_lines(results),
        coverage=[] if calibration is None else calibration.coverage,
        losses=losses,
        loss_chart=Markup(line_chart(losses, "updates", "loss")) if losses else "",
        doubts=results.doubts.rows[:_SHOWN_DOUBTS],
        doubtful_file=DOUBTFUL_FILE,
        confusion=confusion,
        is_score=results.target == "score",
        mistakes_title=_mistakes_title(results),
        labelled=_labelled(results),
        mistakes=[(row, _difference(row), _tinted(row.pieces, largest)) for row in results.mistakes],
    )
    return page


def _task(results: FinetuneResults) -> str:
    """Return the task as `--task` names it, and the kind of its labels if that is not plain."""
    if results.task == "classify" and results.target == "score":
        return "regress"
    return f"{results.task}{', several labels' if results.target == 'labels' else ''}"


def _curves(results: FinetuneResults) -> list[Series]:
    """Return the losses over the updates."""
    curve: Sequence[Mapping[str, Any]] = [] if results.training is None else results.training.curve
    named = {"training loss": "training_loss", "validation loss": "validation_loss"}
    return [
        Series(name, points, marked=True)
        for name, key in named.items()
        if (points := [(point["step"], point[key]) for point in curve if key in point])
    ]


def _tinted(pieces: Sequence[Piece], largest: float) -> list[tuple[Piece, str, bool]]:
    """Return the pieces of a text, each with its tint and whether it begins another text."""
    before = [0, *(piece.segment for piece in pieces)]
    return [
        (piece, _tint(piece.change / largest), piece.segment != last)
        for piece, last in zip(pieces, before, strict=False)
    ]


def _tint(change: float) -> str:
    """Return the background of a word that changes the answer by this share; empty for a small change."""
    strength = min(0.6, 0.6 * abs(change))
    if strength < 0.03:
        return ""
    return f"rgba(var({'--for' if change > 0 else '--against'}), {strength:.2f})"
