"""GPT, BERT, ELMo and an LSTM on equal terms: one text, one tokenizer, one loop, as many parameters.

Eight learners on the same rows and seeds: GPT and BERT fine-tuned whole, and without pre-training; GPT, BERT and
ELMo as frozen features under a task model; the LSTM of GPT-1's table 5, fine-tuned. They are
compared twice. At equal updates, every model is pre-trained and fine-tuned with as many updates as GPT. At equal
seconds, a model gets as many updates as fit into GPT's seconds, by its own time for an update.

The time for an update is measured with the first seed, one model directly after another, so that other work on the
machine slows all of them. The number of updates is the same for every seed. The times are read from the journals
of these runs, so that the same folders give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from headwater.config import Config
from headwater.model import load_config, read_tensors
from headwater.pretraining import CHOSEN
from headwater.training import read_journal
from headwater_papers.claims import CLAIMS, Finding, judge_count
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.labelled import (
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
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import TABLES
from headwater_papers.relatives.frozen import build_frozen
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe, parameters, training_notes
from headwater_papers.tuned_tables import (
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

_FEATURES = {"learning_rate": 1e-3, "lambda_lm": 0.0, "precision": "fp32"}  # the head has no language model
# Three are as in table 5, and the same folders.
GPT = replace(FULL, title="GPT, fine-tuned")
GPT_SCRATCH = replace(NO_PRETRAINING, title="GPT, from scratch")
LSTM_TUNED = replace(LSTM, title="LSTM, fine-tuned")
GPT_FEATURES = Variant("gpt-features", "GPT, features", changes=_FEATURES, build=build_frozen)
BERT = Variant("bert", "BERT, fine-tuned", model="bert")
BERT_FEATURES = Variant("bert-features", "BERT, features", model="bert", changes=_FEATURES, build=build_frozen)
ELMO_FEATURES = Variant("elmo-features", "ELMo, features", model="elmo", changes=_FEATURES, build=build_frozen)
BERT_SCRATCH = Variant("bert-scratch", "BERT, from scratch", model="bert", changes={"from_scratch": True})
LEARNERS = (GPT, GPT_FEATURES, BERT, BERT_FEATURES, ELMO_FEATURES, LSTM_TUNED, GPT_SCRATCH, BERT_SCRATCH)
# At equal seconds these two stay as they are: the budget is the time of GPT's fine-tuning.
_UNCHANGED = (GPT, GPT_SCRATCH)
_MODELS = ("gpt1", "bert", "elmo", "lstm")
UPDATES, SECONDS = "equal updates", "equal seconds"
_TIMED_UPDATES = 100  # of pre-training
_TIMING = (
    "The seconds of an update are measured with the first seed, one model directly after another, on this machine."
    " The seconds in the table are the updates times these."
    f" At {SECONDS}, GPT and GPT from scratch are those at {UPDATES}."
)
_PAIRS = ("mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "snli", "scitail")

# The rows of BERT's table 1 that are shown next to a learner.
_GLUE = TABLES["bert-table-1"]
_BERT_ROWS = {GPT.name: "OpenAI GPT", BERT.name: "BERT base", ELMO_FEATURES.name: "BiLSTM+ELMo+Attn"}


class ObjectivesSettings(Config):
    """The sets; None: every set of the scale. seconds: whether to compare at equal seconds too."""

    sets: tuple[str, ...] | None = None
    seconds: bool = True


class _Times(NamedTuple):
    """Seconds of an update: in pre-training by model, in fine-tuning by set and learner."""

    pretraining: dict[str, float]
    tuning: dict[tuple[str, str], float]


# The cost of a learner, one dictionary a seed.
Costs = list[dict[str, float]]
_ADDED = "new parameters for a task, mean over sets"


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: eight learners on every set, once a seed, and again at equal seconds."""
    sets, seeds = _wanted(scale), scale.seeds
    work = piece_names(scale, sets, LEARNERS)
    if scale.settings("objectives", ObjectivesSettings).seconds:
        again = [_with_suffix(variant, SECONDS) for variant in LEARNERS if variant not in _UNCHANGED]
        work |= piece_names(scale, sets, again)
        work |= {(f"pre-training at {SECONDS}", name) for name in trainings(scale, _MODELS[1:])}
        work |= {("pre-training, timed", f"{model}, seed {seeds[0]}") for model in _MODELS}
        work |= {
            (f"fine-tuning on {name}", f"{_with_suffix(variant, 'timed').name}, seed {seeds[0]}")
            for variant in LEARNERS
            for name in sets
            if not _is_from_scratch(variant)
        }
    return work


