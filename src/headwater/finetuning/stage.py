"""`headwater finetune` as a stage: from a model folder and labelled files to a fine-tuned model folder.

The folder also has `metrics.json` (every metric with its interval, chance and the majority class), `config.toml`
(resolved), `metrics.jsonl` (a line an update) and `report.html`. During training it has `checkpoints/`: the same
command, run again, resumes from the newest one; they are removed at the end.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.device import choose_device
from headwater.errors import counted, resumable
from headwater.finetuning.learning.config import PAPER_EPOCHS, FinetuneConfig
from headwater.finetuning.learning.further import (
    LENGTH,
    METRICS_FILE,
    change_length,
    continuation,
    going_on,
    lengthened_start,
    load_start,
    new_rows,
    remove_checkpoints,
    rows_seen,
)
from headwater.finetuning.learning.parts import Parts, Tables, arrange_parts
from headwater.finetuning.learning.search import search_rate
from headwater.finetuning.learning.train import TrainingOutcome, measure_probabilities, prepare_base, train_task
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.inputs import Encoded, encode, truncation
from headwater.finetuning.results.baseline import compare
from headwater.finetuning.results.metrics import by_class, by_label, confusion_matrix
from headwater.finetuning.results.page import card, page
from headwater.finetuning.results.predictions import write_predictions
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Raw
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.rows.split import balance, report
from headwater.model import load_config, load_model
from headwater.reading import read_json
from headwater.storage import (
    SILENT,
    Progress,
    Stage,
    folder_lock,
    storage_errors,
    write_json,
    write_text,
)
from headwater.tokenizer import Tokenizer, missing_tokenizer
from headwater.training import resolve_precision

CONFIG_FILE = "config.toml"


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    model: Path,
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    tokenizer: str | Path | None = None,
    baseline: dict[str, Any] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fine-tune the model in folder `model`, or one that ships, and write `out`; return its metrics.json.

    With `config.from_scratch` only the model's shape and tokenizer are used. Without `validation` a part of
    `train` is split off. `test` is measured once, at the end. `tokenizer`: what `Tokenizer.load` takes, for a
    model without one.
    `baseline`: the baseline in the metrics.json of a training on the same rows without `test`; None measures it.
    Returns at once if `out` is complete, and resumes a training that was stopped there. Raises DataError for
    tables that cannot be learned from, FolderError for folders, UsageError for configuration.
    """

    def as_read(rows: Iterable[Raw]) -> Iterable[Raw]:
        return map(Raw.composed, rows) if config.compose else rows

    files = {"train": train, "validation": validation, "test": test}
    given = {role: path for role, path in files.items() if path is not None}
    columns, rows = read_table(
        train,
        config.task,
        config.columns,
        trained=FineTuned.columns_of(shipped.resolve(model)) if config.keep_head else None,
        limit=config.limit,
        encoding=config.encoding,
        progress=progress,
    )
    tables: dict[str, tuple[str, Iterable[Raw]]] = {"train": (str(train), as_read(rows))}
    for role, path in given.items():
        if role != "train":
            _, rows = read_table(
                path,
                config.task,
                config.columns,
                trained=columns,
                need_label=role != "test",
                limit=config.limit,
                encoding=config.encoding,
                progress=progress,
            )
            tables[role] = str(path), as_read(rows)
    known = None if baseline is None else {"validation": baseline}
    return run_stage(
        config,
        out,
        tables,
        columns=columns,
        model=model,
        tokenizer=tokenizer,
        inputs=given,
        compose=config.compose,
        baselines=known,
        progress=progress,
    )


