"""GPT-1, table 5: the full model, no pre-training, no auxiliary objective, and an LSTM instead of the Transformer.

The paper's averages are over eight sets of GLUE. All four variants are fine-tuned on every set of this
experiment, with the same rows and seeds, so that each difference is taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.config import Config
from headwater_papers.claims import CLAIMS, Finding, judge, judge_all
from headwater_papers.experiment import Experiment, Findings
from headwater_papers.labelled import (
    FULL,
    LSTM,
    NO_AUXILIARY,
    NO_PRETRAINING,
    VARIANTS,
    left_out_note,
    piece_names,
    sets_missing,
    sets_there,
)
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import TABLES
from headwater_papers.scale import Scale
from headwater_papers.setup import describe, training_notes
from headwater_papers.statistics import FAILS, HOLDS, decide
from headwater_papers.tuned_tables import (
    AVERAGE,
    COLUMNS,
    PERCENT,
    Table,
    averaged,
    draw_scores,
    fine_tune_all,
    gains,
    judge_gain,
    variant_rows,
)

# What table 5 prints for each variant, by the names of the sets here.
PUBLISHED = {
    variant.name: {
        name: TABLES["gpt1-table-5"].value(variant.name, column)
        for name, column in (COLUMNS | {AVERAGE: AVERAGE}).items()
    }
    for variant in VARIANTS
}
LARGE = ("qqp", "mnli", "qnli")  # the sets that the paper says the auxiliary objective helps
SMALL_SET = 10_000


class AblationSettings(Config):
    """The sets on which all four variants run; None: every set of the scale."""

    sets: tuple[str, ...] | None = None


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: four variants on every set, once a seed."""
    return piece_names(scale, _wanted(scale), VARIANTS)


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune all variants on each set that is available."""
    chosen, left_out = sets_there(laboratory.scale, _wanted(laboratory.scale), laboratory.data)
    table = fine_tune_all(laboratory, chosen, VARIANTS)
    notes = [
        "“Without pre-training” changes only that: the auxiliary objective stays. The paper does not say whether "
        "it stayed there.",
        "The paper's numbers are from GLUE's server; MNLI there is the mean of both test parts.",
        *training_notes(laboratory.scale, ["gpt1", "lstm"]),
    ]
    return Findings(
        rows=variant_rows(table, VARIANTS, chosen, _published),
        findings=judge_table(table, chosen),
        setup=describe(laboratory, ["gpt1", "lstm"], fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={"table-5": lambda figure: draw_scores(figure, table, VARIANTS, chosen, _published)},
    )


def _wanted(scale: Scale) -> Sequence[str]:
    return scale.settings("gpt1_ablations", AblationSettings).sets or list(scale.labelled.sets)


def _published(variant: str, name: str) -> float | None:
    percent = PUBLISHED[variant].get(name)
    return None if percent is None else round(percent / PERCENT, 4)


def judge_table(table: Table, chosen: Sequence[str]) -> list[Finding]:
    """Return the findings on the available sets, without claims on sets of which none is available."""
    names = averaged(chosen)
    rows = {name: table[FULL.name][name][0][0].trained_on for name in chosen}
    findings = [judge_gain(CLAIMS["gpt1_ablations.pretraining"], table, names, FULL, NO_PRETRAINING)]
    small = [name for name in chosen if rows[name] < SMALL_SET]
    if small:
        findings.append(_small_sets(table, small))
    findings.append(judge_gain(CLAIMS["gpt1_ablations.auxiliary"], table, names, NO_AUXILIARY, FULL))
    large = [name for name in LARGE if name in chosen]
    if large:
        most = f"{max(rows[name] for name in large):,}"
        claim = CLAIMS["gpt1_ablations.auxiliary_large"]
        findings.append(judge_gain(claim, table, large, FULL, NO_AUXILIARY, rows=most))
    findings.append(judge_gain(CLAIMS["gpt1_ablations.lstm"], table, names, FULL, LSTM))
    if "mrpc" in chosen:
        findings.append(judge(CLAIMS["gpt1_ablations.mrpc"], gains(table, LSTM.name, FULL.name, ["mrpc"])))
    return findings


def _small_sets(table: Table, small: Sequence[str]) -> Finding:
    """Judge whether pre-training helps on each set with few examples."""
    each = {name: gains(table, FULL.name, NO_PRETRAINING.name, [name]) for name in small}
    verdicts = {name: decide(values)[0] for name, values in each.items()}
    held = [name for name in small if verdicts[name] == HOLDS]
    return judge_all(
        CLAIMS["gpt1_ablations.small_sets"],
        list(each.values()),
        here=f"better with pre-training on {len(held)} of {len(small)} sets"
        + (f" ({', '.join(held)})" if held else ""),
        part="set",
        held=", ".join(held) or "none of them",
        rest=", ".join(name for name in small if name not in held),
        failed=", ".join(name for name in small if verdicts[name] == FAILS),
    )


ABLATIONS = Experiment(
    name="gpt1_ablations",
    title="Ablations (table 5)",
    paper="GPT-1",
    section="5",
    claim="Pre-training is what makes the difference; the auxiliary objective helps on the larger sets; the "
    "Transformer transfers better than an LSTM.",
    models=("gpt1", "lstm"),
    any_base=True,
    settings=AblationSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: sets_missing(scale, _wanted(scale), data),
    paper_tables=("gpt1-table-5",),
)