def run(laboratory: Laboratory) -> Findings:
    """Compare the learners on each available set."""
    scale = laboratory.scale
    chosen, left_out = sets_there(scale, _wanted(scale), laboratory.data)
    tables = {UPDATES: fine_tune_all(laboratory, chosen, LEARNERS)}
    times = None
    if scale.settings("objectives", ObjectivesSettings).seconds:
        times = _measure_times(laboratory, chosen)
        tables[SECONDS] = _at_equal_seconds(laboratory, chosen, tables[UPDATES], times)
    rows: list[Row] = []
    findings: list[Finding] = []
    for terms, table in tables.items():
        rows += variant_rows(table, LEARNERS, chosen, _published, f", {terms}")
        findings += judge_table(table, chosen, terms)
    costs = {terms: _costs_of_training(laboratory, table, terms, times) for terms, table in tables.items()}
    rows += [
        Row(f"{variant.title}, {terms}", measure, [cost[measure] for cost in found[variant.name]])
        for terms, found in costs.items()
        for variant in LEARNERS
        for measure in found[variant.name][0]
    ]
    rows += [
        Row(
            f"{variant.title}, {UPDATES}",
            "parameters of the pre-trained model",
            [float(parameters(laboratory, variant.model))] * len(scale.seeds),
        )
        for variant in LEARNERS
    ]
    findings += [_writes(laboratory), _more_parameters(costs[UPDATES])]
    notes = [
        "ELMo's character network is left out: all models read the same tokens.",
        "A masked model predicts 15 % of the tokens that it reads, ELMo's model each token twice.",
        *([_TIMING] if times else []),
        "The published scores are of models that differ in size, text and task models, on GLUE's server.",
        *training_notes(scale, _MODELS),
    ]
    return Findings(
        rows=rows,
        findings=findings,
        setup=describe(laboratory, _MODELS, fine_tuned=True),
        notes=notes + left_out_note(left_out),
        figures={
            f"scores-{terms.replace(' ', '-')}": partial(draw_scores, table=table, variants=LEARNERS, names=chosen)
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


def _measure_times(laboratory: Laboratory, chosen: Sequence[str]) -> _Times:
    """Measure the seconds of an update with the first seed, one model directly after another."""
    seed = laboratory.scale.seeds[0]
    timed = {
        name: laboratory.run(
            name, seed, steps=min(_TIMED_UPDATES, laboratory.curve(name, seed)[-1]["step"]), note=", timed"
        )
        for name in _MODELS
    }
    tuning = {}
    for name in chosen:
        for variant in LEARNERS:
            if not _is_from_scratch(variant):
                scores = fine_tune(laboratory, name, _with_suffix(variant, "timed"), seed)
                tuning[name, variant.name] = _update_seconds(_journal(scores))
        tuning[name, GPT_SCRATCH.name] = tuning[name, GPT.name]
        tuning[name, BERT_SCRATCH.name] = tuning[name, BERT.name]
    pretraining = {name: _update_seconds(read_journal(run / "metrics.jsonl")) for name, run in timed.items()}
    return _Times(pretraining, tuning)


def _update_seconds(journal: Sequence[Mapping[str, Any]]) -> float:
    return float(journal[-1]["seconds"]) / int(journal[-1]["step"])


def _at_equal_seconds(laboratory: Laboratory, chosen: Sequence[str], equal: Table, times: _Times) -> Table:
    """Fine-tune again, each learner for as many seconds as GPT took in `equal`, the table at equal updates."""
    table: dict[str, dict[str, Seeds]] = {variant.name: {} for variant in LEARNERS}
    for name in chosen:
        for variant in LEARNERS:
            if variant in _UNCHANGED:
                table[variant.name][name] = equal[variant.name][name]
                continue
            share = times.tuning[name, GPT.name] / times.tuning[name, variant.name]
            tuned = []
            for number, seed in enumerate(laboratory.scale.seeds):
                steps = max(1, round(_journal(equal[GPT.name][name][number])[-1]["step"] * share))
                learner = _with_suffix(variant, SECONDS)
                learner = replace(learner, changes={**variant.changes, "steps": steps})
                base = None
                if not _is_from_scratch(variant):
                    base = run_at_equal_seconds(laboratory, variant.model, seed, times.pretraining) / "model"
                tuned.append(fine_tune(laboratory, name, learner, seed, base=base))
            table[variant.name][name] = tuned
    return table


def run_at_equal_seconds(laboratory: Laboratory, model: str, seed: int, seconds: Mapping[str, float]) -> Path:
    """Return a pre-training run for as many seconds as GPT's; seconds: those of an update of each model."""
    if model == _MODELS[0]:
        return laboratory.run(model, seed)
    updates = laboratory.curve(_MODELS[0], seed)[-1]["step"]
    steps = max(1, round(updates * seconds[_MODELS[0]] / seconds[model]))
    return laboratory.run(model, seed, steps=steps, note=f" at {SECONDS}")


def _with_suffix(variant: Variant, label: str) -> Variant:
    return replace(variant, name=f"{variant.name}-{label.replace(' ', '-')}")


def _is_from_scratch(variant: Variant) -> bool:
    return "from_scratch" in variant.changes


def _journal(scores: Sequence[FinetunedScore]) -> list[dict[str, Any]]:
    return read_journal(scores[0].folder / "metrics.jsonl")


def judge_table(table: Table, chosen: Sequence[str], terms: str) -> list[Finding]:
    """Return the findings on scores, without claims on sets of which none is available."""
    names, features = averaged(chosen), CLAIMS["objectives.features"]
    findings = [
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
        findings.append(
            judge_gain(CLAIMS["objectives.pairs"], table, pairs, BERT, GPT, terms=terms, published=paper)
        )
    return findings


def _writes(laboratory: Laboratory) -> Finding:
    """Judge which of the models can generate and score text, from their configuration."""
    seed = laboratory.scale.seeds[0]
    causal = [name for name in _MODELS if load_config(laboratory.model(name, seed)).is_causal]
    here = f"of {', '.join(_MODELS)}: {', '.join(causal)}"
    return judge_count(CLAIMS["objectives.causal"], float(causal == ["gpt1", "lstm"]), here=here)


def _more_parameters(costs: Mapping[str, Costs]) -> Finding:
    added = {name: fmean(cost[_ADDED] for cost in by_variant) for name, by_variant in costs.items()}
    tuned, features = (
        [added[variant.name] for variant in some]
        for some in ((GPT, BERT, LSTM_TUNED), (GPT_FEATURES, BERT_FEATURES, ELMO_FEATURES))
    )
    many = f"{min(features):,.0f} to {max(features):,.0f}"
    here = f"{many} new parameters for features, {max(tuned):,.0f} for fine-tuning"
    return judge_count(CLAIMS["objectives.parameters"], min(features) - max(tuned), here=here)


def _costs_of_training(laboratory: Laboratory, table: Table, terms: str, times: _Times | None) -> dict[str, Costs]:
    """Return, by learner: the tokens and seconds of its training, and the parameters that a task adds."""
    costs: dict[str, Costs] = {}
    for variant in LEARNERS:
        costs[variant.name] = []
        for number, seed in enumerate(laboratory.scale.seeds):
            config = load_config(laboratory.model(variant.model, seed))
            cost = {}
            if not laboratory.scale.models[variant.model].model:
                if terms == SECONDS and times is not None:
                    run = run_at_equal_seconds(laboratory, variant.model, seed, times.pretraining)
                else:
                    run = laboratory.run(variant.model, seed)
                last = read_journal(run / "metrics.jsonl")[-1]
                share = CHOSEN if config.is_masked else 1.0 if config.is_causal else 2.0
                read, updates = (0.0, 0) if _is_from_scratch(variant) else (float(last["tokens"]), last["step"])
                cost = {"tokens read in pre-training": read, "tokens predicted in pre-training": share * read}
                if times is not None:
                    cost["seconds of pre-training"] = updates * times.pretraining[variant.model]
            scored = {name: seeds[number] for name, seeds in table[variant.name].items()}
            if times is not None:
                cost["seconds of fine-tuning, all sets"] = sum(
                    _journal(one)[-1]["step"] * times.tuning[name, variant.name] for name, one in scored.items()
                )
            cost[_ADDED] = sum(_added(variant, one, config.width) for one in scored.values()) / len(scored)
            costs[variant.name].append(cost)
    return costs


def _added(variant: Variant, scores: Sequence[FinetunedScore], width: int) -> int:
    """Return the parameters that a task adds: the head and, unless the base is frozen, three tokens."""
    head = sum(tensor.numel() for tensor in read_tensors(scores[0].folder / "head.safetensors").values())
    return head + (0 if variant.build is not None else 3 * width)


def _published(learner: str, name: str) -> float | None:
    row = _BERT_ROWS.get(learner)
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
