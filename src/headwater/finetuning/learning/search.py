"""`learning_rate = "search"`: train at a short series of rates, and keep the best on the validation rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.train import train_task
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.rows.labels import Labels
from headwater.storage import Progress
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

# Rates that are tried, as factors of the base's own.
FACTORS = (0.5, 1.0, 2.0, 4.0)


def search_rate(
    config: FinetuneConfig,
    fresh: Callable[[], Model],
    tokenizer: Tokenizer,
    train: Encoded,
    validation: Encoded,
    labels: Labels,
    progress: Progress,
    start: FineTuned | None = None,
) -> tuple[FinetuneConfig, list[dict[str, Any]]]:
    """Return the configuration with the best rate, and what each rate gave; `fresh` returns an untrained base.

    Each rate is a whole training, of which only its best measurement is kept. Of equal ones the lower loss wins.
    """
    tried = []
    for factor in FACTORS:
        base = fresh()
        rate = float(f"{factor * config.default_rate(base.config):.3g}")
        one = config.model_copy(update={"learning_rate": rate})
        outcome = train_task(one, base, tokenizer, train, validation, labels, start=start)
        best = outcome.best_entry()
        outcome.end_training()
        value, loss = best[outcome.metric]["value"], best["validation_loss"]
        progress.note(f"learning rate {rate:g}: {outcome.metric} {value:.3f}, validation loss {loss:.4f}")
        tried.append(
            {"learning_rate": rate, outcome.metric: value, "validation_loss": loss, "_rank": (value, -loss)}
        )
    best_rate = max(tried, key=lambda entry: entry["_rank"])["learning_rate"]
    for entry in tried:
        del entry["_rank"]
    return config.model_copy(update={"learning_rate": best_rate}), tried
