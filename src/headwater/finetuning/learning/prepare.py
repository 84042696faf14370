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
from headwater.finetuning.learning.parts import Learn, Parts, Tables, arrange_parts
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, build_task_model, no_head
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded, encode, truncation
from headwater.finetuning.model.pooled import PooledModel, sequences_of
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import POOLED_RECIPES, Seen, Usable
from headwater.finetuning.rows.split import also_trained_on, describe
from headwater.model import build_model, load_config, load_model
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer, missing_tokenizer
from headwater.training import OnUpdate

if TYPE_CHECKING:
    from headwater.model import Model, ModelConfig


@dataclass
class Prepared:
    """What a training needs.

    given: the configuration; config: with the updates and the rate that follow from it, the base and the rows.
    recipes: those that are compared; `config` is for the first. shape: of the base with the task rows; `load`
    returns the base as it is before a training, and `loaded` has it if none has begun. encoded: the rows of each
    part. start: the model whose head is kept. seen: the rows of the base's own fine-tuning. out: the folder of the
    run's journal and checkpoints, from which it resumes. on_update: called after every update with its line of
    metrics.jsonl. weights: (training rows,) of each in L2. about_rows, continued: what metrics.json has of the
    rows, and of the training that is continued.
    """

    given: FinetuneConfig
    config: FinetuneConfig
    recipes: tuple[Recipe, ...]
    shape: ModelConfig
    tokenizer: Tokenizer
    parts: Parts
    encoded: dict[str, Encoded]
    start: FineTuned | None
    seen: Seen | None
    about_rows: dict[str, Any]
    load: Callable[[], Model] = field(repr=False)
    loaded: list[Model] = field(repr=False)
    progress: Progress = SILENT
    out: Path | None = None
    on_update: OnUpdate | None = None
    weights: npt.NDArray[np.float64] | None = None
    continued: dict[str, Any] | None = None

    def with_keys(self, **keys: Any) -> Prepared:
        """Return this with other keys of the configuration."""
        given = self.given.model_copy(update=keys)
        config = given.resolve(self.shape, examples=len(self.encoded["train"]))
        return replace(self, given=given, config=config)

    def for_recipe(self, recipe: Recipe) -> Prepared:
        """Return this for one recipe, with the rows as it reads them."""
        if (recipe in POOLED_RECIPES) == (self.given.recipe in POOLED_RECIPES):
            return self.with_keys(recipe=recipe)
        encoded = encode_parts(
            self.given.model_copy(update={"recipe": recipe}), self.parts, self.tokenizer, self.shape
        )
        return replace(self, encoded=encoded).with_keys(recipe=recipe)

    def holding_out(self, number: int) -> Prepared:
        """Return this with the rows of a fold as validation rows, which are not trained on, and without files."""
        assert self.parts.fold is not None
        held_out, train = self.parts.fold == number, self.encoded["train"]
        encoded = {"train": train.take(~held_out), "validation": train.take(held_out)}
        weights = None if self.weights is None else self.weights[~held_out]
        without = replace(self, encoded=encoded, weights=weights, progress=SILENT, out=None, on_update=None)
        return without.with_keys()

    def task_model(self) -> TaskModel:
        """Return the base with the head that training begins with: an untrained one, or that of `start`."""
        config, base = self.config, self.loaded.pop() if self.loaded else self.load()
        model = build_task_model(
            base,
            self.tokenizer,
            config.task,
            self.parts.labels.outputs,
            dropout=config.classifier_dropout,
            frozen=config.task_model if config.freeze else None,
            pooled=config.recipe in POOLED_RECIPES,
            lexical=config.is_lexical,
            seed=_seeds(config.seed)[1],
        )
        if self.start is not None:
            model.continue_from(self.start.model)
        return model.to(base.tokens.weight.device)

    def store_outputs(self, model: FrozenTaskModel) -> None:
        """Compute a frozen base's outputs once for all epochs and rates; in files of the run, or in memory."""
        for part in ("train", "validation"):
            if self.encoded[part].outputs is None:
                self.progress.note(f"computing the frozen base's outputs for {part}, once for all epochs")
                self.encoded[part] = model.with_outputs(self.encoded[part], self.out)


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
    if seen and not parts.rows["validation"] and not parts.tests:
        few = "too few rows are new" if seen.new_rows(parts.train.rows).any() else "no row is new"
        notes.append(f"{few} to {model}: nothing is left to measure it on; give --validation or a --test table")
    if start is not None:
        rows, names, classes = parts.train.rows, parts.labels.names, prepared.about_rows.get("classes", {})
        prepared.continued = {
            "from": str(model),
            "rows": len(rows),
            "known": len(rows) - int(seen.new_rows(rows).sum()) if seen else None,
            "added": names[len(start.labels.names) :],
            "without_rows": [name for name in names if not classes[name]],
        }
        if added := prepared.continued["added"]:
            notes.append(f"{counted(len(added), 'new label')}, after the others: {listed(added)}")
    prepared.about_rows["notes"] += notes
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
    if start is not None:
        recipes: tuple[Recipe, ...] = (recipe_of(start),)
    else:
        recipes = config.candidates(len(parts.train.rows), parts.labels.outputs, model.config)
    if not parts.validation.rows:  # to compare recipes or rates on
        recipes = recipes[:1]
        if config.learning_rate == "search":
            raise UsageError(
                "the search of a learning rate has no row to measure on that the base was not trained on",
                repair="Give rows with --validation FILE, or a rate with --learning-rate",
            )
    patience = config.patience or (PATIENCE if config.recipe == "auto" and start is None else None)
    first = config.model_copy(update={"recipe": recipes[0], "patience": patience})
    encoded = encode_parts(first, parts, tokenizer, model.config)
    about_rows = _describe_rows(config, parts, encoded)
    for note in [*about_rows["notes"], *_choice_notes(config, first, recipes, parts, model.config)]:
        progress.note(note)
    return Prepared(
        first,
        first.resolve(model.config, examples=len(encoded["train"])),
        recipes,
        model.config,
        tokenizer,
        parts,
        encoded,
        start,
        seen,
        about_rows,
        load=lambda: prepare_base(config, *base())[0],
        loaded=[model],
        progress=progress,
    )


