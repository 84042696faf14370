"""Rows as the model reads them: what `finetune --show N` prints."""

from __future__ import annotations

from itertools import groupby, islice
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.prepare import load_tokenizer
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.model.pooled import sequences_of
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Raw
from headwater.model import load_config


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
