"""Tables of fine-tuned scores: variants of a model by labelled sets, with one list of scores a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater_papers.claims import Finding, PaperClaim, judge
from headwater_papers.experiment import Row
from headwater_papers.figures import grouped_bars
from headwater_papers.labelled import FinetunedScore, Variant, fine_tune, over_parts
from headwater_papers.laboratory import Laboratory
from headwater_papers.statistics import Measured, differences, mean_of_sets, over_seeds

PERCENT = 100
# The columns of GPT-1's table 5 by the names of the sets here.
COLUMNS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP", "mnli": "MNLI"}
COLUMNS |= {"qnli": "QNLI", "rte": "RTE"}
AVERAGE = "average"

Seeds = Sequence[Sequence[FinetunedScore]]
Table = Mapping[str, Mapping[str, Seeds]]  # variant -> set -> one list a seed


def fine_tune_all(laboratory: Laboratory, sets: Sequence[str], variants: Sequence[Variant]) -> Table:
    """Fine-tune every variant on every set, set by set, so that an interrupted run has whole columns."""
    table: dict[str, dict[str, Seeds]] = {variant.name: {} for variant in variants}
    for name in sets:
        for variant in variants:
            seeds = laboratory.scale.seeds
            table[variant.name][name] = [fine_tune(laboratory, name, variant, seed) for seed in seeds]
    return table


def mean_row(setting: str, seeds: Seeds, published: float | None = None) -> Row:
    """Return one row for a whole set: the mean over its parts, one value a seed."""
    parts = seeds[0]
    return Row(
        setting=setting,
        measure=parts[0].metric,
        values=over_parts(seeds),
        published=published,
        examples=sum(score.examples for score in parts),
        note="; ".join(dict.fromkeys(remark for score in parts for remark in score.remarks)),
    )


def variant_rows(
    table: Table,
    variants: Sequence[Variant],
    sets: Sequence[str],
    published: Callable[[str, str], float | None],
    terms: str = "",
) -> list[Row]:
    """Return a row for each set and variant, and one for each variant's average.

    published: the paper's score of a variant on a set or on AVERAGE. terms: appended to each title.
    """
    names = averaged(sets)
    rows = [
        mean_row(f"{name}: {one.title}{terms}", table[one.name][name], published(one.name, name))
        for name in sets
        for one in variants
    ]
    return rows + [
        Row(
            f"average of {', '.join(names)}: {one.title}{terms}",
            "mean of the sets' metrics",
            averages(table, one.name, names),
            published(one.name, AVERAGE) if names == list(COLUMNS) else None,
        )
        for one in variants
    ]


def averaged(sets: Sequence[str]) -> list[str]:
    """Return the sets that averages are over: those of the paper's table, or all if it has none of them."""
    return [name for name in COLUMNS if name in sets] or list(sets)


def averages(table: Table, variant: str, names: Sequence[str]) -> Measured:
    """Return the mean over sets, one value a seed."""
    return mean_of_sets([over_parts(table[variant][name]) for name in names])


def gains(table: Table, first: str, second: str, names: Sequence[str]) -> Measured:
    """Return how far one variant is above another on average, one value a seed."""
    return differences(averages(table, first, names), averages(table, second, names))


def judge_gain(
    claim: PaperClaim, table: Table, names: Sequence[str], first: Variant, second: Variant, **facts: object
) -> Finding:
    """Return the finding on a claim that one variant is above another on average over sets."""
    one, other = (over_seeds(averages(table, variant.name, names)) for variant in (first, second))
    difference = gains(table, first.name, second.name, names)
    here = f"{one.value * PERCENT:.1f} against {other.value * PERCENT:.1f}: "
    here += f"{over_seeds(difference).text(1, PERCENT)} points over {', '.join(names)}"
    return judge(claim, difference, here=here, **facts)


def draw_scores(
    figure: Any,
    table: Table,
    variants: Sequence[Variant],
    names: Sequence[str],
    published: Callable[[str, str], float | None] = lambda variant, name: None,
) -> None:
    """Draw a group of bars for each set, one bar for each variant."""
    bars = {
        one.title: [over_seeds(over_parts(table[one.name][name]).linear(PERCENT)) for name in names]
        for one in variants
    }
    paper = {one.title: [_percent(published(one.name, name)) for name in names] for one in variants}
    grouped_bars(figure, names, bars, "score, per cent; black: the paper", published=paper)


def _percent(share: float | None) -> float | None:
    return None if share is None else PERCENT * share
