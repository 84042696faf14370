"""GPT-1, tables 2 to 4: one pre-trained model, fine-tuned on each of the twelve sets.

Every set is run as the paper runs it, its input rearranged and one linear layer added, on as many rows as the
scale takes. Beside each figure stand the paper's and what the most frequent class gets; how much of each test
text stands in the pre-training text is measured as GPT-2's section 4 does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headwater.config import Config
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, judge
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt1_updates import zero_shot, zero_shot_pieces
from headwater.reproduce.labelled import (
    FULL,
    FinetunedScore,
    fine_tune,
    left_out_note,
    over_parts,
    piece_names,
    sample_set,
    sets_missing,
    sets_there,
    test_texts,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Estimate, Measured, mean_of_sets, over_seeds

# Table -> (what its tasks are, its sets).
TABLES = {
    "2": ("natural language inference", ("snli", "mnli", "qnli", "rte", "scitail")),
    "3": ("question answering and commonsense", ("race", "storycloze")),
    "4": ("classification and similarity", ("cola", "sst2", "mrpc", "stsb", "qqp")),
}
PERCENT = 100


class TableSettings(Config):
    """This experiment has none of its own: rows and recipe stand in the scale's `labelled`."""


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The full model on every set, once a seed, and its zero-shot scores."""
    return piece_names(list(scale.labelled.sets), [FULL], scale.seeds) | zero_shot_pieces(scale)


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune the full model on each set that is there, measure it, measure the overlap."""
    scale = laboratory.scale
    there, left_out = sets_there(scale, list(scale.labelled.sets), laboratory.data)
    seeds = scale.seeds
    scores = {name: [fine_tune(laboratory, name, FULL, seed) for seed in seeds] for name in there}
    rows = [row for name in there for row in score_rows(scores[name])]
    without = {name: found for name, found in zero_shot(laboratory).items() if name in there}
    rows += [
        Row(f"{name}, zero-shot", scores[name][0][0].metric, values, None, count, f"{task}; not fine-tuned")
        for name, (task, values, count) in without.items()
    ]
    text = scale.models["gpt1"].text
    overlap = laboratory.overlap(text, {name: sample_set(laboratory, name) for name in there}, test_texts)
    rows += [
        Row(name, "8-grams of its test text that stand in the training text, %", [found["percent"]], None)
        for name, found in overlap.items()
    ]
    findings = [_finding(table, scores) for table in TABLES if any(name in scores for name in TABLES[table][1])]
    notes = [
        "Each seed pre-trains and fine-tunes anew. The interval includes that and the error over test examples, "
        "about ±3 points for 1,000 examples of two classes.",
        "Zero-shot scores are of the same pre-trained models, by the heuristics of figure 2 on the right. The "
        "paper draws them rescaled and prints none.",
    ]
    blind = [name for name in there if all(_is_blind(one) for one in scores[name])]
    if blind:
        notes.append(f"Within a point of blind answers with every seed: {', '.join(blind)}.")
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, ["gpt1"], fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={"tables-2-to-4": lambda figure: _draw(figure, scores, without)},
    )


def score_rows(seeds: Sequence[Sequence[FinetunedScore]]) -> list[Row]:
    """One row for each part that a set is measured on, over seeds."""
    return [
        Row(
            setting=score.task,
            measure=score.metric,
            values=Measured((one[index].value for one in seeds), (one[index].error for one in seeds)),
            published=None if score.published is None else round(score.published, 4),
            examples=score.examples,
            note="; ".join(
                [f"trained on {score.trained_on:,} rows", f"blind {score.baseline:.3f}", *score.remarks]
            ),
        )
        for index, score in enumerate(seeds[0])
    ]


def mean_row(setting: str, seeds: Sequence[Sequence[FinetunedScore]], published: float | None = None) -> Row:
    """One row for a whole set: the mean over its parts, one value a seed, and all their examples."""
    parts = seeds[0]
    return Row(
        setting=setting,
        measure=parts[0].metric,
        values=over_parts(seeds),
        published=published,
        examples=sum(score.examples for score in parts),
        note="; ".join(dict.fromkeys(remark for score in parts for remark in score.remarks)),
    )


def mean_of(scores: Sequence[FinetunedScore]) -> float:
    """The mean over the parts of a set."""
    return math.fsum(score.value for score in scores) / len(scores)


def _finding(table: str, scores: Mapping[str, Sequence[Sequence[FinetunedScore]]]) -> Finding:
    """Whether the sets of a table are learned at all: above what the most frequent class gets, on average."""
    what, names = TABLES[table]
    there = [name for name in names if name in scores]
    values = {name: over_parts(scores[name]) for name in there}
    blind = {name: _blind(scores[name][0]) for name in there}
    means = mean_of_sets(list(values.values()))
    gains = mean_of_sets([values[name].linear(1.0, -blind[name]) for name in there])
    published = [score.published for name in there for score in scores[name][0] if score.published is not None]
    paper = f"{PERCENT * math.fsum(published) / len(published):.1f} on average over {', '.join(there)}"
    return judge(
        f"Table {table}: fine-tuning with task-aware inputs learns {what}.",
        paper,
        gains,
        here=f"{over_seeds(means).text(1, PERCENT)}; above blind answers by {over_seeds(gains).text(1, PERCENT)}",
        scale=PERCENT,
        digits=1,
        sentences={
            HOLDS: "On average these sets are answered better than by always saying the most frequent class, by "
            "{here} points; how far below the paper each one stays is in the table of numbers.",
            FAILS: "On average these sets are answered no better than by always saying the most frequent class.",
            OPEN: "Whether these sets are answered better than blindly is not decided ({here} points): a model of "
            "this size hardly learns them.",
        },
    )


def _blind(scores: Sequence[FinetunedScore]) -> float:
    return math.fsum(score.baseline for score in scores) / len(scores)


def _is_blind(scores: Sequence[FinetunedScore]) -> bool:
    return abs(mean_of(scores) - _blind(scores)) <= 1 / PERCENT


def _draw(
    figure: object,
    scores: Mapping[str, Sequence[Sequence[FinetunedScore]]],
    without: Mapping[str, tuple[str, Measured, int]],
) -> None:
    tasks: list[str] = []
    here: list[Estimate | None] = []
    blind: list[Estimate | None] = []
    asked: list[Estimate | None] = []
    paper: list[float | None] = []
    for name, seeds in scores.items():
        zero = over_seeds(without[name][1].map(lambda value: PERCENT * value)) if name in without else None
        for index, score in enumerate(seeds[0]):
            tasks.append(f"{score.task}\n{score.metric}")
            here.append(
                over_seeds(
                    Measured(
                        (PERCENT * one[index].value for one in seeds),
                        (PERCENT * one[index].error for one in seeds),
                    )
                )
            )
            blind.append(Estimate(PERCENT * score.baseline, None, None))
            asked.append(zero)
            paper.append(None if score.published is None else PERCENT * score.published)
    grouped_bars(
        figure,
        tasks,
        {"here": here, "here, zero-shot": asked, "blind answers": blind},
        "score, per cent; black: the paper",
        published={"here": paper},
    )


TABLES_2_TO_4 = Experiment(
    name="gpt1_tables",
    title="Fine-tuning on the twelve sets (tables 2 to 4)",
    paper="GPT-1",
    section="4.2",
    claim="One pre-trained model, with only its input rearranged and one linear layer added, does natural "
    "language inference, question answering, similarity and classification.",
    models=("gpt1",),
    settings=TableSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: sets_missing(scale, list(scale.labelled.sets), data),
    beside=("gpt1-table-2", "gpt1-table-3", "gpt1-table-4"),
)
