"""GPT, BERT, ELMo and an LSTM on equal terms: one text, one tokenizer, one loop, as many parameters.

Eight learners on the same rows and seeds: GPT and BERT fine-tuned whole, and without pre-training; GPT, BERT and
ELMo as frozen features under a task model (`finetune.features`); the LSTM of GPT-1's table 5, fine-tuned. They are
compared twice. At equal updates, every model is pre-trained and fine-tuned with as many updates as GPT. At equal
seconds, a model gets as many updates as fit into GPT's seconds, by its own time for an update. These times are
read from the journals of the runs at equal updates, so that the same folders give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from headwater.config import Config
from headwater.datasets.paper_tables import TABLES
from headwater.model.io.folder import load_config
from headwater.model.io.weights import tensor_sizes
from headwater.pretrain.masking import CHOSEN
from headwater.reproduce.claims import CLAIMS, Finding, judge_count
from headwater.reproduce.experiment import Experiment, Findings, Row
from headwater.reproduce.labelled import (
    FULL,
    LSTM,
    NO_PRETRAINING,
    FinetunedScore,
    Variant,
    fine_tune,
    left_out_note,
    piece_names,
    sets_missing,
    sets_there,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe, parameters, training_notes
from headwater.reproduce.tuned_tables import (
    AVERAGE,
    COLUMNS,
    PERCENT,
    Seeds,
    Table,
    averaged,
    draw_scores,
    fine_tune_all,
    judge_gain,
    variant_rows,
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
# At equal seconds these two stay as they are: the budget is the time of GPT's fine-tuning.
_AS_THEY_ARE = (GPT, GPT_SCRATCH)
_MODELS = ("gpt1", "bert", "elmo", "lstm")
UPDATES, SECONDS = "equal updates", "equal seconds"
_PAIRS = ("mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "snli", "scitail")

# The rows of BERT's table 1 that are shown next to a learner.
_GLUE = TABLES["bert-table-1"]
_BESIDE = {GPT.name: "OpenAI GPT", BERT.name: "BERT base", ELMO_FEATURES.name: "BiLSTM+ELMo+Attn"}


class ObjectivesSettings(Config):
    """The sets; None: every set of the scale. seconds: whether to compare at equal seconds too."""

    sets: tuple[str, ...] | None = None
    seconds: bool = True


# The cost of a learner, one dictionary a seed.
Costs = list[dict[str, float]]
_ADDED = "new parameters for a task, mean over sets"


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Return eight learners on every set, once a seed, and again at equal seconds."""
    sets, seeds = _wanted(scale), scale.seeds
    found = piece_names(scale, sets, list(LEARNERS.values()))
    if scale.settings("objectives", ObjectivesSettings).seconds:
        again = [_timed(variant) for variant in LEARNERS.values() if variant not in _AS_THEY_ARE]
        found |= piece_names(scale, sets, again) - {
            ("pre-training", f"{model}, seed {seed}") for model in _MODELS for seed in seeds
        }
        found |= {
            (f"pre-training at {SECONDS}", f"{model}, seed {seed}") for model in _MODELS[1:] for seed in seeds
        }
    return found


def run(laboratory: Laboratory) -> Findings:
    """Compare the learners on each available set."""
    scale = laboratory.scale
    chosen, left_out = sets_there(scale, _wanted(scale), laboratory.data)
    tables = {UPDATES: fine_tune_all(laboratory, chosen, list(LEARNERS.values()))}
    if scale.settings("objectives", ObjectivesSettings).seconds:
        tables[SECONDS] = _at_equal_seconds(laboratory, chosen, tables[UPDATES])
    rows: list[Row] = []
    findings: list[Finding] = []
    for terms, table in tables.items():
        rows += variant_rows(table, _titles(f", {terms}"), chosen, _published)
        findings += judge_table(table, chosen, terms)
    costs = {terms: _costs(laboratory, table, terms) for terms, table in tables.items()}
    rows += [
        Row(f"{title}, {terms}", measure, [cost[measure] for cost in found[variant.name]])
        for terms, found in costs.items()
        for title, variant in LEARNERS.items()
        for measure in found[variant.name][0]
    ]
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
        "Seconds are from the journals of the runs on this machine, with any other work that it did meanwhile.",
        f"At {SECONDS}, GPT and GPT from scratch are those at {UPDATES}.",
        "The published scores are of models that differ in size, text and task models, on GLUE's server.",
        *training_notes(scale, _MODELS),
    ]
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, _MODELS, fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={
            f"scores-{terms.replace(' ', '-')}": partial(draw_scores, table=table, titles=_titles(), names=chosen)
            for terms, table in tables.items()
        },
    )


def _lacks(scale: Scale, data: Path) -> list[str]:
    existing = [name for name in _MODELS if scale.models[name].model]
    if existing and scale.settings("objectives", ObjectivesSettings).seconds:
        return [f"a recipe to pre-train {existing[0]}, or experiments.objectives.seconds = false"]
    return sets_missing(scale, _wanted(scale), data)


def _wanted(scale: Scale) -> Sequence[str]:
    return scale.settings("objectives", ObjectivesSettings).sets or list(scale.labelled.sets)


def _titles(suffix: str = "") -> dict[str, str]:
    return {variant.name: title + suffix for title, variant in LEARNERS.items()}


