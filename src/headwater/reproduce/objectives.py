"""GPT, BERT, ELMo and an LSTM on equal terms: one text, one tokenizer, one loop, as many parameters.

Eight learners on the same rows and seeds: GPT and BERT fine-tuned whole, and without pre-training; GPT, BERT and
ELMo as frozen features under a task model (`finetune.features`); the LSTM of GPT-1's table 5, fine-tuned. They are
compared twice. At equal updates, every model is pre-trained and fine-tuned with as many updates as GPT. At equal
seconds, a model has as many updates as fit into the seconds that GPT took, by its own time for an update at equal
updates: the clock is read from the journals of finished runs, so that the same folders give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headwater.config import Config
from headwater.datasets.paper_tables import TABLES
from headwater.model.io.folder import load_config
from headwater.model.io.weights import tensor_sizes
from headwater.pretrain.masking import CHOSEN
from headwater.pretrain.recipe import PretrainConfig
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, judge
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt1_ablations import COLUMNS, averaged
from headwater.reproduce.gpt1_tables import PERCENT, mean_row
from headwater.reproduce.labelled import (
    FULL,
    LSTM,
    NO_PRETRAINING,
    FinetunedScore,
    Variant,
    fine_tune,
    left_out_note,
    over_parts,
    piece_names,
    sets_missing,
    sets_there,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe, parameters
from headwater.reproduce.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Estimate,
    Measured,
    Verdict,
    differences,
    mean_of_sets,
    over_seeds,
)
from headwater.train.journal import read_journal

_FEATURES = {"freeze": True, "task_model": "lstm", "learning_rate": 1e-3}
GPT, LSTM_TUNED, GPT_SCRATCH = FULL, LSTM, NO_PRETRAINING  # as in table 5, and the same folders
GPT_FEATURES = Variant("gpt-features", "GPT, features", changes=_FEATURES)
BERT = Variant("bert", "BERT, fine-tuned", model="bert")
BERT_FEATURES = Variant("bert-features", "BERT, features", model="bert", changes=_FEATURES)
ELMO_FEATURES = Variant("elmo-features", "ELMo, features", model="elmo", changes=_FEATURES)
BERT_SCRATCH = Variant("bert-scratch", "BERT, from scratch", model="bert", changes={"from_scratch": True})
LEARNERS: Mapping[str, Variant] = {
    "GPT, fine-tuned": GPT,
    "GPT, features": GPT_FEATURES,
    "BERT, fine-tuned": BERT,
    "BERT, features": BERT_FEATURES,
    "ELMo, features": ELMO_FEATURES,
    "LSTM, fine-tuned": LSTM_TUNED,
    "GPT, from scratch": GPT_SCRATCH,
    "BERT, from scratch": BERT_SCRATCH,
}
# At equal seconds GPT's own are as they are: the seconds are those of its fine-tuning.
_AS_THEY_ARE = (GPT, GPT_SCRATCH)
_MODELS = ("gpt1", "bert", "elmo", "lstm")
UPDATES, SECONDS = "equal updates", "equal seconds"
_PAIRS = ("mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "snli", "scitail")

# The rows of BERT's table 1 that stand beside a learner here.
_GLUE = TABLES["bert-table-1"]
_BESIDE = {GPT.name: "OpenAI GPT", BERT.name: "BERT base", ELMO_FEATURES.name: "BiLSTM+ELMo+Attn"}


class ObjectivesSettings(Config):
    """The sets; None: every set of the scale. seconds: whether the comparison is made at equal seconds too."""

    sets: tuple[str, ...] | None = None
    seconds: bool = True


@dataclass(frozen=True)
class LearnerCost:
    """What a learner took: tokens read and predicted in pre-training, seconds, learned parameters of a task."""

    read: float
    predicted: float
    pretraining: float
    finetuning: float
    added: float


# learner -> set -> one list of scores a seed
Table = Mapping[str, Mapping[str, Sequence[Sequence[FinetunedScore]]]]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Return eight learners on every set, once a seed, and again where the seconds are to be equal."""
    sets, seeds = _wanted(scale), scale.seeds
    found = piece_names(sets, list(LEARNERS.values()), seeds)
    if scale.settings("objectives", ObjectivesSettings).seconds:
        again = [_timed(variant) for variant in LEARNERS.values() if variant not in _AS_THEY_ARE]
        found |= piece_names(sets, again, seeds) - {
            ("pre-training", f"{model}, seed {seed}") for model in _MODELS for seed in seeds
        }
        found |= {
            (f"pre-training at {SECONDS}", f"{model}, seed {seed}") for model in _MODELS[1:] for seed in seeds
        }
    return found


