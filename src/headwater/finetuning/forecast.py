"""Forecast a fine-tuning: what `finetune --dry-run` prints. Nothing is written, and no update is kept.

The time follows from a few micro-batches of the real rows, the optimizer's step, and all tokens of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.device import choose_device
from headwater.errors import duration
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.further import load_start
from headwater.finetuning.learning.parts import arrange_parts
from headwater.finetuning.learning.train import build_trainer, prepare_base
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, build_task_model
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Raw
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.stage import load_tokenizer
from headwater.model import load_model
from headwater.storage import SILENT, Progress
from headwater.training import resolve_precision

_BUDGET = 15.0  # seconds of timed updates, after the first
_FEWEST, _MOST = 3, 30  # micro-batches
_FROZEN_ROWS = 64  # whose outputs are timed


@dataclass(frozen=True, slots=True)
class TuningForecast:
    """The cost of a fine-tuning; seconds without those of the linear baseline. rows: by part."""

    parameters: int
    rows: dict[str, int]
    epochs: float
    updates: int
    tokens: int
    tokens_per_second: float
    seconds: float

    def as_text(self) -> str:
        """Return a table to print."""
        rows = [
            ("model", f"{self.parameters:,} parameters"),
            ("rows", ", ".join(f"{count:,} for {part}" for part, count in self.rows.items())),
            ("training", f"{self.updates:,} updates, {self.epochs:g} epochs, {self.tokens:,} tokens"),
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
    tokenizer: str | Path | None = None,
    progress: Progress = SILENT,
) -> TuningForecast:
    """Return the cost of `finetune` with these arguments.

    Raises what `finetune` raises before it trains.
    """

    def rows_of(path: Path, **options: Any) -> tuple[Any, tuple[str, Iterable[Raw]]]:
        columns, rows = read_table(
            path, config.task, config.columns, limit=config.limit, encoding=config.encoding, **options
        )
        return columns, (str(path), map(Raw.composed, rows) if config.compose else rows)

    progress.start("reading the rows")
    model = shipped.resolve(model)
    columns, table = rows_of(train, trained=FineTuned.columns_of(model) if config.keep_head else None)
    tables = {"train": table}
    if validation is not None:
        _, tables["validation"] = rows_of(validation, trained=columns)
    seen = Seen.load(model) if not config.from_scratch else None
    device = choose_device(config.training.device)
    start = load_start(config, model, device)
    parts = arrange_parts(config, tables, seen, start.labels if start else None)
    training = resolve_precision(config.training, None, device)
    config = config.model_copy(update={"training": training})
    base, extended = prepare_base(config, load_model(model, device=device), load_tokenizer(model, tokenizer))
    context = base.config.context
    encoded = {
        part: encode(
            parts.rows[part], config.task, extended, context, targets=parts.targets[part], name=parts.names[part]
        )
        for part in ("train", "validation")
    }
    rows = len(encoded["train"])
    config = config.resolve(base.config, examples=rows)
    progress.finish(f"{rows:,} to train on")
    progress.start("measuring speed", unit="s")
    frozen = config.task_model if config.freeze else None
    task_model = build_task_model(
        base,
        extended,
        config.task,
        parts.labels.outputs,
        dropout=config.classifier_dropout,
        frozen=frozen,
        seed=config.training.seed,
    ).to(device)
    if not base.config.is_causal:
        config = config.model_copy(update={"lambda_lm": 0.0})
    once, timed = 0.0, encoded["train"]
    if isinstance(task_model, FrozenTaskModel):
        some = parts.train.rows[:_FROZEN_ROWS]
        timed = encode(some, config.task, extended, context, targets=parts.targets["train"][: len(some)])
        seconds = _clock(lambda: task_model.with_outputs(timed))
        every = sum(len(part.ids) for part in encoded.values())
        once, timed = seconds * every / len(timed.ids), task_model.with_outputs(timed)
    trainer, source = build_trainer(config, task_model, timed, parts.labels)
    per_token, step = _time(trainer, source, progress)
    updates, batch = config.training.steps, config.training.batch_size
    epochs = updates * batch / max(1, rows)
    tokens = len(encoded["train"].ids) * epochs
    measured = max(3.0, epochs) * len(encoded["validation"].ids)  # at least three measurements
    seconds = once + updates * step + per_token * (tokens + measured * (0.0 if frozen else 1 / 3))
    progress.finish(f"{1 / per_token:,.0f} tokens/s")
    return TuningForecast(
        parameters=base.config.parameter_count,
        rows={part: len(one) for part, one in encoded.items()},
        epochs=round(epochs, 2),
        updates=updates,
        tokens=round(tokens),
        tokens_per_second=1 / per_token,
        seconds=seconds,
    )


def _clock(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _time(trainer: Any, source: Any, progress: Progress) -> tuple[float, float]:
    """Return the seconds per token of a micro-batch, without padding, and of a step of the optimizer."""
    spent, tokens, step, number = 0.0, 0, 0.0, 0
    while number <= _MOST and (number == 0 or spent < _BUDGET) and (number <= _FEWEST or spent < _BUDGET / 5):
        batch = source.micro_batches(number)[0].to(trainer.ranks.device)
        seconds = _clock(lambda batch=batch: trainer.update([batch]))  # type: ignore[misc]
        step = _clock(lambda: trainer.optimizer.step(0.0))
        if number or seconds > _BUDGET:  # the first one also chooses kernels
            spent += max(0.0, seconds - step)
            tokens += int((batch.extract + 1).sum())
            progress.advance(spent)
        number += 1
    return spent / max(1, tokens), step
