"""`learning_rate = "search"`: train at a series of rates, and keep the best model on the validation rows."""

from __future__ import annotations

import shutil
from operator import itemgetter
from pathlib import Path
from typing import Any

from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.train import TrainingOutcome, train_task
from headwater.reading import read_json
from headwater.storage import Progress, write_json
from headwater.training import CHECKPOINTS, OnUpdate

# Rates that are tried, as factors of the base's own, and how far the series continues while its end is the best.
FACTORS, LOWEST, HIGHEST = (0.5, 1.0, 2.0, 4.0), 1 / 16, 64.0
# The run's folders for the rates, during the search.
RATES = "rates"
JOURNAL = "metrics.jsonl"


def search_rate(
    prepared: Prepared, progress: Progress, *, out: Path | None = None, on_update: OnUpdate | None = None
) -> tuple[TrainingOutcome, list[dict[str, Any]]]:
    """Return the training with the best rate, and what each rate gave, in order of the rates.

    Each rate is a whole training. Of equal ones the lower loss wins. If the lowest or the highest rate is the
    best, the series continues in its direction. With `out`, the search resumes: finished rates are not trained
    again, and of their checkpoints only those of the best are kept.
    """
    own = prepared.config.peak_rate(prepared.base.config)
    journal = None if out is None else out / RATES / "tried.json"
    tried: list[dict[str, Any]] = read_json(journal) if journal is not None and journal.is_file() else []
    best: TrainingOutcome | None = None
    left = list(FACTORS)
    while left:
        rate = float(f"{left.pop(0) * own:.3g}")
        known = next((entry for entry in tried if entry["learning_rate"] == rate), None)
        if known is None or known is _best(tried):
            folder = None if out is None else out / RATES / f"{rate:g}"
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            outcome = train_task(
                prepared.with_keys(learning_rate=rate), progress, out=folder, outputs=out, on_update=on_update
            )
            entry = outcome.best_entry()
            value, loss = entry[outcome.metric]["value"], entry["validation_loss"]
            progress.note(f"learning rate {rate:g}: {outcome.metric} {value:.3f}, validation loss {loss:.4f}")
            is_new = known is None
            known = known or {"learning_rate": rate, outcome.metric: value, "validation_loss": loss}
            tried = sorted([*tried, known], key=itemgetter("learning_rate")) if is_new else tried
            if known is _best(tried):
                best = outcome
            if journal is not None and is_new:
                write_json(journal, tried)
                _remove_others(journal.parent, _best(tried))
        left = left or _beyond(tried, own)
    assert best is not None
    if out is not None:
        shutil.copyfile(out / RATES / f"{_best(tried)['learning_rate']:g}" / JOURNAL, out / JOURNAL)
    return best, tried


def _best(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rate with the best metric; of equal ones that with the lower loss."""
    metric = next(key for key in tried[0] if key not in ("learning_rate", "validation_loss"))
    return max(tried, key=lambda entry: (entry[metric], -entry["validation_loss"]))


def _beyond(tried: list[dict[str, Any]], own: float) -> list[float]:
    """Return the factor that continues the series beyond its best end; none if the best rate is inside."""
    place = tried.index(_best(tried))
    factor = tried[place]["learning_rate"] / own
    if place == len(tried) - 1 and 2 * factor <= HIGHEST:
        return [2 * factor]
    return [factor / 2] if place == 0 and factor / 2 >= LOWEST else []


def _remove_others(rates: Path, best: dict[str, Any]) -> None:
    """Remove the checkpoints of all rates but the best."""
    for folder in rates.iterdir():
        if folder.is_dir() and folder.name != f"{best['learning_rate']:g}":
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
