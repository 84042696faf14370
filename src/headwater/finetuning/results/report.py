"""The report of a training: sentences for the terminal, and `report.html`.

The page, rendered from `report.html.j2`, is one file without scripts or external resources and follows the
reader's light or dark mode. The template escapes all text from the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from headwater.display import counted
from headwater.finetuning.results.analyses import (
    DOUBTFUL_FILE,
    Figures,
    FinetuneResults,
)
from headwater.finetuning.results.metrics import Score, confusion_matrix
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName
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
    """Return the results as sentences: the weights, the scores, warnings, the comparison, how it was trained."""
    names = {member.name: _NAMES[member.name].format(base=results.base) for member in results.members}
    weighed = sorted((member for member in results.members if member.weight), key=lambda member: -member.weight)
    shares = [f"{100 * member.weight:.0f} % {names[member.name]}" for member in weighed]
    return [
        f"The model: {', '.join(shares) if len(shares) > 1 else names[weighed[0].name]}",
        *_score_lines(results),
        *(f"Warning: {warning}" for warning in results.warnings),
        *_comparison_lines(results, names),
        *_probability_lines(results),
        *_training_lines(results),
    ]


def summary_lines(results: FinetuneResults) -> list[str]:
    """Return the lines for the terminal: the sentences, a table of the classes, and the first mistakes."""
    lines = result_lines(results)
    if results.classes and len(results.classes) <= _TABLED:
        # The class comes last, so that columns align in any script.
        name = "label" if results.target == "labels" else "class"
        lines.append(f"precision  recall     f1    rows  predicted  {name}")
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
    is_score = results.target == "score"
    if results.mistakes:
        lines.append("The largest errors:" if is_score else "The most confident mistakes:")
    for mistake in results.mistakes[:_IN_TERMINAL]:
        text = mistake.text if len(mistake.text) <= _SHORT else f"{mistake.text[:_SHORT]} …"
        difference = "" if mistake.difference is None else f", difference {mistake.difference:+.6g}"
        lines.append(
            f"  row {mistake.row:,}: predicted {mistake.predicted}, {'true' if is_score else 'labelled'} "
            f"{mistake.label}{difference}: {json.dumps(text, ensure_ascii=False)}"
        )
    return lines


def _score_lines(results: FinetuneResults) -> list[str]:
    """Return the scores on the test rows, then those on the measured rows."""
    lines = [
        f"{name.capitalize()} {results.metric} {_with_interval(figures.scores[results.metric])} on "
        f"{counted(figures.labelled, 'row')} (95 % interval){_compared(results, figures, '; ')}"
        for name, figures in results.tests.items()
        if figures.scores
    ]
    kind = "Cross-validated" if results.crossed else "Validation"
    settings = "the members and their settings" if len(results.members) > 1 else "its settings"
    chosen = f"; the same rows chose {settings}" if results.chose else ""
    rows = counted(results.measured.count, "row")
    lines.append(f"{kind} {results.metric} {_with_interval(results.score)} on {rows} (95 % interval){chosen}")
    guesses = {"chance": results.chance, "always the most common class": results.majority}
    others = [f"{name} {value:.3f}" for name, value in guesses.items() if value is not None]
    if "macro_f1" in results.measured.scores and results.metric != "macro_f1":
        others.append(f"macro-F1 {results.measured.scores['macro_f1']['value']:.3f}")
    if others:
        lines.append(f"On the same rows: {', '.join(others)}")
    if len(results.classes) > _TABLED:
        rare = ", ".join(f"{name!r} ({rows:,}, F1 {f1:.3f})" for name, rows, f1 in results.rarest)
        lines.append(f"Fewest training rows: {rare}")
    return lines


def _comparison_lines(results: FinetuneResults, names: Mapping[MemberName, str]) -> list[str]:
    """Return the members' own figures, and whether TF-IDF alone would do as well."""
    alone = [f"{names[member.name]} {_with_interval(member.score)}" for member in results.members if member.score]
    lines = [f"Each member alone, on the same rows: {'; '.join(alone)}"] if len(alone) > 1 else []
    comparison = _compared(results, results.measured)
    if not comparison or results.measured.baseline is None:
        return lines
    advice = {
        "not apart": ["TF-IDF alone may do as well, and is faster: train with --set recipe=tfidf"],
        "worse": ["TF-IDF alone is better on these rows: train with --set recipe=tfidf, or without --set recipe"],
        "better": [],
    }
    return [*lines, comparison, *advice[results.measured.baseline.verdict]]


