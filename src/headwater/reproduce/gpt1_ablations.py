"""GPT-1, table 5: the full model, no pre-training, no auxiliary objective, and an LSTM in its place.

The paper's averages are over eight sets of GLUE. All four variants are fine-tuned on every set of this
experiment, with the same rows and seeds, so that each difference is taken seed by seed. This is also the table
of what pre-training and the auxiliary objective do for each kind of task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.config import Config
from headwater.datasets.paper_tables import TABLES
from headwater.reproduce.experiment import (
    Experiment,
    Finding,
    Findings,
    Row,
    judge,
    least_sure,
    noise_of,
    p_of_all,
)
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt1_tables import PERCENT, mean_row
from headwater.reproduce.labelled import (
    FULL,
    LSTM,
    NO_AUXILIARY,
    NO_PRETRAINING,
    VARIANTS,
    FinetunedScore,
    fine_tune,
    left_out_note,
    over_parts,
    piece_names,
    sets_missing,
    sets_there,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Measured,
    Verdict,
    decide,
    differences,
    mean_of_sets,
    over_seeds,
)

_TABLE = TABLES["gpt1-table-5"]
# Table 5's columns by the names of the sets here, and what it prints for each variant.
COLUMNS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP", "mnli": "MNLI"}
COLUMNS |= {"qnli": "QNLI", "rte": "RTE"}
PUBLISHED = {
    variant.name: {name: _TABLE.value(variant.name, column) for name, column in COLUMNS.items()}
    for variant in VARIANTS
}
AVERAGES = {variant.name: _TABLE.value(variant.name, "average") for variant in VARIANTS}
LARGE = ("qqp", "mnli", "qnli")  # the sets that the paper says the auxiliary objective helps
SMALL_SET = 10_000

Table = Mapping[str, Mapping[str, Sequence[Sequence[FinetunedScore]]]]  # variant -> set -> one list a seed


class AblationSettings(Config):
    """The sets on which all four variants run; None: every set of the scale."""

    sets: tuple[str, ...] | None = None


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Four variants on every set, once a seed."""
    return piece_names(_wanted(scale), VARIANTS, scale.seeds)


