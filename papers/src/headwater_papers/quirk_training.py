"""Fine-tuning with one silent choice of GPT-1's code switched at a time, made of the product's own parts.

`Choices` are the switches. `train_with` trains one model on a labelled set and returns what each test row got.
There is no choice of an epoch: the state after the last update is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headwater.device import choose_device
from headwater.finetuning import (
    Encoded,
    ExampleSampler,
    FinetuneConfig,
    FineTuned,
    Raw,
    TaskModel,
    arrange_rows,
    build_trainer,
)
from headwater.model import IGNORE, build_model, load_model
from headwater.tokenizer import TaskTokens, Tokenizer
from headwater.training import AdamForm

if TYPE_CHECKING:
    from headwater.model import Model


class Choices(NamedTuple):
    """What the authors' code decides. The defaults are those of `headwater finetune`."""

    drops: str = "matrix"
    """Dropout of entries of the embedding matrix, or of the sum of its rows."""
    rows: str = "all"
    """Whether the softmax of L1 has the position rows."""
    adam: AdamForm = "original"
    """Whether ε is added before the bias correction, and the decay is multiplied by the corrected step."""
    clip: float = 1.0
    """Largest norm of the gradients; 0: no limit."""
    half: bool = False
    """Whether each text is cut to half of the context less two tokens."""
    drops_partial: bool = False
    """Whether an epoch leaves out the rows that do not fill a batch."""
    by_sequence: bool = True
    """Whether L1 is a mean over the tokens of each sequence, then over sequences; else over all tokens."""
    task_tokens: bool = True
    """Whether L1 includes the prediction of the delimiter and the extract token."""
    pretrained: bool = True
    """Whether the base's weights are used, or only its shape."""
    position_deviation: float = 0.02
    """Deviation of the first position rows, without pre-training."""


@dataclass(frozen=True)
class RowValues:
    """Each test row's value, in the order of the rows. loss: −log P(label). cut: share of training rows that lost
    tokens.
    """

    ids: tuple[str, ...]
    correct: list[float]
    loss: list[float]
    updates: int
    cut: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"ids": list(self.ids)}