def _compared(results: FinetuneResults, figures: Figures, before: str = "") -> str:
    """Return how the model compares with TF-IDF on the rows of a part; "" if it is TF-IDF, or there is none."""
    baseline = figures.baseline
    if baseline is None or results.recipe == "tfidf":
        return ""
    low, high = baseline.difference_interval
    more = "more" if baseline.difference >= 0 else "less"
    scores = f"{abs(baseline.difference):.3f} {more} [{low:+.3f}, {high:+.3f}]"
    chance = ", which may be chance" if baseline.verdict == "not apart" else ""
    return f"{before}{baseline.name} alone scores {baseline.value:.3f}, the model {scores}{chance}"


def _probability_lines(results: FinetuneResults) -> list[str]:
    """Return sentences on how far the probabilities are off, on test rows if there are any."""
    tested = [(f"{name} rows", part.calibration) for name, part in results.tests.items() if part.calibration]
    rows = "cross-validated" if results.crossed else "validation"
    where, measured = [*tested, (f"{rows} rows", results.measured.calibration)][0]
    if measured is None:
        return []
    sure = next(point for point in measured.coverage if point.share == 0.8)
    several = results.target == "labels"  # without a single probability to compare with a threshold
    advice = "" if several else f"; to predict only such rows: headwater predict --threshold {sure.threshold:.2f}"
    scaled = "" if results.temperature == 1 else f", with the temperature {results.temperature:.3g}"
    return [
        f"The probabilities are off by {measured.ece:.3f} on average (ECE, {where}{scaled})",
        f"Of the surest 80 % of these {'labels' if several else 'rows'}, those with a probability of at least "
        f"{sure.threshold:.2f}, {100 * sure.accuracy:.1f} % are right{advice}",
    ]


def _training_lines(results: FinetuneResults) -> list[str]:
    training, doubts = results.training, results.doubtful
    lines = []
    if training is not None:
        epochs = f"{training.epochs:g} {'epoch' if training.epochs == 1 else 'epochs'}"
        lines.append(f"Learning rate {training.learning_rate:g}, {training.reason}; {epochs}")
        if training.best_step < training.steps:
            lines.append(f"The best state, after update {training.best_step:,} of {training.steps:,}, is used")
    if results.left_out:
        lines.append(
            f"The linear models learned from rows drawn at random, without {results.left_out:,} of the others"
        )
    if doubts.reason:
        lines.append(f"Labels were not searched for errors: {doubts.reason}")
    if doubts.rows:
        first = ", ".join(f"{doubt.row:,} ({doubt.label!r} → {doubt.suggested!r})" for doubt in doubts.rows[:3])
        count = len(doubts.rows)
        more = f"the first {count:,} of {doubts.count:,}" if doubts.count > count else f"{counted(count, 'row')}"
        lines.append(f"Labels to check ({more}, in {DOUBTFUL_FILE}, the most doubtful first): rows {first}, …")
    return lines


def _with_interval(score: Score) -> str:
    low, high = score["interval"]
    return f"{score['value']:.3f} [{low:.3f}, {high:.3f}]"


def report_page(
    results: FinetuneResults, labels: Labels, truth: npt.NDArray[np.float64], decided: npt.NDArray[np.float64]
) -> str:
    """Return the page; truth, decided: the classes of the measured rows."""
    confusion: list[tuple[str, list[int]]] = []
    if labels.target == "class" and labels.outputs <= _MOST_CLASSES:
        counts = confusion_matrix(truth.astype(np.int64), decided.astype(np.int64), labels.outputs)
        confusion = list(zip(labels.names, counts.astype(int).tolist(), strict=True))
    curve = [] if results.training is None else results.training.curve
    losses = [
        Series(f"{kind} loss", points, marked=True)
        for kind in ("training", "validation")
        if (points := [(point["step"], point[f"{kind}_loss"]) for point in curve if f"{kind}_loss" in point])
    ]
    calibration = next(
        (part.calibration for part in (*results.tests.values(), results.measured) if part.calibration), None
    )
    several = ", several labels" if results.target == "labels" else ""
    page: str = template(Path(__file__).with_name("report.html.j2")).render(
        task="regress" if (results.task, results.target) == ("classify", "score") else f"{results.task}{several}",
        results=results,
        sentences=result_lines(results),
        coverage=[] if calibration is None else calibration.coverage,
        losses=losses,
        loss_chart=Markup(line_chart(losses, "updates", "loss")) if losses else "",
        doubts=results.doubtful.rows[:_SHOWN_DOUBTS],
        doubtful_file=DOUBTFUL_FILE,
        confusion=confusion,
        is_score=results.target == "score",
        range=labels.levels[-1] - labels.levels[0] if labels.levels else 1.0,
    )
    return page