def _at_equal_seconds(laboratory: Laboratory, chosen: Sequence[str], equal: Table) -> Table:
    """Fine-tune again, for as many seconds as GPT in `equal`."""
    table: dict[str, dict[str, Seeds]] = {variant.name: {} for variant in LEARNERS.values()}
    for name in chosen:
        for variant in LEARNERS.values():
            if variant in _AS_THEY_ARE:
                table[variant.name][name] = equal[variant.name][name]
                continue
            found = []
            for number, seed in enumerate(laboratory.scale.seeds):
                budget, own = (_journal(equal[one.name][name][number])[-1] for one in (GPT, variant))
                steps = max(1, round(own["step"] * budget["seconds"] / own["seconds"]))
                changes = dict(variant.changes or {}) | {"steps": steps}
                timed = replace(_timed(variant), changes=changes)
                run = None if _is_new(variant) else run_at_equal_seconds(laboratory, variant.model, seed)
                found.append(fine_tune(laboratory, name, timed, seed, base=run and run / "model"))
            table[variant.name][name] = found
    return table


def run_at_equal_seconds(laboratory: Laboratory, model: str, seed: int) -> Path:
    """Return a pre-training run for as many seconds as GPT's, by the model's own time for an update."""
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


def judge_table(table: Table, chosen: Sequence[str], terms: str) -> list[Finding]:
    """Return the findings on scores, without claims on sets of which none is available."""
    names, features = averaged(chosen), CLAIMS["objectives.features"]
    found = [
        judge_gain(features, table, names, GPT, GPT_FEATURES, base="GPT", terms=terms),
        judge_gain(features, table, names, BERT, BERT_FEATURES, base="BERT", terms=terms),
    ]
    pairs = [name for name in _PAIRS if name in chosen]
    if pairs:
        ablation = TABLES["bert-table-5"]
        masked, causal = ("BERT base without next sentences", "left to right, without next sentences")
        paper = "; ".join(
            f"{column} {ablation.value(masked, column):.1f} against {ablation.value(causal, column):.1f}"
            for column in ("MNLI-m", "QNLI", "MRPC")
        )
        found.append(judge_gain(CLAIMS["objectives.pairs"], table, pairs, BERT, GPT, terms=terms, published=paper))
    return found


def _writes(laboratory: Laboratory) -> Finding:
    """Judge which of the models write and score: a property of the objective, read from their configuration."""
    seed = laboratory.scale.seeds[0]
    causal = [name for name in _MODELS if load_config(laboratory.model(name, seed)).is_causal]
    here = f"of {', '.join(_MODELS)}: {', '.join(causal)}"
    return judge_count(CLAIMS["objectives.causal"], float(causal == ["gpt1", "lstm"]), here=here)


def _more_parameters(costs: Mapping[str, Costs]) -> Finding:
    added = {name: fmean(cost[_ADDED] for cost in found) for name, found in costs.items()}
    tuned, features = (
        [added[variant.name] for variant in some]
        for some in ((GPT, BERT, LSTM_TUNED), (GPT_FEATURES, BERT_FEATURES, ELMO_FEATURES))
    )
    here = f"{min(features):,.0f} to {max(features):,.0f} against {min(tuned):,.0f} to {max(tuned):,.0f}"
    return judge_count(CLAIMS["objectives.parameters"], min(features) - max(tuned), here=here)


def _costs(laboratory: Laboratory, table: Table, terms: str) -> dict[str, Costs]:
    costs: dict[str, Costs] = {}
    for variant in LEARNERS.values():
        costs[variant.name] = []
        for number, seed in enumerate(laboratory.scale.seeds):
            config = load_config(laboratory.model(variant.model, seed))
            cost = {}
            if not laboratory.scale.models[variant.model].model:
                run = laboratory.run(variant.model, seed)
                if terms == SECONDS:
                    run = run_at_equal_seconds(laboratory, variant.model, seed)
                last = read_journal(run / "metrics.jsonl")[-1]
                share = CHOSEN if config.is_masked else 1.0 if config.is_causal else 2.0
                new = _is_new(variant)
                read, seconds = (0.0, 0.0) if new else (float(last["tokens"]), float(last["seconds"]))
                cost = {
                    "tokens read in pre-training": read,
                    "tokens predicted in pre-training": share * read,
                    "seconds of pre-training": seconds,
                }
            scored = [seeds[number] for seeds in table[variant.name].values()]
            cost["seconds of fine-tuning, all sets"] = sum(_journal(one)[-1]["seconds"] for one in scored)
            cost[_ADDED] = sum(_added(variant, one, config.width) for one in scored) / len(scored)
            costs[variant.name].append(cost)
    return costs


def _added(variant: Variant, scores: Sequence[FinetunedScore], width: int) -> int:
    """Return the parameters that a task adds: the head and, unless the base is frozen, three tokens."""
    folder = scores[0].folder
    assert folder is not None
    head = sum(tensor_sizes(folder / "head.safetensors").values())
    return head + (0 if (variant.changes or {}).get("freeze") else 3 * width)


def _published(learner: str, name: str) -> float | None:
    row = _BESIDE.get(learner)
    if row is None or name not in (AVERAGE, *COLUMNS):
        return None
    columns = {"mnli": ("MNLI-m", "MNLI-mm"), AVERAGE: ("Average",)}.get(name) or (COLUMNS[name],)
    return round(fmean(round(_GLUE.value(row, column) / PERCENT, 4) for column in columns), 4)


OBJECTIVES = Experiment(
    name="objectives",
    title="GPT, BERT and ELMo on equal terms",
    paper="GPT-1 and its relatives",
    section="5; BERT, section 5.1",
    claim="Objective, attention and way of transfer separate the relatives: here each of them changes alone.",
    models=_MODELS,
    any_base=True,
    settings=ObjectivesSettings,
    pieces=pieces,
    run=run,
    lacks=_lacks,
    paper_tables=("bert-table-1", "bert-table-5"),
)
