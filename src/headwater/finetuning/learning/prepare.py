"""Prepare a training once: rows, labels, parts, the base, encoded sequences, and the model whose head is kept.

`finetune`, its dry run and the estimators train on what `prepare` returns, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from headwater.display import counted
from headwater.errors import UsageError
from headwater.finetuning.learning.config import PAPER_EPOCHS, FinetuneConfig
from headwater.finetuning.learning.continued import continuation, load_start, recipe_of, rows_seen
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, build_task_model
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded, encode, truncation
from headwater.finetuning.model.pooled import sequences_of
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.read import read_table
from headwater.finetuning.rows.row import Raw, Usable, usable
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.rows.split import balance, describe, split
from headwater.model import build_model, load_config, load_model
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer, missing_tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

# The name in messages and the rows of "train", "validation" if it is not split off, and the tests, by part.
Tables: TypeAlias = Mapping[str, tuple[str, Iterable[Raw]]]
# Returns what the labels of the training rows mean.
Learn: TypeAlias = Callable[[list[Raw]], Labels]
# The run's folder for a frozen base's outputs, during training.
OUTPUTS = "base-outputs"


@dataclass
class Parts:
    """The checked rows of a training, what their labels mean, and their targets by part.

    names: each part's name in messages.
    """

    train: Usable
    validation: Usable
    tests: dict[str, list[Raw]]
    labels: Labels
    targets: dict[str, npt.NDArray[np.float64]]
    split_off: bool
    names: dict[str, str]

    @property
    def rows(self) -> dict[str, list[Raw]]:
        """The rows of all parts, by name."""
        return {"train": self.train.rows, "validation": self.validation.rows, **self.tests}


@dataclass
class Prepared:
    """What a training needs.

    config: with the updates and the rate that follow from the base and the rows. base: with the task rows;
    `renew` returns it as it was before a training. encoded: the rows of each part. start: the model whose head is
    kept. seen: the rows of the base's own fine-tuning. weights: (training rows,) of each in L2. figures,
    continued: what metrics.json has of the rows, and of the training that is continued.
    """

    config: FinetuneConfig
    base: Model
    tokenizer: Tokenizer
    parts: Parts
    encoded: dict[str, Encoded]
    start: FineTuned | None
    seen: Seen | None
    figures: dict[str, Any]
    renew: Callable[[], Model] = field(repr=False)
    weights: npt.NDArray[np.float64] | None = None
    continued: dict[str, Any] | None = None

    def at_rate(self, rate: float) -> Prepared:
        """Return this with another learning rate and an untrained base."""
        config = self.config.model_copy(update={"learning_rate": rate})
        return replace(self, config=config.resolve(self.base.config, examples=0), base=self.renew())

    def task_model(self) -> TaskModel:
        """Return the base with the head that training begins with: an untrained one, or that of `start`."""
        config = self.config
        model = build_task_model(
            self.base,
            self.tokenizer,
            config.task,
            self.parts.labels.outputs,
            dropout=config.classifier_dropout,
            frozen=config.task_model if config.freeze else None,
            pooled=config.recipe == "lp-ft",
            seed=_seeds(config.training.seed)[1],
        )
        if self.start is not None:
            model.continue_from(self.start.model)
        return model.to(self.base.tokens.weight.device)

    def store_outputs(self, model: FrozenTaskModel, folder: Path | None, progress: Progress) -> None:
        """Compute a frozen base's outputs once for all epochs and rates; in files of `folder`, or in memory."""
        for part in ("train", "validation"):
            if self.encoded[part].outputs is None:
                progress.note(f"computing the frozen base's outputs for {part}, once for all epochs")
                path = None if folder is None else folder / OUTPUTS / f"{part}.npy"
                self.encoded[part] = model.with_outputs(self.encoded[part], path)


def read_tables(
    config: FinetuneConfig,
    files: Mapping[str, Path | None],
    *,
    trained: Columns | None = None,
    progress: Progress = SILENT,
) -> tuple[Columns, Tables]:
    """Open the table of each part, "train" first; return the columns of the training rows, and the tables."""
    columns, tables = trained, {}
    for part, path in files.items():
        if path is None:
            continue
        found, rows = read_table(
            path,
            config.task,
            config.columns,
            trained=columns,
            need_label=part != "test",
            limit=config.limit,
            encoding=config.encoding,
            progress=progress,
        )
        columns = found if part == "train" else columns
        tables[part] = str(path), map(Raw.composed, rows) if config.compose else rows
    return columns or Columns(), tables


