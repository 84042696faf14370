"""Train a fine-tuned model further: with its head and new rows (`keep_head`), or the same training for longer.

A finished training that gets more epochs continues from its best state, whose folder is kept as `model-12` (after
12 updates) next to the checkpoints. The optimizer begins with empty moments there; the learning rate takes its
place on the curve of the new length.
"""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headwater import shipped
from headwater.errors import FolderError, MismatchError, UsageError, counted
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.parts import Parts
from headwater.finetuning.learning.train import OUTPUTS, TrainingOutcome, journal_entry, measure_probabilities
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, no_head
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import Raw
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.rows.split import balance
from headwater.reading import read_json
from headwater.storage import Progress, Stage, read_manifest
from headwater.training import CHECKPOINTS, read_journal

METRICS_FILE, JOURNAL = "metrics.json", "metrics.jsonl"
LENGTH = ("epochs", "steps")  # keys that may change in place


def load_start(config: FinetuneConfig, folder: Path, device: torch.device) -> FineTuned | None:
    """Return the fine-tuned model whose head is kept; None for a new head. Raise what `check_start` does."""
    if not config.keep_head:
        return None
    start = FineTuned.load(folder, device=device)
    check_start(start, config, folder)
    return start


def check_start(start: FineTuned, config: FinetuneConfig, name: Path | str) -> None:
    """Raise MismatchError, naming the key, if `config` trains another kind of head than that of `start`."""
    if start.templates is not None:
        raise no_head(name)
    reader = start.model.reader if isinstance(start.model, FrozenTaskModel) else None
    target = config.target or start.labels.target
    kinds = {
        "task": (start.task, config.task),
        "target": (start.labels.target, target),
        "freeze": (reader is not None, config.freeze),
        "task_model": (reader or "pooling", config.task_model),
        "compose": (start.compose, config.compose),
    }
    for key, (there, now) in kinds.items():
        if there != now:
            raise MismatchError(
                f"{name} was fine-tuned with {key} = {there}, and now it is {now}",
                expected="the same kind of head",
                repair="Leave that option out, or start with a new head: --model in place of --from",
            )


def rows_seen(model: Path, config: FinetuneConfig, progress: Progress) -> Seen | None:
    """Return the rows of the base's own fine-tuning; None if it has none, or if its weights are not used."""
    if config.from_scratch or not FineTuned.is_in(model):
        return None
    if not config.keep_head:
        progress.note(f"{model} is fine-tuned already: a new head is trained (--from keeps its head and labels)")
    seen = Seen.load(model)
    if seen is None:
        progress.note(
            f"{model} does not record the rows that it was trained on, so its split cannot be kept: validation "
            "rows may be among them, and metrics too good; measure on new rows with --validation"
        )
    return seen


def continuation(model: Path, start: FineTuned, seen: Seen | None, parts: Parts) -> dict[str, Any]:
    """Return, for metrics.json, what a training with the head of `start` keeps and adds.

    {"from", "rows": training rows, "known": those that the base's own training had, "added": new labels,
    "without_rows": kept labels that no training row has, "notes": sentences about the labels}.
    """
    names, rows = parts.labels.names, parts.train.rows
    there = balance(rows, parts.targets["train"], parts.labels)
    added = names[len(start.labels.names) :]
    absent = [name for name in names if not there[name]]
    notes = []
    if added:
        notes.append(f"{counted(len(added), 'new label')}, after the others: {listed(added)}")
    if absent:
        notes.append(
            f"{counted(len(absent), 'label')} kept without a training row: {listed(absent)}; the model may forget "
            "what it has no rows of: add earlier rows"
        )
    known = len(rows) - int(seen.new_rows(rows).sum()) if seen else None
    return {
        "from": str(model),
        "rows": len(rows),
        "known": known,
        "added": added,
        "without_rows": absent,
        "notes": notes,
    }