def run(laboratory: Laboratory) -> Findings:
    """Compare the learners on each set that is there."""
    scale = laboratory.scale
    chosen, left_out = sets_there(scale, _wanted(scale), laboratory.data)
    tables = {UPDATES: _at_equal_updates(laboratory, chosen)}
    if scale.settings("objectives", ObjectivesSettings).seconds:
        tables[SECONDS] = _at_equal_seconds(laboratory, chosen, tables[UPDATES])
    rows: list[Row] = []
    findings: list[Finding] = []
    for terms, table in tables.items():
        rows += _score_rows(table, chosen, terms)
        findings += judge_table(table, chosen, terms)
    costs = {terms: _costs(laboratory, table, terms) for terms, table in tables.items()}
    rows += [row for terms, found in costs.items() for row in _cost_rows(found, terms)]
    rows += [
        Row(
            f"{title}, {UPDATES}",
            "parameters of the pre-trained model",
            [float(parameters(laboratory, variant.model))] * len(scale.seeds),
        )
        for title, variant in LEARNERS.items()
    ]
    findings += [_writes(laboratory), _more_parameters(costs[UPDATES])]
    notes = [
        "ELMo's character network is left out: all models read the same tokens.",
        "A masked model predicts 15 % of the tokens that it reads, ELMo's model each token twice.",
        "Seconds are this machine's, from the journals of the runs; other work on the machine is in them.",
        f"At {SECONDS}, GPT and GPT from scratch are those of {UPDATES}.",
        "The published scores are of models that differ in size, text and task models, on GLUE's server.",
    ]
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, _MODELS, fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={
            f"scores-{terms.replace(' ', '-')}": partial(_draw, table=table, names=chosen)
            for terms, table in tables.items()
        },
    )


def _wanted(scale: Scale) -> Sequence[str]:
    return scale.settings("objectives", ObjectivesSettings).sets or tuple(scale.labelled.sets)


def _at_equal_updates(laboratory: Laboratory, chosen: Sequence[str]) -> Table:
    table: dict[str, dict[str, list[list[FinetunedScore]]]] = {variant.name: {} for variant in LEARNERS.values()}
    for name in chosen:  # set by set, so that an interrupted run has whole columns
        for variant in LEARNERS.values():
            table[variant.name][name] = [
                fine_tune(laboratory, name, variant, seed) for seed in laboratory.scale.seeds
            ]
    return table


def _at_equal_seconds(laboratory: Laboratory, chosen: Sequence[str], equal: Table) -> Table:
    """Fine-tune again, by the seconds of GPT's training in `equal`; keyed as it is."""
    table: dict[str, dict[str, list[list[FinetunedScore]]]] = {variant.name: {} for variant in LEARNERS.values()}
    for name in chosen:
        for variant in LEARNERS.values():
            if variant in _AS_THEY_ARE:
                table[variant.name][name] = [list(scores) for scores in equal[variant.name][name]]
                continue
            found = []
            for number, seed in enumerate(laboratory.scale.seeds):
                budget, own = (_journal(equal[one.name][name][number])[-1] for one in (GPT, variant))
                steps = max(1, round(own["step"] * budget["seconds"] / own["seconds"]))
                changes = dict(variant.changes or {}) | {"steps": steps}
                timed = replace(_timed(variant), changes=changes)
                base = (
                    None if _is_new(variant) else run_at_equal_seconds(laboratory, variant.model, seed) / "model"
                )
                found.append(fine_tune(laboratory, name, timed, seed, base=base))
            table[variant.name][name] = found
    return table


def run_at_equal_seconds(laboratory: Laboratory, model: str, seed: int) -> Path:
    """Return a pre-training run of as many seconds as GPT's, by the model's own time for an update."""
    if model == _MODELS[0]:
        return laboratory.run(model, seed)
    budget, own = (laboratory.curve(name, seed)[-1] for name in (_MODELS[0], model))
    steps = max(1, round(own["step"] * budget["seconds"] / own["seconds"]))
    return laboratory.run(model, seed, steps=steps, note=f"at {SECONDS}")