def prepare_folder(
    config: FinetuneConfig,
    tables: Tables,
    model: Path,
    tokenizer: str | Path | None,
    device: torch.device,
    progress: Progress = SILENT,
) -> Prepared:
    """Prepare a training from the model in a folder."""

    def base() -> tuple[Model, Tokenizer]:
        whole = start.model.model if start else load_model(model, device=device)
        return whole, load_tokenizer(model, tokenizer)

    start = load_start(config, model, device)
    seen = rows_seen(model, config, progress)
    prepared = prepare(config, tables, base, start=start, seen=seen, progress=progress)
    parts = prepared.parts
    notes = seen.notes(model, parts.train.rows, parts.validation.rows) if seen else []
    if start is not None:
        prepared.continued = continuation(
            model, start, seen, parts.labels, parts.train.rows, parts.targets["train"]
        )
        notes += prepared.continued["notes"]
    for note in notes:
        progress.note(note)
    return prepared


def prepare(
    config: FinetuneConfig,
    tables: Tables,
    base: Callable[[], tuple[Model, Tokenizer]],
    *,
    start: FineTuned | None = None,
    seen: Seen | None = None,
    learn: Learn | None = None,
    progress: Progress = SILENT,
) -> Prepared:
    """Return what a training of these rows needs; note what a user should know of them.

    base: returns the unchanged model and its tokenizer. Raises what `arrange_parts`, `prepare_base`, `encode` and
    `FinetuneConfig.checked_metric` raise.
    """
    parts = arrange_parts(config, tables, seen, start.labels if start else None, learn)
    config.checked_metric(parts.labels)
    model, tokenizer = prepare_base(config, *base())
    if start is not None and config.recipe == "auto":
        config = config.model_copy(update={"recipe": recipe_of(start)})
    if config.recipe == "auto":
        rows, outputs = len(parts.train.rows), parts.labels.outputs
        config = config.chosen(rows, outputs, model.config)
        few = "few rows per class" if config.recipe == "lp-ft" else "many rows per class, or keys of gpt1 alone"
        progress.note(f"recipe {config.recipe}, for {few} (--set recipe=gpt1 or lp-ft for another)")
        if config.learning_rate is None:
            rate, reason = config.peak_rate(model.config), config.rate_reason(model.config)
            progress.note(f"learning rate {rate:g}, {reason} (--learning-rate for another, --find-lr)")
    encoded = {  # the tests too: an error in them comes before the training
        part: encode(
            rows,
            config.task,
            tokenizer,
            model.config.context,
            targets=parts.targets[part],
            name=parts.names[part],
            **sequences_of(config.recipe, tokenizer, model.config),
        )
        for part, rows in parts.rows.items()
    }
    figures, notes = describe(
        parts.train, parts.validation, balance(parts.train.rows, parts.targets["train"], parts.labels)
    )
    notes += truncation("training", parts.train.rows, encoded["train"])
    notes += truncation("validation", parts.validation.rows, encoded["validation"])
    for name in parts.tests:
        if lacking := int((~encoded[name].known).sum()):
            notes.append(f"not measured in {name}: {counted(lacking, 'row')} without text or label")
    examples = len(encoded["train"])
    epochs = config.epochs_for(examples, model.config)
    own = config.steps or config.epochs or model.config.transfer_epochs
    if own is None and epochs > PAPER_EPOCHS:
        notes.append(f"{epochs:g} epochs, because there are few rows (--epochs for another number)")
    for note in notes:
        progress.note(note)
    return Prepared(
        config.resolve(model.config, examples=examples),
        model,
        tokenizer,
        parts,
        encoded,
        start,
        seen,
        figures,
        renew=lambda: prepare_base(config, *base())[0],
    )