def run_stage(
    config: FinetuneConfig,
    out: Path,
    tables: Tables,
    *,
    columns: Columns | None = None,
    model: Path,
    tokenizer: str | Path | None,
    inputs: Mapping[str, Path],
    compose: bool = False,
    baselines: dict[str, dict[str, Any]] | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Run `finetune` on these rows, which are read once; `inputs` are the files that they come from.

    `columns` are the training rows' columns and `compose` their Unicode form, saved for `predict`.
    """
    model = shipped.resolve(model)
    shape = load_config(model)
    used: dict[str, Any] = {"reason": config.rate_reason(shape)}
    if config.learning_rate is None:
        rate = config.peak_rate(shape)
        progress.note(f"learning rate {rate:g}, {used['reason']} (--learning-rate for another, --find-lr)")
        config = config.model_copy(update={"learning_rate": rate})
    folders = {"model": model} | ({} if tokenizer is None else Tokenizer.inputs_of(tokenizer))
    stage = Stage(
        out,
        kind="model",
        config=config.deciding(),
        inputs=folders | dict(inputs),
        seed=config.training.seed,
        measured=("changes",),
        grows=True,
        defaults=FinetuneConfig.defaults(),
        alternative=lambda: going_on(out),
    )

    def complete() -> dict[str, Any]:
        remove_checkpoints(out)  # left by a kill just before their removal
        progress.note(f"{out} is complete already")
        return dict(read_json(out / METRICS_FILE))

    changed = stage.changed(LENGTH)
    if not changed and stage.is_complete():
        return complete()
    device = choose_device(config.training.device)
    begun = _begun(stage, changed)
    training = resolve_precision(config.training, begun.training if begun else None, device)
    config = config.model_copy(update={"training": training})
    start = load_start(config, model, device)
    seen = rows_seen(model, config, progress)
    parts = arrange_parts(config, tables, seen, start.labels if start else None)
    whole = start.model.model if start else load_model(model, device=device)
    base, extended = prepare_base(config, whole, load_tokenizer(model, tokenizer))

    context = base.config.context
    encoded = {  # the tests too: an error in them comes before the training
        part: encode(rows, config.task, extended, context, targets=parts.targets[part], name=parts.names[part])
        for part, rows in parts.rows.items()
    }
    for name in parts.tests:
        if lacking := int((~encoded[name].known).sum()):
            progress.note(f"not measured in {name}: {counted(lacking, 'row')} without text or label")
    train, validation = encoded["train"], encoded["validation"]
    config.checked_metric(parts.labels)
    epochs = config.epochs_for(len(train), shape)
    if config.steps is None and config.epochs is None and shape.transfer_epochs is None and epochs > PAPER_EPOCHS:
        progress.note(f"{epochs:g} epochs, because there are few rows (--epochs for another number)")
    if config.learning_rate == "search" and begun is not None:  # the search is done
        config = config.model_copy(update={"learning_rate": begun.learning_rate})
    elif config.learning_rate == "search":
        config, used["tried"] = search_rate(
            config,
            lambda: prepare_base(config, load_model(model, device=device), load_tokenizer(model, tokenizer))[0],
            extended,
            train,
            validation,
            parts.labels,
            progress,
            start,
        )
    used["value"] = config.peak_rate(shape)
    config = config.resolve(base.config, examples=len(train))
    classes = balance(parts.train.rows, train.targets, parts.labels)
    figures, notes = report(parts.train, parts.validation, classes)
    notes += seen.notes(model, parts.train.rows, parts.validation.rows) if seen else []
    continued = {} if start is None else {"continued": continuation(model, start, seen, parts)}
    notes += continued["continued"]["notes"] if continued else []
    notes += truncation("training", parts.train.rows, train)
    notes += truncation("validation", parts.validation.rows, validation)
    for note in notes:
        progress.note(note)
    if changed:
        with folder_lock(out):
            if not change_length(stage, changed, config, len(train), progress):
                return complete()
    stage.begin()
    start, record = lengthened_start(stage, device) or (start, None)
    with resumable(), folder_lock(out):
        config.save(out / CONFIG_FILE)
        outcome = train_task(
            config,
            base,
            extended,
            train,
            validation,
            parts.labels,
            progress,
            out=out,
            start=start,
            begins_with=record,
        )
        outcome.fine_tuned.columns, outcome.fine_tuned.compose = columns or Columns(), compose
        outcome.fine_tuned.seen = (seen or Seen()).extended(parts.train.rows, parts.validation.rows)
        metrics = summarise(outcome, train, validation, parts, figures) | {"learning_rate": used} | continued
        if seen:
            metrics |= new_rows(outcome, seen, parts.validation.rows, validation)
        metrics |= _compared(config, outcome, parts, encoded, baselines, progress)
        with _moved_into(out) as work:
            for name, rows in parts.tests.items():
                shares = outcome.fine_tuned.probabilities(encoded[name])
                write_predictions(outcome.fine_tuned, name, rows, shares, work)
                metrics["tests"][name] |= _measured(outcome.fine_tuned, encoded[name], shares)
            shares = outcome.probabilities
            write_predictions(outcome.fine_tuned, "validation", parts.validation.rows, shares, work)
            outcome.end_training()
            written, metrics["mistakes"] = page(
                outcome.fine_tuned, metrics, parts.validation.rows, validation, shares
            )
            write_text(work / "report.html", written)
            write_text(work / "README.md", card(model.name, outcome.fine_tuned, metrics))
            outcome.fine_tuned.save(work)
            write_json(work / METRICS_FILE, metrics)
            made = {path.name for path in work.iterdir()}
        stage.finish(only={CONFIG_FILE, *made})
        remove_checkpoints(out)
    return metrics


def _begun(stage: Stage, changed: Mapping[str, Any]) -> FinetuneConfig | None:
    has_begun = (changed or stage.find() is not None) and (stage.out / CONFIG_FILE).exists()
    return FinetuneConfig.load(stage.out / CONFIG_FILE) if has_begun else None


@contextmanager
def _moved_into(out: Path) -> Iterator[Path]:
    """Yield a folder inside `out`; its files are moved into `out` if the block raises nothing."""
    work = out / ".export"
    shutil.rmtree(work, ignore_errors=True)
    with storage_errors(out):
        work.mkdir()
        yield work
        for path in work.iterdir():
            path.replace(out / path.name)
        work.rmdir()


def _measured(fine_tuned: FineTuned, encoded: Encoded, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return the metrics of a test part, on its rows with text and label; only the counts if there is none."""
    known = encoded.known
    figures: dict[str, Any] = {"count": len(encoded), "labelled": int(known.sum())}
    if known.any():
        figures |= measure_probabilities(fine_tuned, encoded.targets[known], probabilities[known])
    return figures


def _compared(
    config: FinetuneConfig,
    outcome: TrainingOutcome,
    parts: Parts,
    encoded: Mapping[str, Encoded],
    baselines: dict[str, dict[str, Any]] | None,
    progress: Progress,
) -> dict[str, Any]:
    """Return the baseline of each part, the metrics of each class, and warnings for the user."""
    taken = {part: ([row.segments for row in rows], encoded[part].targets) for part, rows in parts.rows.items()}
    labels = outcome.fine_tuned.labels
    if baselines is None:
        progress.start("baseline")  # it takes minutes with many classes
        baselines = compare(
            config.task,
            labels,
            outcome.metric,
            taken.pop("train"),
            taken,
            seed=config.training.seed,
            class_weight=config.class_weight,
        )
        progress.finish(str(baselines["validation"]["name"]))
    figures: dict[str, Any] = {
        "baseline": baselines["validation"],
        "tests": {name: {"baseline": baselines[name]} if name in baselines else {} for name in parts.tests},
        "warnings": [],
    }
    decided = outcome.fine_tuned.decide(outcome.probabilities)
    if labels.target == "labels":
        figures["classes"] = by_label(encoded["validation"].targets, decided, labels.names)
    if labels.target != "class":
        return figures
    truth, chosen = encoded["validation"].targets.astype(np.int64), decided.astype(np.int64)
    figures["classes"] = by_class(confusion_matrix(truth, chosen, labels.outputs), labels.names)
    if len(set(chosen.tolist())) == 1 and len(set(truth.tolist())) > 1:
        figures["warnings"].append(
            f"the model predicts {labels.names[chosen[0]]!r} for all {len(chosen):,} validation rows; "
            "try more epochs, a larger --learning-rate or --set class_weight=balanced"
        )
    return figures


def load_tokenizer(model: Path, given: str | Path | None = None) -> Tokenizer:
    """Return the tokenizer in a model folder, or the `given` one if it has none.

    Raises MismatchError if there is neither, if both differ, or if the size of `given` does not fit the model.
    """
    tokenizer = Tokenizer.of_model(model, load_config(model).vocabulary, given)
    if tokenizer is None:
        raise missing_tokenizer(model)
    return tokenizer


def summarise(
    outcome: TrainingOutcome, train: Encoded, validation: Encoded, parts: Parts, figures: dict[str, Any]
) -> dict[str, Any]:
    """Return the content of metrics.json, without the baseline and the tests."""
    best = outcome.best_entry()
    labels = outcome.fine_tuned.labels
    summary: dict[str, Any] = {
        "task": outcome.fine_tuned.task,
        "metric": outcome.metric,
        **best[outcome.metric],
        "count": len(validation),
        "selected_on_validation": len(outcome.curve) > 1,
    }
    if labels.target in ("labels", "class", "answer"):
        summary["accuracy"] = best["accuracy"]["value"]
        summary["accuracy_interval"] = best["accuracy"]["interval"]
    if labels.target in ("labels", "class"):
        summary["macro_f1"] = best["macro_f1"]["value"]
    if labels.target in ("class", "answer"):
        majority = Counter(train.targets.astype(np.int64).tolist()).most_common(1)[0][0]
        summary["majority"] = float((validation.targets == majority).mean())
        if labels.target == "class":
            summary["chance"] = 1 / labels.outputs
            summary["majority_class"] = labels.names[majority]
        else:
            summary["chance"] = float(np.mean(1 / np.diff(validation.first)))
            summary["majority_class"] = str(labels.first_answer + majority)
    return summary | {
        "best_step": outcome.best_step,
        "steps": outcome.steps,
        "counts": {"train": len(train), "validation": len(validation)},
        "validation_split_off": parts.split_off,
        "data": figures,
        "truncated": {
            name: {"examples": int(np.count_nonzero(part.cut)), "tokens": int(part.cut.sum())}
            for name, part in (("train", train), ("validation", validation))
        },
        "curve": outcome.curve,
    }