def train_with(
    choices: Choices,
    config: FinetuneConfig,
    base: Path,
    tables: Mapping[str, tuple[str, Iterable[Raw]]],
    *,
    context: int,
    device: str = "auto",
) -> RowValues:
    """Fine-tune a classifier of one text or two with these choices, and measure it on all of its test rows.

    context: the tokens of a sequence, at most the base's.
    """
    place = choose_device(device)
    parts = arrange_rows(config, tables).divided(config, crossed=False)
    tokenizer = Tokenizer.load(base).with_task_tokens()
    seed = config.seed
    model = TaskModel(
        _base_with(choices, base, context, tokenizer, config),
        config.task,
        parts.labels.outputs,
        dropout=config.classifier_dropout,
        seed=seed + 1,
        delimiter=tokenizer.task_tokens.delimiter,
    )
    fine_tuned = FineTuned.of(model, tokenizer, parts.labels)
    tests = [row for part in parts.tests.values() for row in part.rows if row.label is not None]
    tests = tests or (
        parts.validation.rows if parts.validation else []
    )  # a server has the labels of the test part
    train, test = (fine_tuned.encode(rows, parts.labels) for rows in (parts.train.rows, tests))
    short = train.cut > 0
    if choices.half:
        most = context // 2 - 2
        short |= _longest_text(train, tokenizer.task_tokens) > most
        train, test = (_cut(one, tokenizer.task_tokens, most) for one in (train, test))

    config = config.resolve(model.model.config, examples=len(train))
    assert config.steps is not None  # of a resolved recipe
    size = config.batch_size
    epochs = math.ceil(config.steps / math.ceil(len(train) / size))
    steps = epochs * (len(train) // size) if choices.drops_partial else config.steps
    config = config.model_copy(
        update={"adam": choices.adam, "clip": choices.clip, "steps": steps, "warmup_steps": config.warmup * steps}
    )
    model.to(place)
    trainer, every_row = build_trainer(config, model, train, parts.labels)
    source: ExampleSampler | _FullBatches = every_row
    if choices.drops_partial:
        source = _FullBatches(train, parts.labels.probabilities(train), size, seed)
    weighted = _Weighted(source, choices, tokenizer.task_tokens)
    for step in range(steps):
        trainer.update([batch.to(place) for batch in weighted.micro_batches(step)])
    probabilities = fine_tuned.probabilities(test)
    targets = test.targets.astype(np.int64)
    of_label = probabilities[np.arange(len(test)), targets]
    return RowValues(
        ids=tuple(str(row.row) for row in tests),
        correct=(probabilities.argmax(axis=1) == targets).astype(float).tolist(),
        loss=(-np.log(np.maximum(of_label, 1e-12))).astype(float).tolist(),
        updates=steps,
        cut=float(short.mean()),
    )


def _base_with(choices: Choices, base: Path, context: int, tokenizer: Tokenizer, config: FinetuneConfig) -> Model:
    """Return the language model with the three task rows, its first `context` position rows, and the choices."""
    loaded = load_model(base)
    shape = loaded.config.model_copy(
        update={
            "embedding_dropout": choices.drops,
            "softmax_rows": choices.rows,
            "position_deviation": choices.position_deviation,
            "dropout": config.dropout,
            "context": context,
        }
    )
    seed = config.seed
    model = build_model(shape, seed=None if choices.pretrained else seed)
    if choices.pretrained:
        state = loaded.state_dict()
        state["positions.weight"] = state["positions.weight"][:context]
        model.load_state_dict(state)
    model.add_rows(tokenizer.vocabulary_size - model.config.vocabulary, seed=seed + 2)
    return model


class _Weighted:
    """The batches of a source, with the weights of L1's tokens that the choices say."""

    def __init__(self, source: ExampleSampler | _FullBatches, choices: Choices, tokens: TaskTokens) -> None:
        self.source, self.choices, self.task = source, choices, tokens

    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return the micro-batches of update `step`."""
        batches = self.source.micro_batches(step)
        return [replace(one, token_weights=self._weights(one)) for one in batches]

    def _weights(self, batch: Any) -> Tensor:
        weights: Tensor = batch.token_weights
        if not self.choices.task_tokens:
            text = (batch.next_ids != self.task.delimiter) & (batch.next_ids != self.task.extract)
            before = (batch.next_ids != IGNORE).sum(dim=1, keepdim=True)
            kept = weights * text
            after = (kept > 0).sum(dim=1, keepdim=True).clamp(min=1)
            weights = kept * before / after  # still a mean over the tokens of each sequence
        if not self.choices.by_sequence:
            counted = (weights > 0).to(weights.dtype)
            weights = counted * weights.sum() / counted.sum().clamp(min=1)
        return weights


class _FullBatches:
    """Updates of whole batches: each epoch leaves out other rows, drawn at random, that do not fill one."""

    def __init__(self, encoded: Encoded, targets: npt.NDArray[np.float32], batch_size: int, seed: int) -> None:
        self.encoded, self.targets, self.batch_size, self.seed = encoded, targets, batch_size, seed
        self.updates_an_epoch = len(encoded) // batch_size
        self._epochs: dict[int, ExampleSampler] = {}

    def _at(self, step: int) -> ExampleSampler:
        epoch = step // self.updates_an_epoch
        if epoch not in self._epochs:
            random = np.random.default_rng([self.seed, epoch, 1])
            count = self.updates_an_epoch * self.batch_size
            chosen = np.sort(random.permutation(len(self.encoded))[:count])
            kept = _of_sequences([_sequences(self.encoded, one) for one in chosen], self.encoded.targets[chosen])
            # The seed of the whole training: the order of an epoch is that of its number.
            self._epochs[epoch] = ExampleSampler(
                kept, self.targets[chosen], batch_size=self.batch_size, seed=self.seed
            )
        return self._epochs[epoch]

    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return the micro-batches of update `step`."""
        return self._at(step).micro_batches(step)


def _cut(encoded: Encoded, tokens: TaskTokens, most: int) -> Encoded:
    """Return the examples with the first `most` tokens of each text, as the authors' code cuts them."""
    rows: list[list[list[int]]] = []
    for example in range(len(encoded)):
        rows.append([])
        for sequence in _sequences(encoded, example):
            kept, length = [], 0
            for token in sequence:
                length = 0 if token in tokens else length + 1
                if length <= most:
                    kept.append(token)
            rows[-1].append(kept)
    return _of_sequences(rows, encoded.targets)


def _longest_text(encoded: Encoded, tokens: TaskTokens) -> npt.NDArray[np.int64]:
    """(examples,) the tokens of each example's longest text."""
    longest = []
    for example in range(len(encoded)):
        most = length = 0
        for token in _sequences(encoded, example)[0]:
            length = 0 if token in tokens else length + 1
            most = max(most, length)
        longest.append(most)
    return np.array(longest)


def _sequences(encoded: Encoded, example: int) -> list[list[int]]:
    return [encoded.sequence(number) for number in range(encoded.first[example], encoded.first[example + 1])]


def _of_sequences(rows: Sequence[Sequence[Sequence[int]]], targets: npt.NDArray[np.float64]) -> Encoded:
    flat = [sequence for row in rows for sequence in row]
    return Encoded(
        ids=np.array([token for sequence in flat for token in sequence], dtype=np.int32),
        starts=np.cumsum([0, *map(len, flat)], dtype=np.int64),
        first=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        targets=targets,
    )