def arrange_parts(
    config: FinetuneConfig,
    tables: Tables,
    seen: Seen | None = None,
    known: Labels | None = None,
    learn: Learn | None = None,
) -> Parts:
    """Check all rows, learn the labels from the training rows, and split off validation if there is none.

    seen: the rows of the base's own fine-tuning, which stay on their side of the split. known: labels of the
    base's head, which keep their order. learn: what to use in place of `learn_labels`.

    A test row without text has no target: it is not measured.
    """
    names = {part: name for part, (name, _) in tables.items()}
    unread = {part: rows for part, (_, rows) in tables.items()}
    train = usable(unread.pop("train"), config.task, names["train"])
    if learn is not None:
        labels = learn(train.rows)
    elif known is not None:
        labels = known.extended(train.rows, names["train"])
    else:
        labels = learn_labels(train.rows, config.task, config.target, names["train"])
    targets = {"train": labels.targets(train.rows, names["train"])}
    split_off = "validation" not in unread
    if split_off:
        sides = split(
            train.rows,
            targets["train"],
            labels,
            share=config.validation_share,
            seed=config.training.seed,
            name=names["train"],
            kept=seen.split_of(train.rows) if seen else None,
        )
        kept, held = ([train.rows[place] for place in side] for side in sides)
        train, validation = Usable(kept, train.empty, train.unlabelled), Usable(held)
        targets = {part: targets["train"][side] for part, side in zip(("train", "validation"), sides, strict=True)}
        names["validation"] = names["train"]
    else:
        validation = usable(unread.pop("validation"), config.task, names["validation"])
        targets["validation"] = labels.targets(validation.rows, names["validation"])
    tests = {part: list(rows) for part, rows in unread.items()}
    for part, rows in tests.items():
        targets[part] = labels.targets(rows, names[part])
        targets[part][[row.is_empty(config.task) for row in rows]] = np.nan
    return Parts(train, validation, tests, labels, targets, split_off, names)


def load_tokenizer(model: Path, given: str | Path | None = None) -> Tokenizer:
    """Return the tokenizer in a model folder, or the `given` one if it has none.

    Raises MismatchError if there is neither, if both differ, or if the size of `given` does not fit the model.
    """
    tokenizer = Tokenizer.of_model(model, load_config(model).vocabulary, given)
    if tokenizer is None:
        raise missing_tokenizer(model)
    return tokenizer


def prepare_base(config: FinetuneConfig, base: Model, tokenizer: Tokenizer) -> tuple[Model, Tokenizer]:
    """Return the base with the three task rows and this training's dropout, and the tokenizer with their ids.

    `from_scratch` and `transfer_layers` draw new weights for the rest. Raises MismatchError if the tokenizer has
    more ids than the model has rows, UsageError for more layers than the base has, or layers of an LSTM.
    """
    tokenizer.require_rows(base.config.vocabulary)
    extended = tokenizer.with_task_tokens()
    device = base.tokens.weight.device
    shape = base.config.faithful_to(config.faithful)
    if config.training.dropout is not None:
        shape = shape.with_dropout(config.training.dropout)
    partial = config.transfer_layers is not None
    if partial and config.from_scratch:
        raise UsageError("from_scratch and transfer_layers exclude each other", repair="Give one of them")
    model = build_model(shape, seed=config.training.seed if partial or config.from_scratch else None).to(device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=not partial)
    row_seed, _ = _seeds(config.training.seed)
    model.add_rows(max(0, extended.vocabulary_size - model.config.vocabulary), seed=row_seed)
    return model.train(), extended


def _seeds(seed: int) -> tuple[int, int]:
    """Return seeds for the task rows and the head; `seed` itself would repeat a new base's first draws."""
    rows, head = np.random.SeedSequence(seed).generate_state(2)
    return int(rows), int(head)


def _first_layers(state: dict[str, Any], layers: int, base: Model) -> dict[str, Any]:
    """Return the embeddings and the first blocks, as `n_transfer` does in the authors' code (figure 2, left).

    All layers are the whole model, with its final norm.
    """
    if base.config.architecture != "transformer":
        raise UsageError("transfer_layers counts blocks of a Transformer", expected="a base that is one")
    if layers > base.config.layers:
        raise UsageError(
            f"{layers} layers cannot be transferred from a model of {base.config.layers}",
            expected=f"0 to {base.config.layers}",
        )
    if layers == base.config.layers:
        return state
    embeddings = ("tokens.", "positions.", "segments.", "embedding_norm.")
    blocks = tuple(f"blocks.{layer}." for layer in range(layers))
    return {k: v for k, v in state.items() if k.startswith((*embeddings, *blocks))}
