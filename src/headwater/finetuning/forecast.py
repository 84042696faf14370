"""Before a training: its cost (`finetune --dry-run`), and rows as the model reads them (`--show N`).

Nothing is written, and no update is kept. The time follows from a few micro-batches of the real rows, the
optimizer's step, and all tokens of the training.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from headwater import shipped
from headwater.device import choose_device
from headwater.display import duration
from headwater.finetuning.learning.choose import FACTORS
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.parts import read_tables
from headwater.finetuning.learning.prepare import Prepared, load_tokenizer, prepare_folder
from headwater.finetuning.learning.train import build_trainer
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.model.pooled import sequences_of
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Raw
from headwater.finetuning.rows.split import FOLDS
from headwater.model import load_config
from headwater.storage import SILENT, Progress
from headwater.training import resolve_precision

_BUDGET = 15.0  # seconds of timed updates, after the first
_FEWEST, _MOST = 3, 30  # micro-batches
_FROZEN_ROWS = 64  # whose outputs are timed


@dataclass(frozen=True, slots=True)
class TuningForecast:
    """The cost of a fine-tuning; seconds without those of the linear baseline.

    rows: by part. epochs, updates, tokens: of each of the `trainings`, one for each learning rate that is tried.
    """

    parameters: int
    rows: dict[str, int]
    trainings: int
    epochs: float
    updates: int
    tokens: int
    tokens_per_second: float
    seconds: float

    def as_text(self) -> str:
        """Return a table to print."""
        times = f"{self.trainings} times " if self.trainings > 1 else ""
        rows = [
            ("model", f"{self.parameters:,} parameters"),
            ("rows", ", ".join(f"{count:,} for {part}" for part, count in self.rows.items())),
            ("training", f"{times}{self.updates:,} updates, {self.epochs:g} epochs, {self.tokens:,} tokens"),
            ("speed", f"{self.tokens_per_second:,.0f} tokens/s, measured"),
            ("time", f"{duration(self.seconds)}, without the linear baseline"),
        ]
        return "\n".join(f"{name:14}{value}" for name, value in rows)


def forecast(
    config: FinetuneConfig,
    *,
    model: Path,
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    tokenizer: str | Path | None = None,
    progress: Progress = SILENT,
) -> TuningForecast:
    """Return the cost of `finetune` with these arguments; of a search of the learning rate, of its first rates.

    Raises what `finetune` raises before it trains.
    """
    progress.start("reading the rows")
    model = shipped.resolve(model)
    files = {"train": train, "validation": validation, "test": test}
    _, tables = read_tables(config, model, files, progress)
    device = choose_device(config.device)
    config = resolve_precision(config, None, device)
    prepared = prepare_folder(config, tables, model, tokenizer, device, progress)
    progress.finish(f"{len(prepared.encoded['train']):,} to train on")
    progress.start("measuring speed", unit="s")
    if len(prepared.recipes) > 1:
        prepared = prepared.for_recipe("gpt1")  # the one that takes longest
    task_model, timed = prepared.task_model(), prepared.encoded["train"]
    if isinstance(task_model, FrozenTaskModel):  # the one pass over the base is not counted
        timed = task_model.with_outputs(timed.take(np.arange(min(_FROZEN_ROWS, len(timed)))))
    trainer, source = build_trainer(prepared.config, task_model, timed, prepared.parts.labels)
    per_token, step = _time(trainer, source, progress)
    progress.finish(f"{1 / per_token:,.0f} tokens/s")
    return _cost(prepared, trainer.config.steps, per_token, step)


def _cost(prepared: Prepared, updates: int, per_token: float, step: float) -> TuningForecast:
    """Return the cost of a training whose tokens and steps of the optimizer take so many seconds each."""
    config, encoded = prepared.config, prepared.encoded
    tokens = {part: len(one.ids) for part, one in encoded.items()}
    trainings = len(FACTORS) if prepared.given.learning_rate == "search" else len(prepared.recipes)
    if prepared.parts.cross_validated:
        trainings = FOLDS  # FOLDS folds of FOLDS - 1 parts of the rows each, then all rows
    epochs = updates / math.ceil(len(encoded["train"]) / config.batch_size)
    measured = max(3.0, epochs) * tokens["validation"]  # at least three measurements
    each = updates * step + per_token * (tokens["train"] * epochs + (0.0 if config.freeze else measured / 3))
    tests = per_token / 3 * sum(tokens[part] for part in prepared.parts.tests)
    return TuningForecast(
        parameters=prepared.shape.parameter_count,
        rows={part: len(one) for part, one in encoded.items()},
        trainings=trainings,
        epochs=round(epochs, 2),
        updates=updates,
        tokens=round(tokens["train"] * epochs),
        tokens_per_second=1 / per_token,
        seconds=trainings * each + tests,
    )


def _time(trainer: Any, source: Any, progress: Progress) -> tuple[float, float]:
    """Return the seconds per token of a micro-batch, without padding, and of a step of the optimizer."""
    spent, tokens, step, number = 0.0, 0, 0.0, 0
    while number <= _MOST and (number == 0 or spent < _BUDGET) and (number <= _FEWEST or spent < _BUDGET / 5):
        batch = source.micro_batches(number)[0].to(trainer.ranks.device)
        started = time.perf_counter()
        trainer.update([batch])
        seconds = time.perf_counter() - started
        trainer.optimizer.step(0.0)
        step = time.perf_counter() - started - seconds
        if number or seconds > _BUDGET:  # the first one also chooses kernels
            spent += max(0.0, seconds - step)
            tokens += int((batch.extract + 1).sum())
            progress.advance(spent)
        number += 1
    return spent / max(1, tokens), step


def show_examples(
    config: FinetuneConfig, *, model: Path, train: Path, tokenizer: str | Path | None = None, count: int
) -> list[dict[str, Any]]:
    """Return the first `count` rows as sequences: [{row, label, cut, sequences: [{text, tokens, ids}]}]."""
    model = shipped.resolve(model)
    extended = load_tokenizer(model, tokenizer).with_task_tokens()
    shape, recipe = load_config(model), config.recipe
    table = read_table(
        train, config.task, config.columns, need_label=False, limit=config.limit, encoding=config.encoding
    )
    rows = list(islice(table.rows, count if recipe != "auto" else None))
    if table.unread.first:
        raise table.unread.first[0]
    if recipe == "auto":  # the rows decide
        recipe = config.candidates(len(rows), max(2, len({row.label for row in rows})), shape)[0]
    reading = sequences_of(recipe, extended, shape)
    names = {index: name for name, index in extended.special_tokens.items()}
    shown = []
    for row in map(Raw.composed, rows[:count]) if config.compose else rows[:count]:
        encoded = encode([row], config.task, extended, shape.context, **reading)
        sequences = []
        for number in range(len(encoded.lengths)):
            ids = encoded.sequence(number)
            sequences.append({"text": _readable(ids, names, extended), "tokens": len(ids), "ids": ids})
        shown.append({"row": row.row, "label": row.label, "cut": int(encoded.cut[0]), "sequences": sequences})
    return shown


def _readable(ids: list[int], names: dict[int, str], tokenizer: Any) -> str:
    parts = []
    for is_name, group in groupby(ids, names.__contains__):
        run = list(group)
        parts += [f"[{names[token].strip('_')}]" for token in run] if is_name else [tokenizer.decode(run)]
    return " ".join(parts)
