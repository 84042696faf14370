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
    PREFIX,
    counterpart,
    label,
    panels_over_sizes,
    rungs,
    trainings,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.scores import Column, ScoreTable
from headwater.reproduce.setup import describe, parameters
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, differences, over_seeds, percent

READ = ("wsc273.partial", "wsc273.full")
WRITTEN = ("cnndm.tldr", "cnndm.no-hint", "cnndm.lead-3", "cnndm.random-3", "wmt14.en-fr", "wmt14.fr-en")
QUESTIONS = "natural-questions.exact-match"
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
    (QUESTIONS, "exact match"): "questions, exact match",
    (QUESTIONS, _SUREST): "questions, exact match of the surest 1 %",
}
# The panels of figure 1 (CoQA's text is not at hand), with the lines that need no model.
PANELS = {
    "Winograd": ("wsc273.partial", "accuracy"),
    "French to English": ("wmt14.fr-en", "bleu"),
    "summaries": ("cnndm.tldr", "rouge average"),
    "questions": (QUESTIONS, "exact match"),
}
_CHANCE = 0.5  # of Winograd's two candidates
_LISTED = 5
_Scores = Mapping[Column, Mapping[str, Sequence[float]]]
NEEDED = {"WSC273": "eval-zeroshot/wsc/wsc273.txt", "Natural Questions": "eval-zeroshot/nq/NQ-open.dev.jsonl"}


class Settings(Config):
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
    settings = scale.settings("gpt2_tasks", Settings)
    ladder = rungs(scale)
    parts: Mapping[str, tuple[Sequence[str], int | None]] = {
        "winograd": (READ, settings.read),
        "written": (WRITTEN, settings.written),
        "questions": ((QUESTIONS,), settings.questions),
    }
    scores = ScoreTable(SHOWN)
    answered: dict[tuple[str, int], Path] = {}
    for rung in ladder:
        for seed in scale.seeds:
            for part, (protocols, limit) in parts.items():
                name = f"{part}, {rung}, seed {seed}"
                results, folder = laboratory.evaluate(name, laboratory.model(rung, seed), protocols, limit=limit)
                scores.add(laboratory, rung, results)
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
            "The first three sentences and three random ones ask no model: their numbers are the articles'.",
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
    largest, smallest = ladder[-1], ladder[0]
    found = []
    if ("wsc273.partial", "accuracy") in scores:
        winograd = scores["wsc273.partial", "accuracy"]
        found += [
            judge(
                "The largest model resolves more Winograd schemas than chance.",
                "70.7 %",
                [value - _CHANCE for value in winograd[largest]],
                here=over_seeds(winograd[largest]).text(1, 100) + " %",
                sentences={
                    HOLDS: "Above a coin's half, far below the paper.",
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
                    FAILS: "At least one step goes down: at chance, sizes differ by luck alone.",
                    OPEN: "Steps are within the spread of seeds, all of them at chance.",
                },
            ),
        ]
    if ("cnndm.tldr", "rouge average") in scores:
        hinted, plain, random = (
            scores[f"cnndm.{reading}", "rouge average"][largest] for reading in ("tldr", "no-hint", "random-3")
        )
        found += [
            judge(
                "TL;DR: makes summaries better than the same text without it.",
                "21.40 and 15.03 ROUGE (average)",
                differences(hinted, plain),
                scale=100,
                digits=2,
                unit=" points",
                sentences={
                    HOLDS: "The hint helps, though no novel holds it.",
                    FAILS: "The hint hurts: novels do not hold it, so it means nothing to this model.",
                    OPEN: "The hint makes no difference that shows: novels do not hold it.",
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
    if ("wmt14.fr-en", "bleu") in scores:
        to_english, to_french = (scores[f"wmt14.{way}", "bleu"][largest] for way in ("fr-en", "en-fr"))
        found.append(
            judge(
                "Translation into English is better than into French.",
                "11.5 and 5 BLEU",
                differences(to_english, to_french),
                here=" and ".join(over_seeds(way).text(2) for way in (to_english, to_french)) + " BLEU",
                sentences={
                    HOLDS: "The order is the paper's, but both are no translations: words that languages share.",
                    FAILS: "The order is reversed, and both are no translations: copied names and numbers count.",
                    OPEN: "Both are no translations: the text is English alone, and the order says nothing.",
                },
            )
        )
    if (QUESTIONS, "exact match") in scores:
        all_, surest = scores[QUESTIONS, "exact match"], scores[QUESTIONS, _SUREST]
        found += [
            judge(
                "The largest model answers more questions than the smallest.",
                "4.1 %, 5.3 times the smallest",
                differences(all_[largest], all_[smallest]),
                here=f"{percent(all_[smallest])} → {percent(all_[largest])}",
                sentences={
                    HOLDS: "Facts come with size, here in traces.",
                    FAILS: "It answers fewer.",
                    OPEN: "Next to no question is answered by either: novels do not hold these facts.",
                },
            ),
            judge(
                "The answers that the model is surest of are right more often.",
                "63.1 % of the surest 1 %, 4.1 % of all",
                differences(surest[largest], all_[largest]),
                here=f"{percent(surest[largest])} of the surest, {percent(all_[largest])} of all",
                sentences={
                    HOLDS: "Its confidence means something.",
                    FAILS: "The surest are more often wrong: the likeliest string is an empty or a common one.",
                    OPEN: "With next to no right answer there is nothing that confidence could tell apart.",
                },
            ),
        ]
    return found


def _draw(figure: Any, scores: _Scores, sizes: Mapping[str, int]) -> None:
    shown = {title: scores[column] for title, column in PANELS.items() if column in scores}
    references = {"Winograd": {"chance": _CHANCE}}
    for name, reading in (("first three", "cnndm.lead-3"), ("random three", "cnndm.random-3")):
        of = scores.get((reading, "rouge average"))
        if of:
            references.setdefault("summaries", {})[name] = next(iter(of.values()))[0]
    y_label = "accuracy, BLEU, ROUGE average, exact match"
    panels_over_sizes(figure, shown, sizes, y_label, references=references)


TASKS = Experiment(
    name="gpt2_tasks",
    title="Tasks by text alone: Winograd, summaries, translation, questions",
    paper="GPT-2",
    section="3.4, 3.6 to 3.8 (figures 1 and 3, tables 4 and 5)",
    claim="A language model does tasks that nobody trained it for, when the text in front of it says so.",
    models=(PREFIX,),
    settings=Settings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing(NEEDED, data),
)