def _describe_rows(config: FinetuneConfig, parts: Parts, encoded: dict[str, Encoded]) -> dict[str, Any]:
    """Return what metrics.json has of the rows, with sentences as its "notes"."""
    validation = Usable([]) if parts.cross_validated else parts.validation
    several = config.columns.label if isinstance(config.columns.label, list) else []
    about_rows, notes = describe(parts.train, validation, parts.labels, parts.targets["train"], several)
    notes += truncation("training", parts.train.rows, encoded["train"])
    if not parts.cross_validated:
        notes += truncation("validation", parts.validation.rows, encoded["validation"])
    texts = {row.segments for row in parts.train.rows}
    for name, tested in parts.tests.items():
        notes += also_trained_on(name, tested, texts)
        if lacking := int((~encoded[name].known).sum()):
            notes.append(f"not measured in {name}: {counted(lacking, 'row')} without text or label")
    for part, unread in parts.unread.items():
        if unread.count:
            left_out, example = counted(unread.count, "row"), unread.first[0].seen
            notes.append(f"skipped in {parts.names[part]}: {left_out} that cannot be read; the first: {example}")
    counts = {part: unread.count for part, unread in parts.unread.items()}
    return about_rows | {"unread": counts, "notes": notes}


def _choice_notes(
    config: FinetuneConfig, first: FinetuneConfig, recipes: tuple[Recipe, ...], parts: Parts, base: ModelConfig
) -> list[str]:
    """Return what was chosen where the configuration leaves it open: the recipe, the rate and the epochs."""
    notes = [_recipe_note(first, recipes, parts)] if config.recipe == "auto" else []
    if len(recipes) > 1 or recipes == ("probe",):
        return notes
    if config.learning_rate is None:
        rate, reason = first.peak_rate(base), first.rate_reason(base)
        notes.append(f"learning rate {rate:g}, {reason} (--learning-rate for another, --find-lr)")
    epochs = first.epochs_for(len(parts.train.rows), base)
    if not (first.steps or first.epochs or base.transfer_epochs) and epochs > PAPER_EPOCHS:
        notes.append(f"{epochs:g} epochs, because there are few rows (--epochs for another number)")
    return notes


def encode_parts(
    config: FinetuneConfig, parts: Parts, tokenizer: Tokenizer, base: ModelConfig
) -> dict[str, Encoded]:
    """Return the rows of each part as a recipe reads them; the tests too: an error comes before the training."""
    reading = sequences_of(config.recipe, tokenizer, base) | {"ngrams": config.is_lexical}
    encoded: dict[str, Encoded] = {}
    for part, rows in parts.rows.items():
        if part == "validation" and parts.cross_validated:
            encoded[part] = encoded["train"]
            continue
        targets, name = parts.targets[part], parts.names[part]
        encoded[part] = encode(rows, config.task, tokenizer, base.context, targets=targets, name=name, **reading)
    return encoded


def _recipe_note(first: FinetuneConfig, recipes: tuple[Recipe, ...], parts: Parts) -> str:
    """Return what is trained in place of the recipe auto."""
    if len(recipes) > 1:
        return f"recipes {' and '.join(recipes)} are compared on the validation rows (--set recipe=NAME for one)"
    if parts.cross_validated:
        why = "unless cross-validation prefers the probe that it begins with; all rows are trained on"
    else:
        few = first.recipe == "lp-ft"
        why = "for few rows per class" if few else "for many rows per class, many classes, or keys of gpt1 alone"
    return f"recipe {first.recipe}, {why} (--set recipe=gpt1 or lp-ft for another)"


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
    if config.dropout is not None:
        shape = shape.with_dropout(config.dropout)
    partial = config.transfer_layers is not None
    if partial and config.from_scratch:
        raise UsageError("from_scratch and transfer_layers exclude each other", repair="Give one of them")
    model = build_model(shape, seed=config.seed if partial or config.from_scratch else None).to(device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=not partial)
    row_seed, _ = _seeds(config.seed)
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


def recipe_of(start: FineTuned) -> Recipe:
    """Return the recipe whose head a fine-tuned model has."""
    return "lp-ft" if isinstance(start.model, PooledModel) else "gpt1"


def check_start(start: FineTuned, config: FinetuneConfig, name: Path | str) -> None:
    """Raise UsageError, naming the key, if `config` trains another kind of head than that of `start`."""
    if start.templates is not None:
        raise no_head(name, "it is one of transformers")
    if isinstance(start.model, PooledModel) and start.model.lexical:
        raise no_head(name, "it reads TF-IDF")
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
