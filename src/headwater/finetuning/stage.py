"""`headwater finetune` as a stage: from a model folder and labelled files to a fine-tuned model folder.

The folder also has `metrics.json` (every metric with its interval, chance and the majority class), `config.toml`
(resolved), `metrics.jsonl` (a line per update), `report.html`, `README.md` (the card), `predictions-PART.jsonl`
and, if labels look wrong, `suspect-labels.jsonl`. During training it has `checkpoints/`: the same command, run
again, resumes from the newest one; they are removed at the end.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.device import choose_device
from headwater.errors import resumable
from headwater.finetuning.learning.choose import RATES, Learned, learn
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.parts import Tables, read_tables
from headwater.finetuning.learning.prepare import prepare_folder
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.results.predictions import write_predictions
from headwater.finetuning.results.report import card, report_page
from headwater.finetuning.results.summary import METRICS_FILE, add_baselines, measure
from headwater.finetuning.results.wrong_labels import SUSPECTS_FILE, find_suspects
from headwater.finetuning.rows.columns import Columns
from headwater.model import load_config
from headwater.reading import read_json
from headwater.storage import (
    SILENT,
    Progress,
    Stage,
    folder_lock,
    read_manifest,
    storage_errors,
    write_json,
    write_json_lines,
    write_text,
)
from headwater.tokenizer import Tokenizer
from headwater.training import CHECKPOINTS, resolve_precision

CONFIG_FILE, REPORT_FILE = "config.toml", "report.html"


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    model: Path,
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    tokenizer: str | Path | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fine-tune the model in folder `model`, or one that ships, and write `out`; return its metrics.json.

    With `config.from_scratch` only the model's shape and tokenizer are used. Without `validation` a part of
    `train` is split off. `test` is measured once, at the end. `tokenizer`: what `Tokenizer.load` takes, for a
    model without one.
    Returns at once if `out` is complete, and resumes a training that was stopped there. Raises DataError for
    tables that cannot be learned from, FolderError for folders, UsageError for configuration.
    """
    files = {"train": train, "validation": validation, "test": test}
    columns, tables = read_tables(config, shipped.resolve(model), files, progress)
    return run_stage(
        config,
        out,
        tables,
        columns=columns,
        model=model,
        tokenizer=tokenizer,
        inputs={role: path for role, path in files.items() if path is not None},
        compose=config.compose,
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
    progress: Progress,
) -> dict[str, Any]:
    """Run `finetune` on these rows, which are read once; `inputs` are the files that they come from.

    `columns` are the training rows' columns and `compose` their Unicode form, saved for `predict`.
    """
    model = shipped.resolve(model)
    stage = _stage(config, out, {"model": model, **inputs}, tokenizer)
    if stage.is_complete() and (out / METRICS_FILE).exists() and (out / REPORT_FILE).exists():
        remove_work(out)  # left by a kill just before its removal
        progress.note(f"{out} is complete already")
        return dict(read_json(out / METRICS_FILE))
    device = choose_device(config.device)
    begun = FinetuneConfig.load(out / CONFIG_FILE) if stage.find() and (out / CONFIG_FILE).exists() else None
    config = resolve_precision(config, begun, device)
    prepared = prepare_folder(config, tables, model, tokenizer, device, progress)
    stage.begin()
    with resumable(), folder_lock(out):
        prepared.config.save(out / CONFIG_FILE)
        prepared.out = out
        learned = learn(prepared)
        tuned = learned.outcome.fine_tuned  # with what `predict` and a further training need of the rows
        tuned.columns, tuned.compose, tuned.seen = columns or Columns(), compose, learned.seen
        metrics = measure(learned)
        _write_model(stage, learned, metrics)
        doubtful: list[dict[str, Any]] = []
        if config.baseline:
            add_baselines(metrics, learned.prepared, learned.outcome, progress)
            doubtful = find_suspects(metrics, learned, progress)
        _write_report(stage, learned, metrics, model.name, doubtful)
    return metrics


def _stage(config: FinetuneConfig, out: Path, inputs: dict[str, Path], tokenizer: str | Path | None) -> Stage:
    given = {} if tokenizer is None else Tokenizer.inputs_of(tokenizer)
    if config.recipe != "auto" and config.learning_rate is None:  # of auto, the rows decide recipe and rate
        config = config.model_copy(update={"learning_rate": config.default_rate(load_config(inputs["model"]))})

    def further() -> str:
        finished = read_manifest(out).complete and FineTuned.is_in(out)
        return f"To train it further: --from {shlex.quote(str(out))} --out NEW" if finished else ""

    return Stage(
        out,
        kind="model",
        config=config.deciding(),
        inputs={"model": inputs["model"], **given, **inputs},
        seed=config.seed,
        measured=("changes",),  # a folder of an earlier version that was trained for longer
        grows=True,
        alternative=further,
    )


def _write_model(stage: Stage, learned: Learned, metrics: dict[str, Any]) -> None:
    """Write the model, its predictions and its metrics."""
    prepared, outcome = learned.prepared, learned.outcome
    tuned = outcome.fine_tuned
    with _written(stage) as work:
        tuned.save(work)
        if rows := prepared.parts.validation.rows:
            write_predictions(tuned, "validation", rows, outcome.probabilities, work)
        for name, rows in prepared.parts.tests.items():
            write_predictions(tuned, name, rows, tuned.probabilities(prepared.encoded[name]), work)
        write_json(work / METRICS_FILE, metrics)


def _write_report(
    stage: Stage, learned: Learned, metrics: dict[str, Any], base: str, doubtful: list[dict[str, Any]]
) -> None:
    """Write the report, the card, the rows whose label is doubtful, and the metrics with the comparison."""
    prepared, outcome = learned.prepared, learned.outcome
    rows, encoded = prepared.parts.validation.rows, prepared.encoded["validation"]
    with _written(stage) as work:
        written, metrics["mistakes"] = report_page(
            outcome.fine_tuned, metrics, rows, encoded, outcome.probabilities
        )
        write_text(work / REPORT_FILE, written)
        if doubtful:
            write_json_lines(work / SUSPECTS_FILE, doubtful)
        write_text(work / "README.md", card(base, outcome.fine_tuned, metrics))
        write_json(work / METRICS_FILE, metrics)
    remove_work(stage.out)


def remove_work(out: Path) -> None:
    """Remove what a training needs only to resume."""
    for name in (CHECKPOINTS, RATES, "base-outputs"):  # the last is of an earlier version
        shutil.rmtree(out / name, ignore_errors=True)


@contextmanager
def _written(stage: Stage) -> Iterator[Path]:
    """Yield a folder inside the stage's; its files are moved there if the block raises nothing."""
    out = stage.out
    work = out / ".export"
    shutil.rmtree(work, ignore_errors=True)
    with storage_errors(out):
        work.mkdir()
        yield work
        files = {CONFIG_FILE, *read_manifest(out).files, *(path.name for path in work.iterdir())}
        stage.reopen()
        for path in work.iterdir():
            path.replace(out / path.name)
        work.rmdir()
    stage.finish(only=files)
