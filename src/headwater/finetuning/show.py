"""`finetune --show N`: rows as the model reads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

from headwater import shipped
from headwater.errors import DataError
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.model.heads import text_frame
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Label
from headwater.model import load_config
from headwater.tokenizer import Tokenizer, missing_tokenizer


@dataclass(frozen=True)
class ShownSequence:
    """A sequence of a row: its text with the names of special tokens, and its ids."""

    text: str
    ids: list[int]


@dataclass(frozen=True)
class ShownExample:
    """A row as the model reads it; cut: tokens that did not fit."""

    row: int
    label: Label
    cut: int
    sequences: list[ShownSequence]


def show_examples(
    config: FinetuneConfig, *, model: str | Path | None = None, train: Path, count: int
) -> list[ShownExample]:
    """Return the first `count` rows as the base reads them; without `model` as the default base does."""
    folder = shipped.resolve(model or shipped.DEFAULT)
    shape = load_config(folder)
    tokenizer = Tokenizer.of_model(folder, shape.vocabulary, None)
    if tokenizer is None:
        raise missing_tokenizer(folder)
    extended = tokenizer.with_task_tokens()
    limit = count if config.limit is None else min(count, config.limit)
    table = read_table(train, config.task, config.columns, need_label=False, limit=limit, encoding=config.encoding)
    rows = [row.composed() for row in islice(table.rows, count)]
    if table.unread.first:
        error: DataError = table.unread.first[0]
        raise error
    frame = text_frame(extended, shape, config.task, config.members(shape))
    names = {index: name for name, index in extended.special_tokens.items()}
    shown = []
    for row in rows:
        encoded = encode([row], config.task, extended, shape.context, frame=frame)
        sequences = [encoded.sequence(number) for number in range(len(encoded.lengths))]
        texts = [ShownSequence(_readable(ids, names, extended), ids) for ids in sequences]
        shown.append(ShownExample(row.row, row.label, int(encoded.cut[0]), texts))
    return shown


def _readable(ids: list[int], names: dict[int, str], tokenizer: Tokenizer) -> str:
    parts = []
    for is_name, group in groupby(ids, names.__contains__):
        run = list(group)
        parts += [f"[{names[token].strip('_')}]" for token in run] if is_name else [tokenizer.decode(run)]
    return " ".join(parts)
