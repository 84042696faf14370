"""Prepare a training once: rows, labels, parts, the base, encoded sequences, and the model whose head is kept.

`finetune`, its dry run and the estimators train on what `prepare` returns, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from headwater.display import counted
from headwater.errors import UsageError
from headwater.finetuning.learning.config import PAPER_EPOCHS, PATIENCE, FinetuneConfig, Recipe
from headwater.finetuning.learning.continued import check_start, continuation, recipe_of, rows_seen
from headwater.finetuning.learning.parts import Learn, Parts, Tables, arrange_parts
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, build_task_model
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded, encode, truncation
from headwater.finetuning.model.pooled import POOLED_RECIPES, sequences_of
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import TaskName, Usable
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.rows.split import also_trained_on, describe
from headwater.model import build_model, load_config, load_model
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer, missing_tokenizer

if TYPE_CHECKING:
    from headwater.model import Model, ModelConfig

# The run's folder for a frozen base's outputs, during training.
OUTPUTS = "base-outputs"


@dataclass
class Prepared:
    """What a training needs.

    given: the configuration; config: with the updates and the rate that follow from it, the base and the rows.
    recipes: those that are compared; `config` is for the first. base: with the task rows; `renew` returns it as
    it was before a training. encoded: the rows of each part. start: the model whose head is kept. seen: the rows
    of the base's own fine-tuning. fold: (training rows,), see `split.folds`. weights: (training rows,) of each in
    L2. figures, continued: what metrics.json has of the rows, and of the training that is continued.
    """

    given: FinetuneConfig
    config: FinetuneConfig
    recipes: tuple[Recipe, ...]
    base: Model
    tokenizer: Tokenizer
    parts: Parts
    encoded: dict[str, Encoded]
    start: FineTuned | None
    seen: Seen | None
    figures: dict[str, Any]
    renew: Callable[[], Model] = field(repr=False)
    fold: npt.NDArray[np.int64] | None = None
    weights: npt.NDArray[np.float64] | None = None
    continued: dict[str, Any] | None = None

    def with_keys(self, **keys: Any) -> Prepared:
        """Return this with other keys of the configuration and an untrained base."""
        given = self.given.model_copy(update=keys)
        config = given.resolve(self.base.config, examples=len(self.encoded["train"]))
        return replace(self, given=given, config=config, base=self.renew())

    def for_recipe(self, recipe: Recipe) -> Prepared:
        """Return this for one recipe, with the rows as it reads them and an untrained base."""
        if (recipe in POOLED_RECIPES) == (self.given.recipe in POOLED_RECIPES):
            return self.with_keys(recipe=recipe)
        encoded = encode_parts(recipe, self.given.task, self.parts, self.tokenizer, self.base.config)
        return replace(self, encoded=encoded).with_keys(recipe=recipe)

    def holding_out(self, number: int) -> Prepared:
        """Return this with the rows of a fold as validation rows, which are not trained on; an untrained base."""
        assert self.fold is not None
        held, train = self.fold == number, self.encoded["train"]
        part = replace(self, encoded={"train": train.take(~held), "validation": train.take(held)})
        part.weights = None if self.weights is None else self.weights[~held]
        return part.with_keys()

    @property
    def learns_from_all(self) -> bool:
        """Whether the rows that it is measured on are those that it learns from: after a cross-validation."""
        return self.parts.cross_validated and len(self.encoded["validation"]) == len(self.parts.train.rows)

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
            pooled=config.recipe in POOLED_RECIPES,
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

    start = FineTuned.load(model, device=device) if config.keep_head else None
    if start is not None:
        check_start(start, config, model)
    seen = rows_seen(model, config, progress)
    prepared = prepare(config, tables, base, start=start, seen=seen, progress=progress)
    parts = prepared.parts
    notes = seen.notes(model, parts.train.rows, parts.validation.rows) if seen else []
    if start is not None:
        classes = prepared.figures.get("classes", {})
        prepared.continued = continuation(model, start, seen, parts.labels, parts.train.rows, classes)
        if added := prepared.continued["added"]:
            notes.append(f"{counted(len(added), 'new label')}, after the others: {listed(added)}")
    prepared.figures["notes"] += notes
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
    model, tokenizer = prepare_base(config, *base())
    parts = arrange_parts(config, tables, seen, start.labels if start else None, learn, model.config)
    config.checked_metric(parts.labels)
    rows, outputs = len(parts.train.rows), parts.labels.outputs
    recipes = (recipe_of(start),) if start is not None else config.candidates(rows, outputs, model.config)
    patience = config.patience or (PATIENCE if config.recipe == "auto" and start is None else None)
    first = config.model_copy(update={"recipe": recipes[0], "patience": patience})
    encoded = encode_parts(recipes[0], config.task, parts, tokenizer, model.config)
    validation = Usable([]) if parts.cross_validated else parts.validation
    several = config.columns.label if isinstance(config.columns.label, list) else []
    figures, notes = describe(parts.train, validation, parts.labels, parts.targets["train"], several)
    notes += truncation("training", parts.train.rows, encoded["train"])
    if not parts.cross_validated:
        notes += truncation("validation", parts.validation.rows, encoded["validation"])
    texts = {row.segments for row in parts.train.rows}
    for name, tested in parts.tests.items():
        notes += also_trained_on(name, tested, texts)
        if lacking := int((~encoded[name].known).sum()):
            notes.append(f"not measured in {name}: {counted(lacking, 'row')} without text or label")
    figures["notes"] = notes.copy()
    if config.recipe == "auto":
        notes += _recipe_notes(first, recipes, parts, model.config)
    epochs = first.epochs_for(rows, model.config)
    own = first.steps or first.epochs or model.config.transfer_epochs
    if own is None and len(recipes) == 1 and recipes != ("probe",) and epochs > PAPER_EPOCHS:
        notes.append(f"{epochs:g} epochs, because there are few rows (--epochs for another number)")
    for note in notes:
        progress.note(note)
    return Prepared(
        first,
        first.resolve(model.config, examples=len(encoded["train"])),
        recipes,
        model,
        tokenizer,
        parts,
        encoded,
        start,
        seen,
        figures,
        renew=lambda: prepare_base(config, *base())[0],
        fold=parts.fold,
    )


def encode_parts(
    recipe: Recipe, task: TaskName, parts: Parts, tokenizer: Tokenizer, base: ModelConfig
) -> dict[str, Encoded]:
    """Return the rows of each part as a recipe reads them; the tests too: an error comes before the training."""
    reading = sequences_of(recipe, tokenizer, base)
    encoded: dict[str, Encoded] = {}
    for part, rows in parts.rows.items():
        if part == "validation" and parts.cross_validated:
            encoded[part] = encoded["train"]
            continue
        targets, name = parts.targets[part], parts.names[part]
        encoded[part] = encode(rows, task, tokenizer, base.context, targets=targets, name=name, **reading)
    return encoded


def _recipe_notes(
    first: FinetuneConfig, recipes: tuple[Recipe, ...], parts: Parts, base: ModelConfig
) -> list[str]:
    """Return what is trained in place of the recipe auto, and at which rate."""
    if len(recipes) > 1:
        return [f"recipes {' and '.join(recipes)} are compared on the validation rows (--set recipe=NAME for one)"]
    if parts.cross_validated:
        why = "unless cross-validation prefers the probe that it begins with; all rows are trained on"
    else:
        few = first.recipe == "lp-ft"
        why = "for few rows per class" if few else "for many rows per class, many classes, or keys of gpt1 alone"
    notes = [f"recipe {first.recipe}, {why} (--set recipe=gpt1 or lp-ft for another)"]
    if first.learning_rate is None:
        rate, reason = first.peak_rate(base), first.rate_reason(base)
        notes.append(f"learning rate {rate:g}, {reason} (--learning-rate for another, --find-lr)")
    return notes


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