def _timed(variant: Variant) -> Variant:
    return replace(variant, name=f"{variant.name}-{SECONDS.replace(' ', '-')}")


def _is_new(variant: Variant) -> bool:
    return bool((variant.changes or {}).get("from_scratch"))


def _journal(scores: Sequence[FinetunedScore]) -> list[dict[str, Any]]:
    assert scores[0].folder is not None
    return read_journal(scores[0].folder / "metrics.jsonl")


def averages(table: Table, learner: str, names: Sequence[str]) -> Measured:
    """Return the mean over sets, one value a seed."""
    return mean_of_sets([over_parts(table[learner][name]) for name in names])


def judge_table(table: Table, chosen: Sequence[str], terms: str) -> list[Finding]:
    """The claims about scores; one on sets of which none is there is not made."""
    names = averaged(chosen)
    claim = f"Fine-tuning the whole {{}} beats its frozen features under a task model, at {terms}."
    paper = "not measured on one model: published tables change base, text and task model at once"
    found = [
        _difference(table, names, GPT, GPT_FEATURES, claim.format("GPT"), paper),
        _difference(table, names, BERT, BERT_FEATURES, claim.format("BERT"), paper),
    ]
    pairs = [name for name in _PAIRS if name in chosen]
    if pairs:
        ablation = TABLES["bert-table-5"]
        masked, causal = ("BERT base without next sentences", "left to right, without next sentences")
        paper = "; ".join(
            f"{column} {ablation.value(masked, column):.1f} against {ablation.value(causal, column):.1f}"
            for column in ("MNLI-m", "QNLI", "MRPC")
        )
        claim = f"The masked model beats the causal one on pairs of texts, at {terms}."
        found.append(_difference(table, pairs, BERT, GPT, claim, paper))
    return found


def _difference(
    table: Table, names: Sequence[str], first: Variant, second: Variant, claim: str, paper: str
) -> Finding:
    one, other = (averages(table, variant.name, names) for variant in (first, second))
    difference = differences(one, other)
    here = f"{over_seeds(one).value * PERCENT:.1f} against {over_seeds(other).value * PERCENT:.1f}: "
    here += f"{over_seeds(difference).text(1, PERCENT)} points over {', '.join(names)}"
    sentences: dict[Verdict, str] = {
        HOLDS: "It does here, by {here} points on average.",
        FAILS: "It does not here: the difference is {here} points on average.",
        OPEN: "The seeds and items do not decide: {here} points on average.",
    }
    return judge(claim, paper, difference, here=here, scale=PERCENT, digits=1, sentences=sentences)


def _writes(laboratory: Laboratory) -> Finding:
    """Which of the models write and score: a property of the objective, read from the models' configuration."""
    seed = laboratory.scale.seeds[0]
    causal = [name for name in _MODELS if load_config(laboratory.model(name, seed)).is_causal]
    holds = causal == ["gpt1", "lstm"]
    return Finding(
        "Only a causal model writes and scores a text without more.",
        "follows from the objective",
        f"of {', '.join(_MODELS)}: {', '.join(causal)}",
        HOLDS if holds else FAILS,
        "The masked model and ELMo's continue no text; the masked model scores one by a pass for each token.",
        Estimate(float(holds), None, None),
    )


def _more_parameters(costs: Mapping[str, Sequence[LearnerCost]]) -> Finding:
    added = {name: sum(cost.added for cost in found) / len(found) for name, found in costs.items()}
    tuned, features = (
        [added[variant.name] for variant in some]
        for some in ((GPT, BERT, LSTM_TUNED), (GPT_FEATURES, BERT_FEATURES, ELMO_FEATURES))
    )
    holds = min(features) > max(tuned)
    return Finding(
        "Features need more new parameters for a task than fine-tuning.",
        "a linear layer and three rows (GPT-1, section 3.3) against an architecture for each task",
        f"{min(features):,.0f} to {max(features):,.0f} against {min(tuned):,.0f} to {max(tuned):,.0f}",
        HOLDS if holds else FAILS,
        "The counts follow from the shapes of the heads; a smaller task model would need fewer.",
        Estimate(min(features) - max(tuned), None, None),
    )


