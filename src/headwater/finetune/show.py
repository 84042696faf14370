"""Examples as the model will see them: what `finetune --show N` prints."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.finetune.examples import read_rows
from headwater.finetune.finetuning import load_tokenizer
from headwater.finetune.inputs import TaskExample, encode
from headwater.finetune.training import FinetuneConfig
from headwater.model.io.folder import load_config


def show_examples(
    config: FinetuneConfig, *, model: Path, train: Path, tokenizer: Path | None = None, count: int
) -> list[dict[str, Any]]:
    """The first `count` rows as sequences: [{row, label, cut, sequences: [{text, tokens, ids}]}]."""
    model = shipped.resolve(model)
    extended = load_tokenizer(model, tokenizer).with_task_tokens()
    context = load_config(model).context
    names = {index: name for name, index in extended.special_tokens.items()}
    shown = []
    for row in islice(read_rows(train, config.task, config.columns, need_label=False), count):
        encoded = encode([TaskExample(row.segments, None, row.row)], config.task, extended, context)
        sequences = []
        for number in range(len(encoded.lengths)):
            ids = encoded.sequence(number)
            sequences.append({"text": _readable(ids, names, extended), "tokens": len(ids), "ids": ids})
        shown.append(
            {"row": row.row, "label": row.label, "cut": encoded.truncation.tokens, "sequences": sequences}
        )
    return shown


def _readable(ids: list[int], names: dict[int, str], tokenizer: Any) -> str:
    """Decoded text between the task tokens' names."""
    parts: list[str] = []
    run: list[int] = []
    for token in [*ids, -1]:
        if token >= 0 and token not in names:
            run.append(token)
            continue
        if run:
            parts.append(tokenizer.decode(run))
            run = []
        if token >= 0:
            parts.append(f"[{names[token].strip('_')}]")
    return " ".join(parts)
