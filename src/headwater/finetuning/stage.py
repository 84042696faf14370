"""`headwater finetune` as a stage: from a base and labelled files to a fine-tuned model folder.

The folder also has `metrics.json` (every figure with its interval), `config.toml` (resolved), `metrics.jsonl` (a
line per update, without cross-validation), `report.html`, `predictions-PART.jsonl` and, if labels look wrong,
`doubtful-labels.jsonl`. During training it has `checkpoints/`, in cross-validation those of each fold in `folds/`:
the same command, run again, resumes from the newest one; they are removed at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.device import choose_device
from headwater.display import counted
from headwater.errors import resumable
from headwater.finetuning.learning.bases import Base, base_notes, choose_base, open_base
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.examples import Build, encode
from headwater.finetuning.learning.fit import Fitted, fit
from headwater.finetuning.learning.members import FOLDERS
from headwater.finetuning.learning.parts import Parts, read
from headwater.finetuning.learning.train import Reporter
from headwater.finetuning.model.fine_tuned import FineTuned, decide, original_base
from headwater.finetuning.results.analyses import DOUBTFUL_FILE, METRICS_FILE, FinetuneResults, analyse
from headwater.finetuning.results.report import report_page, summary_lines
from headwater.finetuning.rows.row import Raw
from headwater.reading import read_json
from headwater.storage import (
    INTERACTIVE,
    Progress,
    Stage,
    folder_lock,
    has_manifest,
    storage_errors,
    write_json,
    write_json_lines,
    write_text,
)
from headwater.training import CHECKPOINTS, resolve_precision

CONFIG_FILE, REPORT_FILE, JOURNAL = "config.toml", "report.html", "metrics.jsonl"


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    model: str | Path | None = None,
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    progress: Progress = INTERACTIVE,
) -> dict[str, Any]:
    """Fine-tune a base on labelled rows, and write `out`; return its metrics.json.

    model: a folder, or the name of a model that ships; by default the best of the bases of this machine, by a
    probe of a sample of the rows. With `config.from_scratch` only its shape and tokenizer are used. Without
    `validation` cross-validation measures few rows, and a part of many is held out. `test` is measured once, at
    the end. Returns at once if `out` is complete, and resumes a training that was stopped there. Raises
    DataError for tables that cannot be learned from, FolderError for folders, UsageError for configuration.
    """
    files = {"train": train, "validation": validation, "test": test}
    inputs = {role: path for role, path in files.items() if path is not None}
    return run_stage(
        config, out, lambda: read(config, files, progress), model=model, inputs=inputs, progress=progress
    )


def run_stage(
    config: FinetuneConfig,
    out: Path,
    read_parts: Callable[[], Parts],
    *,
    model: str | Path | None,
    inputs: Mapping[str, Path],
    build: Build | None = None,
    progress: Progress = INTERACTIVE,
) -> dict[str, Any]:
    """Run `finetune` on the rows that `read_parts` returns; `inputs` are the files that they come from.

    build: makes the task model of the recipe gpt1 in place of GPT-1's own; its folder cannot be opened again.
    """
    parts: Parts | None = None
    base: Base | None = None
    if model is None and has_manifest(out):
        model = original_base(out)  # which was chosen before
    if model is None:
        Stage(out, kind="model", config={}, inputs={}, grows=True).is_complete()  # refuses `out` before the bases
        parts = read_parts()
        base = choose_base(config, parts, progress)
        model = base.folder
    assert model is not None
    stage = Stage(
        out,
        kind="model",
        config=config.deciding(),
        inputs={"model": shipped.resolve(model), **inputs},
        grows=True,
    )
    if stage.is_complete() and (out / METRICS_FILE).exists() and (out / REPORT_FILE).exists():
        remove_work(out)  # left by a kill just before its removal
        progress.note(f"{out} is complete already")
        return dict(read_json(out / METRICS_FILE))
    device = choose_device(config.device)
    begun = FinetuneConfig.load(out / CONFIG_FILE) if stage.find() and (out / CONFIG_FILE).exists() else None
    config = resolve_precision(config, begun, device)
    base = base or open_base(config, model, device)
    parts = parts or read_parts()
    parts = replace(parts, notes=[*parts.notes, *base_notes(base, parts)])
    progress.start("tokens")
    examples = encode(parts, base, config, build=build)
    progress.finish(f"{counted(len(examples.seen.ids), 'token')} in {counted(len(examples.seen), 'row')}")
    for note in examples.parts.notes:
        progress.note(note)
    stage.begin()
    with resumable(), folder_lock(out):
        config.save(out / CONFIG_FILE)
        fitted = fit(examples, config, Reporter(progress, out))
        progress.start("figures")
        tests = {name: fitted.model.probabilities(encoded) for name, encoded in examples.tests.items()}
        results = analyse(fitted, examples, config, tests)
        progress.finish()
        with storage_errors(out):
            fitted.model.save(out)
            for name, part in examples.parts.tests.items():
                lines = _predictions(fitted.model, part.rows, tests[name])
                write_json_lines(out / f"predictions-{name}.jsonl", lines)
            metrics = _write_results(out, fitted, results)
            for curves in out.glob(f"{FOLDERS}/*/tensorboard"):
                shutil.copytree(curves, out / "tensorboard" / curves.parent.name, dirs_exist_ok=True)
        stage.finish(only={path.name for path in out.iterdir()} - {CHECKPOINTS, FOLDERS, JOURNAL})
        remove_work(out)
    return metrics


def _write_results(out: Path, fitted: Fitted, results: FinetuneResults) -> dict[str, Any]:
    """Write the predictions of the measured rows, the doubtful labels, report and figures; return the figures."""
    measured, labels = fitted.measured, fitted.model.labels
    metrics = results.to_dict() | {"summary": summary_lines(results)}
    lines = _predictions(fitted.model, measured.part.rows, measured.probabilities)
    write_json_lines(out / "predictions-validation.jsonl", lines)
    if results.doubtful.rows:
        write_json_lines(out / DOUBTFUL_FILE, map(asdict, results.doubtful.rows))
    page = report_page(results, labels, measured.part.targets, decide(labels, measured.probabilities))
    write_text(out / REPORT_FILE, page)
    write_json(out / METRICS_FILE, metrics)
    return metrics


def _predictions(
    model: FineTuned, rows: Iterable[Raw], probabilities: npt.NDArray[np.float32]
) -> Iterator[dict[str, Any]]:
    """Yield each row's texts, label, prediction and, unless it is a score, probabilities."""
    for row, shares in zip(rows, probabilities, strict=True):
        answers, empty = len(row.segments) - 2 if model.task == "choice" else len(shares), row.is_empty(model.task)
        prediction = model.prediction(row.row, shares[:answers])
        line: dict[str, Any] = {"row": row.row, "texts": list(row.segments), "label": row.label}
        line["prediction"] = None if empty else prediction.label
        if model.labels.target != "score":
            line["probabilities"] = {} if empty else prediction.probabilities
        yield line


def remove_work(out: Path) -> None:
    """Remove the files that a training needs only to resume."""
    for name in (CHECKPOINTS, FOLDERS):
        shutil.rmtree(out / name, ignore_errors=True)
