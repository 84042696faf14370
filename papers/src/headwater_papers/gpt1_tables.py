"""GPT-1, tables 2 to 4: one pre-trained model, fine-tuned on each of the twelve sets.

Every set is run as in the paper, with its input rearranged and one linear layer added, on as many rows as the
scale takes. Each number is shown with the paper's and with that of the best constant answer. The overlap of each
test text with the pre-training text is measured as in GPT-2's section 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from headwater.config import Config
from headwater_papers.claims import CLAIMS, Finding, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import grouped_bars
from headwater_papers.gpt1_updates import snapshots_missing, zero_shot, zero_shot_pieces
from headwater_papers.labelled import (
    FULL,
    FinetunedScore,
    fine_tune,
    left_out_note,
    over_parts,
    percent_shared,
    piece_names,
    sample_set,
    sets_missing,
    sets_there,
    test_texts,
)
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale
from headwater_papers.setup import describe, training_notes
from headwater_papers.statistics import Estimate, Measured, mean_of_sets, over_seeds
from headwater_papers.tuned_tables import PERCENT, Seeds

BELOW = "; below it on "
_CONSTANT = re.compile(r"a constant answer gets ([\d.]+)")
# Table -> (what its tasks are, its sets).
TABLES = {
    "2": ("natural language inference", ("snli", "mnli", "qnli", "rte", "scitail")),
    "3": ("question answering and commonsense", ("race", "storycloze")),
    "4": ("classification and similarity", ("cola", "sst2", "mrpc", "stsb", "qqp")),
}


class TableSettings(Config):
    """The model that is fine-tuned."""

    base: str = ""
    """A model folder, or the name of a model that ships, for every seed; by default the scale's gpt1."""


def arranged(scale: Scale) -> Scale:
    """Return the scale with the model of its settings, if any, as gpt1."""
    base = scale.settings("gpt1_tables", TableSettings).base
    return scale.with_base("gpt1", base) if base else scale


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the full model on every set, once a seed, and its zero-shot scores."""
    return piece_names(scale, list(scale.labelled.sets), [FULL]) | zero_shot_pieces(scale)


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune the full model on each available set, and measure scores and overlap."""
    scale = laboratory.scale
    there, left_out = sets_there(scale, list(scale.labelled.sets), laboratory.data)
    seeds = scale.seeds
    scores = {name: [fine_tune(laboratory, name, FULL, seed) for seed in seeds] for name in there}
    rows = [row for name in there for row in score_rows(scores[name])]
    without = {name: scored for name, scored in zero_shot(laboratory).items() if name in there}
    rows += [
        Row(f"{name}, zero-shot", scores[name][0][0].metric, values, None, count, f"{task}; not fine-tuned")
        for name, (task, values, count) in without.items()
    ]
    samples = {name: sample_set(laboratory, name) for name in there}
    rows += [
        Row(name, "test rows with a text that is also in its training rows, %", [percent_shared(name, sample)])
        for name, sample in samples.items()
    ]
    text = scale.models["gpt1"].text
    overlap = laboratory.overlap(text, samples, test_texts) if text else {}
    rows += [
        Row(name, "8-grams of its test text that are also in the training text, %", [scored["percent"]], None)
        for name, scored in overlap.items()
    ]
    findings = judge_tables(scores, [row.to_dict() for row in rows])
    notes = [
        *training_notes(scale, ["gpt1"]),
        "The error over test examples is about ±3 points for 1,000 examples of two classes.",
    ]
    if without:
        notes.append(
            "Zero-shot scores are those of the same pre-trained models, by the heuristics of figure 2, right. The "
            "paper draws them rescaled and prints no values."
        )
    if not text:
        notes.append("The overlap with the training text is not measured: the scale does not have that text.")
    constant = [name for name in there if all(_is_constant(one) for one in scores[name])]
    if constant:
        notes.append(f"Within a point of a constant answer for every seed: {', '.join(constant)}.")
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, ["gpt1"], fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={"tables-2-to-4": lambda figure: _draw(figure, scores, without)},
    )