def _costs(laboratory: Laboratory, table: Table, terms: str) -> dict[str, list[LearnerCost]]:
    """Return, for each learner, what it took: one value a seed."""
    costs: dict[str, list[LearnerCost]] = {}
    for variant in LEARNERS.values():
        costs[variant.name] = []
        for number, seed in enumerate(laboratory.scale.seeds):
            run = laboratory.run(variant.model, seed)
            if terms == SECONDS:
                run = run_at_equal_seconds(laboratory, variant.model, seed)
            last = read_journal(run / "metrics.jsonl")[-1]
            config = PretrainConfig.load_written(run / "config.toml").architecture
            share = CHOSEN if config.is_masked else 1.0 if config.is_causal else 2.0
            scored = [seeds[number] for seeds in table[variant.name].values()]
            new = _is_new(variant)
            costs[variant.name].append(
                LearnerCost(
                    read=0 if new else last["tokens"],
                    predicted=0 if new else share * last["tokens"],
                    pretraining=0 if new else last["seconds"],
                    finetuning=sum(_journal(scores)[-1]["seconds"] for scores in scored),
                    added=sum(_added(variant, scores, config.width) for scores in scored) / len(scored),
                )
            )
    return costs


def _added(variant: Variant, scores: Sequence[FinetunedScore], width: int) -> int:
    """Parameters that a task adds and learns: the head, and where the base learns, the rows of three tokens."""
    folder = scores[0].folder
    assert folder is not None
    head = sum(tensor_sizes(folder / "head.safetensors").values())
    return head + (0 if (variant.changes or {}).get("freeze") else 3 * width)


def _cost_rows(costs: Mapping[str, Sequence[LearnerCost]], terms: str) -> list[Row]:
    measures = {
        "tokens read in pre-training": "read",
        "tokens predicted in pre-training": "predicted",
        "seconds of pre-training": "pretraining",
        "seconds of fine-tuning, all sets": "finetuning",
        "new parameters for a task, mean over sets": "added",
    }
    return [
        Row(f"{title}, {terms}", measure, [float(getattr(cost, key)) for cost in costs[variant.name]])
        for title, variant in LEARNERS.items()
        for measure, key in measures.items()
    ]


def _score_rows(table: Table, chosen: Sequence[str], terms: str) -> list[Row]:
    rows = [
        mean_row(f"{name}: {title}, {terms}", table[variant.name][name], _published(variant, name))
        for name in chosen
        for title, variant in LEARNERS.items()
    ]
    names = averaged(chosen)
    return rows + [
        Row(
            f"average of {', '.join(names)}: {title}, {terms}",
            "mean of the sets' metrics",
            averages(table, variant.name, names),
            _share(variant, "Average") if names == list(COLUMNS) else None,
        )
        for title, variant in LEARNERS.items()
    ]


def _published(variant: Variant, name: str) -> float | None:
    columns = ("MNLI-m", "MNLI-mm") if name == "mnli" else (COLUMNS[name],) if name in COLUMNS else ()
    known = [share for column in columns if (share := _share(variant, column)) is not None]
    return round(sum(known) / len(known), 4) if known else None


def _share(variant: Variant, column: str) -> float | None:
    row = _BESIDE.get(variant.name)
    return None if row is None else round(_GLUE.value(row, column) / PERCENT, 4)


def _draw(figure: object, *, table: Table, names: Sequence[str]) -> None:
    bars = {
        title: [
            over_seeds(over_parts(table[variant.name][name]).map(lambda value: PERCENT * value)) for name in names
        ]
        for title, variant in LEARNERS.items()
    }
    grouped_bars(figure, names, bars, "score, per cent")


OBJECTIVES = Experiment(
    name="objectives",
    title="GPT, BERT and ELMo on equal terms",
    paper="GPT-1 and its relatives",
    section="5; BERT, section 5.1",
    claim="Objective, attention and way of transfer separate the relatives: here each of them changes alone.",
    models=_MODELS,
    settings=ObjectivesSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: sets_missing(scale, _wanted(scale), data),
    beside=("bert-table-1", "bert-table-5"),
)
