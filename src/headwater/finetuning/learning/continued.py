"""Continue a fine-tuned model with its head and new rows: `keep_head`, or --from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.finetuning.learning.config import FinetuneConfig, Recipe
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, no_head
from headwater.finetuning.model.pooled import PooledModel
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import Raw
from headwater.finetuning.rows.seen import Seen
from headwater.storage import Progress


def recipe_of(start: FineTuned) -> Recipe:
    """Return the recipe whose head a fine-tuned model has."""
    return "lp-ft" if isinstance(start.model, PooledModel) else "gpt1"


def check_start(start: FineTuned, config: FinetuneConfig, name: Path | str) -> None:
    """Raise UsageError, naming the key, if `config` trains another kind of head than that of `start`."""
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
        "recipe": (recipe_of(start), recipe_of(start) if config.recipe == "auto" else config.recipe),
    }
    for key, (there, now) in kinds.items():
        if there != now:
            raise UsageError(
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


def continuation(
    model: Path,
    start: FineTuned,
    seen: Seen | None,
    labels: Labels,
    rows: Sequence[Raw],
    classes: Mapping[str, int],
) -> dict[str, Any]:
    """Return, for metrics.json, what a training with the head of `start` keeps and adds.

    {"from", "rows": training rows, "known": those that the base's own training had, "added": new labels,
    "without_rows": those of `classes`, training rows by label, that have none}.
    """
    added = labels.names[len(start.labels.names) :]
    known = len(rows) - int(seen.new_rows(rows).sum()) if seen else None
    return {
        "from": str(model),
        "rows": len(rows),
        "known": known,
        "added": added,
        "without_rows": [name for name in labels.names if not classes[name]],
    }