def new_rows(outcome: TrainingOutcome, seen: Seen, rows: Sequence[Raw], encoded: Encoded) -> dict[str, Any]:
    """Return the metric on the validation rows that are new since the base's own fine-tuning."""
    new = seen.new_rows(rows)
    if not new.any() or new.all():
        return {"new_rows": {"count": int(new.sum())}}
    measured = measure_probabilities(outcome.fine_tuned, encoded.targets[new], outcome.probabilities[new])
    return {"new_rows": {"count": int(new.sum()), **measured[outcome.metric]}}


def going_on(out: Path) -> str:
    """Return how to train the model in `out` further with other rows or settings; empty if it is not finished."""
    finished = read_manifest(out).complete and FineTuned.is_in(out)
    return f"To train it further: --from {shlex.quote(str(out))} --out NEW" if finished else ""


def remove_checkpoints(out: Path) -> None:
    """Remove what a training needs only to resume."""
    for name in (CHECKPOINTS, OUTPUTS):
        shutil.rmtree(out / name, ignore_errors=True)


def change_length(
    stage: Stage, changed: dict[str, Any], config: FinetuneConfig, examples: int, progress: Progress
) -> bool:
    """Adapt the training in `stage.out` to a resolved `config` that differs only in its length.

    Return False, with nothing changed, if it is finished and has that length. Raises UsageError for fewer updates
    than were done.
    """
    out, manifest = stage.out, read_manifest(stage.out)
    steps, entry = config.training.steps, {key: value for key, value in changed.items() if value is not None}
    done = max((shipped.step_of(path.name) or 0 for path in shipped.list_checkpoints(out)), default=0)
    at, length = done, 0
    if manifest.complete:
        metrics = read_json(out / METRICS_FILE)
        done, at, length = metrics["curve"][-1]["step"], metrics["best_step"], metrics["steps"]
    if manifest.complete and steps in (done, length):
        return False
    if steps < done:
        an_epoch = math.ceil(examples / config.training.batch_size)
        raise UsageError(
            f"{out} has done {counted(done, 'update')}, {done / an_epoch:.3g} epochs, and {steps:,} are asked for",
            expected="as many epochs, or more",
            repair="Choose another --out"
            if manifest.complete
            else f"--set steps={done}, without epochs, ends it there",
        )
    if manifest.complete:
        entry["model"] = f"model-{done}"
        stage.copy(out / entry["model"])
        remove_checkpoints(out)  # of the finished training, left by a kill just before their removal
        progress.note(f"the model of the shorter training is now {out / entry['model']}")
    stage.config["changes"] = [*manifest.config.get("changes", []), {"at": at, **entry}]
    stage.reopen()
    progress.note(f"{out} continues from update {at:,}, the best so far" if length else f"{out} has a new length")
    return True


def lengthened_start(stage: Stage, device: torch.device) -> tuple[FineTuned, dict[str, Any]] | None:
    """Return the model that a lengthened training continues, and the record of its state, before its first
    checkpoint; None if the training was not lengthened, or has checkpoints.

    Raises FolderError if that model is gone too.
    """
    kept = [change["model"] for change in stage.config.get("changes", []) if "model" in change]
    if not kept or shipped.list_checkpoints(stage.out):
        return None
    folder = stage.out / kept[-1]
    if not folder.is_dir():
        raise FolderError(
            f"{folder}, from which {stage.out} continues, is gone, and so are the checkpoints",
            repair=f"Remove {stage.out}, and train it again",
        )
    metrics = read_json(folder / METRICS_FILE)
    step = metrics["best_step"]
    curve = [journal_entry(entry, metrics["metric"]) for entry in metrics["curve"] if entry["step"] <= step]
    journal = stage.out / JOURNAL
    lines = [line for line in read_journal(journal) if line["step"] <= step] if journal.exists() else []
    return FineTuned.load(folder, device=device), {
        "step": step,
        "tokens": lines[-1]["tokens"] if lines else 0,
        "seconds": lines[-1]["seconds"] if lines else 0.0,
        "best": {"rank": [metrics["value"], -curve[-1]["validation_loss"]], "step": step},
        "curve": curve,
        "sums": {},
        "summed": 0,
        "pinned": [],
    }
