"""GPT-2, sections 3.4 and 3.6 to 3.8: tasks by text alone (figure 3, table 4, table 5, and figure 1 over sizes).

Winograd schemas by likelihood; summaries behind `TL;DR:`; translation behind pairs of sentences; answers from
memory behind examples, with those that the model is surest of. A prompt longer than the context loses its
beginning, which leaves translation about one pair here where the paper's context holds many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.evaluate.published import published
from headwater.evaluate.results import read_examples
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, files_missing, judge, judge_steps
from headwater.reproduce.gpt2_ladder import (
    LINES,
    PREFIX,
    counterpart,
    label,
    panels_over_sizes,
    reference_lines,
    rungs,
    trainings,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.scores import Column, ScoreTable
from headwater.reproduce.setup import describe, parameters
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Measured, differences, over_seeds, percent

READ = ("wsc273.partial", "wsc273.full")
_SUMMARIES = ("cnndm.tldr", "cnndm.no-hint", "cnndm.lead-3", "cnndm.random-3")
WRITTEN = (*_SUMMARIES, "wmt14.en-fr", "wmt14.fr-en", "coqa.greedy")
QUESTIONS, BY_TYPE = "natural-questions.exact-match", "natural-questions.question-type"
_SUREST = "exact match, most confident 1 %"
# What a table shows: protocol, metric, short name.
SHOWN = {
    ("wsc273.partial", "accuracy"): "Winograd, partial, accuracy",
    ("wsc273.full", "accuracy"): "Winograd, full, accuracy",
    ("cnndm.tldr", "rouge average"): "summaries behind TL;DR:, ROUGE average",
    ("cnndm.no-hint", "rouge average"): "summaries without a hint, ROUGE average",
    ("cnndm.lead-3", "rouge average"): "first three sentences, ROUGE average",
    ("cnndm.random-3", "rouge average"): "three random sentences, ROUGE average",
    ("wmt14.en-fr", "bleu"): "English to French, BLEU",
    ("wmt14.fr-en", "bleu"): "French to English, BLEU",
    ("coqa.greedy", "f1"): "CoQA, F1",
    (QUESTIONS, "exact match"): "questions, exact match",
    (QUESTIONS, _SUREST): "questions, exact match of the surest 1 %",
    (BY_TYPE, "exact match"): "questions, most common answer of each type",
}
# The panels of figure 1, and figure 3, and what the papers' values of a panel are divided by.
PANELS = {
    "CoQA": ("coqa.greedy", "f1"),
    "French to English": ("wmt14.fr-en", "bleu"),
    "summaries": ("cnndm.tldr", "rouge average"),
    "questions": (QUESTIONS, "exact match"),
    "Winograd": ("wsc273.partial", "accuracy"),
}
_DIVISORS = dict.fromkeys(PANELS, 100.0) | {"French to English": 1.0}
_CHANCE = 0.5  # of Winograd's two candidates
_LISTED = 5
_Scores = Mapping[Column, Mapping[str, Measured]]
NEEDED = {"WSC273": "eval-zeroshot/wsc/wsc273.txt", "Natural Questions": "eval-zeroshot/nq/NQ-open.dev.jsonl"}


class TaskSettings(Config):
    """How many examples are asked: of Winograd's, texts to write, questions."""

    read: int | None = Field(default=None, ge=1)
    written: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Every rung once a seed, in three parts."""
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
    answered: dict[tuple[str, int], Path] = {}
    for rung in ladder:
        for seed in scale.seeds:
            for part, (protocols, limit) in parts.items():
                name = f"{part}, {rung}, seed {seed}"
                results, folder = laboratory.evaluate(name, laboratory.model(rung, seed), protocols, limit=limit)
                scores.add(laboratory, rung, results, folder)
                if part == "questions":
                    answered[rung, seed] = folder
    largest, first = ladder[-1], scale.seeds[0]
    labels = {rung: label(laboratory, rung) for rung in ladder}
    sizes = {rung: parameters(laboratory, rung) for rung in ladder}
    return Findings(
        rows=[
            Row(
                labels[rung],
                SHOWN[column],
                values,
                _paper(column, counterpart(scale, rung)),
                scores.counts[column],
            )
            for column, of in scores.values.items()
            for rung, values in of.items()
        ],
        findings=_findings(scores.values, ladder),
        setup=[
            *describe(laboratory, ladder),
            (
                "prompts",
                "as `headwater evaluate --list` names them; what does not fit the context is cut in front",
            ),
        ],
        notes=[
            "The first three sentences, three random ones and the most common answer of each type ask no model.",
            "Lines across figure 1 are other systems' numbers on the whole sets; ? marks a number from memory.",
            f"The answers that {largest} of seed {first} is surest of: {_surest(answered[largest, first])}.",
            *scores.notes(),
        ],
        figures={"figure-1-tasks-over-size": lambda figure: _draw(figure, scores.values, sizes)},
    )


def _paper(column: tuple[str, str], size: str) -> float | None:
    values = published(*column)
    return values.get(size, values.get("paper"))


def _surest(folder: Path) -> str:
    """The answers of an evaluation that the model is surest of, as in table 5."""
    answers = sorted(read_examples(folder, QUESTIONS), key=lambda answer: -float(answer["confidence"]))
    return "; ".join(
        f"“{answer['text'] or '(nothing)'}” ({answer['confidence']:.1%}, "
        f"{'right' if answer['exact match'] else 'wrong'})"
        for answer in answers[:_LISTED]
    )


def _findings(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    """The claims on those tasks that were asked."""
    claims = {
        ("wsc273.partial", "accuracy"): _winograd,
        ("cnndm.tldr", "rouge average"): _summaries,
        ("wmt14.fr-en", "bleu"): _translation,
        (QUESTIONS, "exact match"): _questions,
    }
    return [finding for column, judged in claims.items() if column in scores for finding in judged(scores, ladder)]


def _winograd(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    winograd = scores["wsc273.partial", "accuracy"]
    largest = winograd[ladder[-1]]
    return [
        judge(
            "The largest model resolves more Winograd schemas than chance.",
            "70.7 %",
            largest.linear(1.0, -_CHANCE),
            here=over_seeds(largest).text(1, 100) + " %",
            sentences={
                HOLDS: "Above a coin's half, also when the schemas' own error is counted.",
                FAILS: "Below chance: likelihood prefers the wrong candidate more often than not.",
                OPEN: "Not told apart from a coin: what the schemas ask for is not learned at this size.",
            },
        ),
        judge_steps(
            "Winograd accuracy rises with size, at every step of the ladder.",
            "figure 3: 58 % to 70.7 %",
            [winograd[rung] for rung in ladder],
            here=" → ".join(percent(winograd[rung]) for rung in ladder),
            scale=100,
            digits=1,
            unit=" points",
            sentences={
                HOLDS: "Every rung is better.",
                FAILS: "At least one step goes down.",
                OPEN: "At least one step is within the spread over seeds.",
            },
        ),
    ]


def _summaries(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    hinted, plain, random = (
        scores[f"cnndm.{reading}", "rouge average"][ladder[-1]] for reading in ("tldr", "no-hint", "random-3")
    )
    return [
        judge(
            "TL;DR: makes summaries better than the same text without it.",
            "21.40 and 15.03 ROUGE (average)",
            differences(hinted, plain),
            scale=100,
            digits=2,
            unit=" points",
            sentences={
                HOLDS: "The hint helps.",
                FAILS: "The hint hurts: what the training text does not hold means nothing to this model.",
                OPEN: "The hint makes no difference that shows.",
            },
        ),
        judge(
            "Summaries behind TL;DR: are better than three random sentences of the article.",
            "21.40 and 20.98 ROUGE (average): barely",
            differences(hinted, random),
            scale=100,
            digits=2,
            unit=" points",
            sentences={
                HOLDS: "Above random sentences, as in the paper.",
                FAILS: "Below random sentences: at this size the model does not take up the article's words.",
                OPEN: "Not told apart from random sentences.",
            },
        ),
    ]


def _translation(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    to_english, to_french = (scores[f"wmt14.{way}", "bleu"][ladder[-1]] for way in ("fr-en", "en-fr"))
    return [
        judge(
            "Translation into English is better than into French.",
            "11.5 and 5 BLEU",
            differences(to_english, to_french),
            here=" and ".join(over_seeds(way).text(2) for way in (to_english, to_french)) + " BLEU",
            sentences={
                HOLDS: "The order is the paper's; near 0, BLEU counts the words and names that languages share.",
                FAILS: "The order is reversed; near 0, BLEU counts the words and names that languages share.",
                OPEN: "The two are not told apart: the training text is English alone.",
            },
        )
    ]


def _questions(scores: _Scores, ladder: Sequence[str]) -> list[Finding]:
    all_, surest = scores[QUESTIONS, "exact match"], scores[QUESTIONS, _SUREST][ladder[-1]]
    smallest, largest = all_[ladder[0]], all_[ladder[-1]]
    return [
        judge(
            "The largest model answers more questions than the smallest.",
            "4.1 %, 5.3 times the smallest",
            differences(largest, smallest),
            here=f"{percent(smallest)} → {percent(largest)}",
            sentences={
                HOLDS: "Facts come with size.",
                FAILS: "It answers fewer.",
                OPEN: "The two are not told apart: the training text holds few of these facts.",
            },
        ),
        judge(
            "The answers that the model is surest of are right more often.",
            "63.1 % of the surest 1 %, 4.1 % of all",
            differences(surest, largest),
            here=f"{percent(surest)} of the surest, {percent(largest)} of all",
            sentences={
                HOLDS: "Its confidence means something.",
                FAILS: "The surest are more often wrong: the likeliest string is an empty or a common one.",
                OPEN: "The surest are not told apart from the rest.",
            },
        ),
    ]


def _draw(figure: Any, scores: _Scores, sizes: Mapping[str, int]) -> None:
    shown = {title: scores[column] for title, column in PANELS.items() if column in scores}
    references = reference_lines(_DIVISORS)
    references["Winograd"]["chance"] = _CHANCE
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
    beside=("gpt2-text", "gpt2-table-4", "gpt2-figure-1", *LINES),
)
