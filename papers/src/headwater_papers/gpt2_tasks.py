"""GPT-2, sections 3.4 and 3.6 to 3.8: tasks by text alone (figure 3, table 4, table 5, and figure 1 over sizes).

Winograd schemas by likelihood; summaries after `TL;DR:`; translation after pairs of sentences; answers from memory
after examples, the most confident ones (table 5) and how often they are right (a curve). The beginning of a prompt
longer than the context is cut, which leaves about one pair for translation here, where the paper has many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.evaluation import all_tasks, read_examples
from headwater_papers.claims import CLAIMS, Finding, judge, judge_steps
from headwater_papers.experiment import Experiment, Findings, files_missing
from headwater_papers.figures import Curve, bands
from headwater_papers.gpt2_ladder import (
    LINES,
    PREFIX,
    counterpart,
    label,
    panels_over_sizes,
    reference_lines,
    rungs,
)
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import MODELS, SIZES, number
from headwater_papers.scale import Scale, trainings
from headwater_papers.scores import Column, ScoreTable, left_out_notes
from headwater_papers.setup import describe, parameters
from headwater_papers.statistics import Measured, differences, over_seeds, percent

READ = ("wsc273.partial", "wsc273.full")
_SUMMARIES = ("cnndm.tldr", "cnndm.no-hint", "cnndm.lead-3", "cnndm.random-3")
WRITTEN = (*_SUMMARIES, "wmt14.en-fr", "wmt14.fr-en", "coqa.greedy")
QUESTIONS, BY_TYPE = "natural-questions.exact-match", "natural-questions.question-type"
_CONFIDENT = "exact match, most confident 1 %"
# The columns of the table: protocol, metric, short name.
SHOWN = {
    ("wsc273.partial", "accuracy"): "Winograd, partial, accuracy",
    ("wsc273.full", "accuracy"): "Winograd, full, accuracy",
    ("cnndm.tldr", "rouge average"): "summaries after TL;DR:, ROUGE average",
    ("cnndm.no-hint", "rouge average"): "summaries without a hint, ROUGE average",
    ("cnndm.lead-3", "rouge average"): "first three sentences, ROUGE average",
    ("cnndm.random-3", "rouge average"): "three random sentences, ROUGE average",
    ("wmt14.en-fr", "bleu"): "English to French, BLEU",
    ("wmt14.fr-en", "bleu"): "French to English, BLEU",
    ("coqa.greedy", "f1"): "CoQA, F1",
    (QUESTIONS, "exact match"): "questions, exact match",
    (QUESTIONS, _CONFIDENT): "questions, exact match, most confident 1 %",
    (BY_TYPE, "exact match"): "questions, most common answer of each type",
}
# The panels of figures 1 and 3, and the divisors of the papers' values.
PANELS = {
    "CoQA": ("coqa.greedy", "f1"),
    "French to English": ("wmt14.fr-en", "bleu"),
    "summaries": ("cnndm.tldr", "rouge average"),
    "questions": (QUESTIONS, "exact match"),
    "Winograd": ("wsc273.partial", "accuracy"),
    "Winograd, full scoring": ("wsc273.full", "accuracy"),
}
_DIVISORS = dict.fromkeys(PANELS, 100.0) | {"French to English": 1.0}
_CHANCE = 0.5  # of Winograd's two candidates
_LISTED = int(number("gpt2-table-5 | answers | value"))
_MOST_CONFIDENT = (1, 2, 5, 10, 20, 50, 100)  # percent of the answers
_Scores = Mapping[Column, Mapping[str, Measured]]
NEEDED = {"WSC273": "eval-zeroshot/wsc/wsc273.txt", "Natural Questions": "eval-zeroshot/nq/NQ-open.dev.jsonl"}


class TaskSettings(Config):
    """The numbers of Winograd schemas, of texts to write, and of questions; None: all."""

    read: int | None = Field(default=None, ge=1)
    written: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: every rung once a seed: training, and scores in three parts."""
    parts = ("winograd", "written", "questions")
    names = trainings(scale, rungs(scale))
    return {("pre-training", name) for name in names} | {
        ("scores", f"{part}, {n}") for part in parts for n in names
    }


def run(laboratory: Laboratory) -> Findings:
    """Score every rung on every task."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_tasks", TaskSettings)
    ladder = rungs(scale)
    parts: Mapping[str, tuple[Sequence[str], int | None]] = {
        "winograd": (READ, settings.read),
        "written": (WRITTEN, settings.written),
        "questions": ((QUESTIONS, BY_TYPE), settings.questions),
    }
    scores = ScoreTable(SHOWN)
    answered: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for rung in ladder:
        for seed in scale.seeds:
            for part, (protocols, limit) in parts.items():
                name = f"{part}, {rung}, seed {seed}"
                results, folder = laboratory.evaluate(name, laboratory.model(rung, seed), protocols, limit=limit)
                scores.add(laboratory, rung, results, folder)
                if part == "questions":
                    answered[rung, seed] = by_confidence(read_examples(folder, QUESTIONS))
    largest, first = ladder[-1], scale.seeds[0]
    labels = {rung: label(laboratory, rung) for rung in ladder}
    sizes = {rung: parameters(laboratory, rung) for rung in ladder}
    return Findings(
        rows=scores.rows(labels, SHOWN, lambda column, rung: _paper(column, counterpart(scale, rung))),
        findings=_findings(scores.values, ladder),
        setup=[
            *describe(laboratory, ladder),
            (
                "prompts",
                "those of `headwater evaluate --list`; the beginning of what is longer than the context is cut",
            ),
        ],
        notes=[
            "The first three sentences, three random ones and the most common answer of each type need no model.",
            "Lines across figure 1 are other systems' numbers on the whole sets; ? marks an unverified number.",
            f"The {_LISTED} most confident answers of {largest}, seed {first}, as in table 5: "
            f"{_listed(answered[largest, first])}.",
            *left_out_notes(scores.left_out),
        ],
        figures={
            "figure-1-tasks-over-size": lambda figure: _draw(figure, scores.values, sizes),
            "questions-over-confidence": lambda figure: _draw_calibration(
                figure, {rung: [answered[rung, seed] for seed in scale.seeds] for rung in (ladder[0], largest)}
            ),
        },
    )


def _paper(column: tuple[str, str], size: str) -> float | None:
    values = all_tasks()[column[0]].published.get(column[1], {})
    return values.get(size, values.get("paper"))


def by_confidence(answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return answers to questions by falling confidence."""
    return sorted(answers, key=lambda answer: -float(answer["confidence"]))