def run(laboratory: Laboratory) -> Findings:
    """Fine-tune all variants on each set that is there."""
    chosen, left_out = sets_there(laboratory.scale, _wanted(laboratory.scale), laboratory.data)
    seeds = laboratory.scale.seeds
    table: dict[str, dict[str, list[list[FinetunedScore]]]] = {variant.name: {} for variant in VARIANTS}
    for name in chosen:  # set by set, so that an interrupted run has whole columns
        for variant in VARIANTS:
            table[variant.name][name] = [fine_tune(laboratory, name, variant, seed) for seed in seeds]
    rows = [
        mean_row(
            f"{name}: {variant.title}",
            table[variant.name][name],
            _share(PUBLISHED[variant.name].get(name)),
        )
        for name in chosen
        for variant in VARIANTS
    ]
    names = averaged(chosen)
    rows += [
        Row(
            f"average of {', '.join(names)}: {variant.title}",
            "mean of the sets' metrics",
            averages(table, variant.name, names),
            _share(AVERAGES[variant.name]) if names == list(COLUMNS) else None,
        )
        for variant in VARIANTS
    ]
    notes = [
        "“Without pre-training” changes that alone: the auxiliary objective stays. The paper does not say whether "
        "it stayed there.",
        "The paper's numbers are from GLUE's server; MNLI there is the mean of both test parts.",
    ]
    return Findings(
        rows=rows,
        findings=judge_table(table, chosen),
        setup=describe(laboratory, ["gpt1", "lstm"], fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={"table-5": lambda figure: _draw(figure, table, chosen)},
    )


def _wanted(scale: Scale) -> Sequence[str]:
    return scale.settings("gpt1_ablations", AblationSettings).sets or tuple(scale.labelled.sets)


def averaged(chosen: Sequence[str]) -> list[str]:
    """The sets that averages are over: the table's columns, or where none of them is there, all that are."""
    return [name for name in COLUMNS if name in chosen] or list(chosen)


def averages(table: Table, variant: str, names: Sequence[str]) -> Measured:
    """Return the mean over sets, one value a seed."""
    return mean_of_sets([over_parts(table[variant][name]) for name in names])


def gains(table: Table, first: str, second: str, names: Sequence[str]) -> Measured:
    """Return how far one variant is above another on average, one value a seed."""
    return differences(averages(table, first, names), averages(table, second, names))


def judge_table(table: Table, chosen: Sequence[str]) -> list[Finding]:
    """The findings on the sets that there are; a claim on sets of which none is there is not made."""
    names = averaged(chosen)
    found = [
        _average(
            table,
            names,
            FULL.name,
            NO_PRETRAINING.name,
            "Pre-training raises the average (table 5).",
            "74.7 against 59.9: 14.8 points",
            {
                HOLDS: "Pre-training on novels pays: without it the average is {here} points lower.",
                FAILS: "Here pre-training does harm: without it the average is higher.",
                OPEN: "What this much pre-training adds to the average ({here} points) is not clear of the "
                "spread over seeds.",
            },
        ),
        *_small_sets(table, [name for name in chosen if table[FULL.name][name][0][0].trained_on < SMALL_SET]),
        _average(
            table,
            names,
            NO_AUXILIARY.name,
            FULL.name,
            "The average is higher without the auxiliary objective (table 5).",
            "75.0 against 74.7: 0.3 points",
            {
                HOLDS: "As in the paper's table, the average is higher without it, by {here} points.",
                FAILS: "Here the auxiliary objective raises the average: without it {here} points.",
                OPEN: "A difference as small as the paper's 0.3 points cannot be told apart here ({here} points).",
            },
        ),
    ]
    large = [name for name in LARGE if name in chosen]
    if large:
        most = max(table[FULL.name][name][0][0].trained_on for name in large)
        trained = f"; here they have at most {most:,} rows to train on."
        found.append(
            _average(
                table,
                large,
                FULL.name,
                NO_AUXILIARY.name,
                "The auxiliary objective helps on the larger sets: QQP and natural language inference.",
                "QQP 0.5, MNLI 0.7, QNLI 1.2 points",
                {
                    HOLDS: "It helps on these sets, by {here} points" + trained,
                    FAILS: "On these sets it does harm here ({here} points)" + trained,
                    OPEN: "On these sets it makes no difference that the seeds agree on ({here} points)" + trained,
                },
            )
        )
    found.append(
        _average(
            table,
            names,
            FULL.name,
            LSTM.name,
            "The Transformer beats the LSTM (table 5).",
            "74.7 against 69.1: 5.6 points",
            {
                HOLDS: "The Transformer is ahead by {here} points on average; both were pre-trained by one "
                "recipe, which was chosen on the Transformer.",
                FAILS: "Here the LSTM is ahead: {here} points. After this little pre-training, recurrence that is "
                "built in is worth more than attention that must be learned.",
                OPEN: "Between Transformer and LSTM the seeds do not decide ({here} points).",
            },
        )
    )
    if "mrpc" in chosen:
        found.append(
            judge(
                "The LSTM is better than the Transformer on MRPC, the only such set of table 5.",
                "83.2 against 82.3: 0.9 points",
                gains(table, LSTM.name, FULL.name, ["mrpc"]),
                scale=PERCENT,
                digits=1,
                unit=" points",
                sentences={
                    HOLDS: "Here too the LSTM is ahead on MRPC, by {here}.",
                    FAILS: "Here the Transformer is ahead on MRPC too: {here}.",
                    OPEN: "The two are not told apart on MRPC ({here}).",
                },
            )
        )
    return found


def _small_sets(table: Table, small: Sequence[str]) -> list[Finding]:
    """Whether pre-training pays on each set with few examples; nothing where there is none."""
    if not small:
        return []
    each = {name: gains(table, FULL.name, NO_PRETRAINING.name, [name]) for name in small}
    verdicts = {name: decide(values)[0] for name, values in each.items()}
    held = [name for name, verdict in verdicts.items() if verdict == HOLDS]
    failed = [name for name, verdict in verdicts.items() if verdict == FAILS]
    smallest = least_sure(list(each.values()))
    assert smallest is not None
    verdict: Verdict = HOLDS if len(held) == len(small) else FAILS if failed else OPEN
    return [
        Finding(
            claim=f"Fine-tuning from pre-trained weights beats training from scratch on every set with fewer than "
            f"{SMALL_SET:,} examples.",
            paper="on all eight sets of table 5",
            here=f"on {len(held)} of {len(small)} sets outside the interval"
            + (f" ({', '.join(held)})" if held else ""),
            verdict=verdict,
            sentence=_sets_sentence(held, failed, small),
            difference=over_seeds(smallest),
            p=p_of_all(verdict, list(each.values())),
            noise=noise_of(smallest),
            undecided=_sets_sentence(held, failed, small),
        )
    ]


def _average(
    table: Table,
    names: Sequence[str],
    first: str,
    second: str,
    claim: str,
    paper: str,
    sentences: Mapping[Verdict, str],
) -> Finding:
    one, other = (over_seeds(averages(table, variant, names)) for variant in (first, second))
    difference = gains(table, first, second, names)
    here = f"{one.value * PERCENT:.1f} against {other.value * PERCENT:.1f}: "
    here += f"{over_seeds(difference).text(1, PERCENT)} points"
    return judge(claim, paper, difference, here=here, scale=PERCENT, digits=1, sentences=sentences)


def _sets_sentence(held: Sequence[str], failed: Sequence[str], small: Sequence[str]) -> str:
    if len(held) == len(small):
        return "It does, on every one of them."
    rest = [name for name in small if name not in held]
    text = f"It does on {', '.join(held)}" if held else "It does on none of them outside the interval"
    text += f"; on {', '.join(rest)} it does not stand clear of the spread over seeds"
    return text + (f", and on {', '.join(failed)} it is worse." if failed else ".")


def _share(percent: float | None) -> float | None:
    return None if percent is None else round(percent / PERCENT, 4)


def _draw(figure: object, table: Table, names: Sequence[str]) -> None:
    bars = {
        variant.title: [
            over_seeds(over_parts(table[variant.name][name]).map(lambda value: PERCENT * value)) for name in names
        ]
        for variant in VARIANTS
    }
    paper = {variant.title: [PUBLISHED[variant.name].get(name) for name in names] for variant in VARIANTS}
    grouped_bars(figure, names, bars, "score, per cent; black: the paper", published=paper)


ABLATIONS = Experiment(
    name="gpt1_ablations",
    title="Ablations (table 5)",
    paper="GPT-1",
    section="5",
    claim="Pre-training is what makes the difference; the auxiliary objective helps on the larger sets; the "
    "Transformer transfers better than an LSTM.",
    models=("gpt1", "lstm"),
    settings=AblationSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: sets_missing(scale, _wanted(scale), data),
    beside=("gpt1-table-5",),
)