def score_rows(seeds: Seeds) -> list[Row]:
    """Return one row for each part that a set is measured on."""
    return [
        Row(
            setting=score.task,
            measure=score.metric,
            values=_part(seeds, index),
            published=None if score.published is None else round(score.published, 4),
            examples=score.examples,
            note="; ".join(
                [
                    f"trained on {score.trained_on:,} rows",
                    f"a constant answer gets {score.baseline:.3f}",  # as _CONSTANT reads it
                    *score.remarks,
                ]
            ),
        )
        for index, score in enumerate(seeds[0])
    ]


def _part(seeds: Seeds, index: int) -> Measured:
    return Measured((one[index].value for one in seeds), (one[index].error for one in seeds))


def judge_tables(scores: Mapping[str, Seeds], rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings on the tables of which a set is available; rows: those of results.json."""
    return [
        _finding(table, scores, below_constant(table, rows))
        for table in TABLES
        if any(name in scores for name in TABLES[table][1])
    ]


def below_constant(table: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a clause on the parts of a table's sets that are below a constant answer; "" without one."""
    below = []
    for row in rows:
        constant = _CONSTANT.search(row["note"])
        if constant and row["setting"].partition("-")[0] in TABLES[table][1] and row["value"] < float(constant[1]):
            values = (PERCENT * value for value in (row["value"], float(constant[1])))
            below.append("{} ({:.1f} against {:.1f})".format(row["setting"], *values))
    return f"{BELOW}{', '.join(below)}" if below else ""


def _finding(table: str, scores: Mapping[str, Seeds], below: str) -> Finding:
    """Judge whether the sets of a table are learned at all: better on average than a constant answer."""
    what, names = TABLES[table]
    there = [name for name in names if name in scores]
    values = {name: over_parts(scores[name]) for name in there}
    means = mean_of_sets(list(values.values()))
    gains = mean_of_sets([values[name].linear(1.0, -_constant(scores[name][0])) for name in there])
    parts = [score.task if len(scores[name][0]) == 1 else name for name in there for score in scores[name][0][:1]]
    # Each set counts once, however many parts it has, as in `means`.
    published = [fmean(score.published or 0.0 for score in scores[name][0]) for name in there]
    return judge(
        CLAIMS["gpt1_tables.learned"],
        gains,
        here=f"{over_seeds(means).text(1, PERCENT)} points on average; "
        f"above a constant answer by {over_seeds(gains).text(1, PERCENT)} points{below}",
        table=table,
        what=what,
        published=f"{PERCENT * fmean(published):.1f} on average over {', '.join(parts)}",
    )


def _constant(scores: Sequence[FinetunedScore]) -> float:
    return fmean(score.baseline for score in scores)


def _is_constant(scores: Sequence[FinetunedScore]) -> bool:
    return abs(fmean(score.value for score in scores) - _constant(scores)) <= 1 / PERCENT


def _draw(figure: object, scores: Mapping[str, Seeds], without: Mapping[str, tuple[str, Measured, int]]) -> None:
    parts = [(name, index, score) for name, seeds in scores.items() for index, score in enumerate(seeds[0])]
    asked = {name: over_seeds(values.linear(PERCENT)) for name, (_, values, _) in without.items()}
    bars: dict[str, list[Estimate | None]] = {
        "here": [over_seeds(_part(scores[name], index).linear(PERCENT)) for name, index, _ in parts],
        "here, zero-shot": [asked.get(name) for name, _, _ in parts],
        "a constant answer": [Estimate(PERCENT * score.baseline, None, None) for _, _, score in parts],
    }
    paper = [None if score.published is None else PERCENT * score.published for _, _, score in parts]
    titles = [f"{score.task}\n{score.metric}" for _, _, score in parts]
    grouped_bars(figure, titles, bars, "score, per cent; black: the paper", published={"here": paper})


TABLES_2_TO_4 = Experiment(
    name="gpt1_tables",
    title="Fine-tuning on the twelve sets (tables 2 to 4)",
    paper="GPT-1",
    section="4.2",
    claim="One pre-trained model, with only its input rearranged and one linear layer added, performs natural "
    "language inference, question answering, similarity and classification.",
    models=("gpt1",),
    any_base=True,
    settings=TableSettings,
    arranged=arranged,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: (
        snapshots_missing(scale, ["gpt1"]) + sets_missing(scale, list(scale.labelled.sets), data)
    ),
    paper_tables=("gpt1-table-2", "gpt1-table-3", "gpt1-table-4"),
)