def calibration(answers: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the exact match of the most confident answers by their percentage; the answers are by confidence."""
    counts = {percent: max(1, len(answers) * percent // 100) for percent in _MOST_CONFIDENT}
    return {
        percent: sum(float(answer["exact match"]) for answer in answers[:count]) / count
        for percent, count in counts.items()
    }


def _listed(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the first answers with their questions, as in table 5."""
    return "; ".join(
        f"{answer['question']}? “{answer['text'] or '(nothing)'}” ({answer['confidence']:.1%}, "
        f"{'right' if answer['exact match'] else 'wrong'})"
        for answer in answers[:_LISTED]
    )


def _draw_calibration(figure: Any, answered: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> None:
    """Draw the exact match of the most confident answers, and the two points that the paper prints."""
    curves: dict[str, Curve] = {}
    for rung, seeds in answered.items():
        curves_of_seeds = [calibration(answers) for answers in seeds]
        curves[rung] = {percent: [one[percent] for one in curves_of_seeds] for percent in _MOST_CONFIDENT}
    paper = {1: "the most confident 1 %", 100: "exact match"}
    curves[f"{MODELS[-1]} (paper)"] = {
        percent: [number(f"gpt2-text | Natural Questions, {row} | {SIZES[-1]}") / 100]
        for percent, row in paper.items()
    }
    bands(figure, curves, "most confident answers, %", "exact match", log_x=True)


def _findings(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    """Return the findings on the tasks that were scored."""
    smallest, largest = ladder[0], ladder[-1]
    findings: list[Finding] = []
    if winograd := scores.get(("wsc273.partial", "accuracy")):
        levels = [winograd[rung] for rung in ladder]
        here = f"{over_seeds(winograd[largest]).text(1, 100)} %"
        findings += [
            judge(CLAIMS["gpt2_tasks.winograd"], winograd[largest].linear(1.0, -_CHANCE), here=here),
            judge_steps(CLAIMS["gpt2_tasks.winograd_ladder"], levels, here=" → ".join(map(percent, levels))),
        ]
    if hinted := scores.get(("cnndm.tldr", "rouge average")):
        for claim, other in (("hint", "no-hint"), ("random", "random-3")):
            plain = scores[f"cnndm.{other}", "rouge average"][largest]
            findings.append(judge(CLAIMS[f"gpt2_tasks.{claim}"], differences(hinted[largest], plain)))
    if translated := scores.get(("wmt14.fr-en", "bleu")):
        to_english, to_french = translated[largest], scores["wmt14.en-fr", "bleu"][largest]
        here = f"{over_seeds(to_english).text(2)} and {over_seeds(to_french).text(2)} BLEU"
        findings.append(judge(CLAIMS["gpt2_tasks.translation"], differences(to_english, to_french), here=here))
    if answered := scores.get((QUESTIONS, "exact match")):
        first, last, confident = answered[smallest], answered[largest], scores[QUESTIONS, _CONFIDENT][largest]
        here = f"{percent(first)} → {percent(last)}"
        findings.append(judge(CLAIMS["gpt2_tasks.questions"], differences(last, first), here=here))
        here = f"{percent(confident)} of the most confident, {percent(last)} of all"
        findings.append(judge(CLAIMS["gpt2_tasks.confident"], differences(confident, last), here=here))
    return findings


def _draw(figure: Any, scores: _Scores, sizes: Mapping[str, int]) -> None:
    shown = {title: scores[column] for title, column in PANELS.items() if column in scores}
    references = reference_lines(_DIVISORS)
    for panel in ("Winograd", "Winograd, full scoring"):
        references[panel]["chance"] = _CHANCE
    y_label = "F1, BLEU, ROUGE average, exact match, accuracy"
    panels_over_sizes(figure, shown, sizes, y_label, rows=2, references=references)


TASKS = Experiment(
    name="gpt2_tasks",
    title="Tasks by text alone: Winograd, summaries, translation, questions",
    paper="GPT-2",
    section="3.4, 3.6 to 3.8 (figures 1 and 3, tables 4 and 5)",
    claim="A language model does tasks that nobody trained it for, when the text in front of it says so.",
    models=(PREFIX,),
    settings=TaskSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing(NEEDED, data),
    paper_tables=(
        "gpt2-text",
        "gpt2-further-text",
        "gpt2-table-4",
        "gpt2-table-5",
        "gpt2-figure-1",
        "gpt2-figure-3",
        *LINES,
    ),
)
