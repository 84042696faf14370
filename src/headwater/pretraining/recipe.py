"""A pre-training recipe: its keys, and how unset ones are resolved before a run begins."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from headwater import shipped
from headwater.config import Config, Layer
from headwater.errors import MismatchError, UsageError
from headwater.model import Faithful, ModelConfig, is_untrained, load_config, preset
from headwater.pretraining.cost import fitting_tokens, require_memory
from headwater.pretraining.samples import require_samples
from headwater.pretraining.tokens.sampler import TokenStream, too_short
from headwater.storage import Manifest, open_folder
from headwater.tokenizer import Tokenizer
from headwater.training import Ranks, TrainConfig, compute_dtype, resolve_precision, transfer_rate


def _existing_preset(name: str) -> str:
    preset(name)  # raises UsageError
    return name


class PretrainConfig(TrainConfig):
    """A pre-training recipe. With `init_from`, the learning rate is by default chosen by the model's width."""

    tables: ClassVar[Mapping[str, type[Config]]] = {"model": ModelConfig}

    preset: Annotated[str, AfterValidator(_existing_preset)] = "gpt2-mini"
    """Which model."""
    init_from: str | None = None
    """Trained model to continue from, a folder or one that ships; the tokens are packed with its tokenizer."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Keys of the model that replace the preset's."""
    faithful: Faithful = "code"
    """code: follow the authors' code where it differs from the papers; paper: follow the papers."""
    context: int | None = Field(default=None, ge=1)
    """Tokens of a training window; by default the preset's context."""
    epochs: float | None = Field(default=None, gt=0, le=1e9)
    """Passes over the training tokens, instead of steps."""
    shard: bool = False
    """Shard weights and optimizer over the ranks (FSDP)."""
    optimizer: Literal["adam", "muon"] = "adam"
    """muon: Muon for the matrices between embeddings and head; not in the papers, and cannot be sharded."""
    recompute: Literal["auto", "none", "full"] = "auto"
    """full: the backward pass recomputes each block from its input; auto: full for a sharded model."""
    sample_every: int = Field(default=0, ge=0)
    """Updates between samples, shown and kept in samples.jsonl while the model trains; 0 is never."""
    sample_prompt: str = ""
    """The beginning of these samples; empty starts a new text."""
    validation_windows: int = Field(default=256, ge=1)
    """The most windows for the held-out loss."""

    @field_validator("model")
    @classmethod
    def _has_known_keys(cls, value: dict[str, Any]) -> dict[str, Any]:
        unknown = [key for key in value if key not in ModelConfig.model_fields]
        if unknown:
            detail: Any = {"type": "extra_forbidden", "loc": (unknown[0],), "input": value[unknown[0]]}
            raise ValidationError.from_exception_data(cls.__name__, [detail])
        return value

    @classmethod
    def build(cls, *layers: Mapping[str, Any], source: str = "configuration") -> Self:
        """Merge layers; `steps` and `epochs` replace each other, so only the last layer's is kept."""
        other = {"steps": "epochs", "epochs": "steps"}
        reduced: list[Mapping[str, Any]] = []
        for following, layer in enumerate(layers, 1):
            later = {key for after in layers[following:] for key in after}
            keys = {key: value for key, value in layer.items() if other.get(key) not in later}
            reduced.append(Layer(keys, layer.source if isinstance(layer, Layer) else source))
        return super().build(*reduced, source=source)

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if self.epochs is not None and "steps" in self.model_fields_set:
            raise ValueError(f"steps = {self.steps} and epochs = {self.epochs:g} both set the length of training")
        return self

    def deciding(self) -> dict[str, Any]:
        """As of every training, without samples and the model to continue from, an input of the folder."""
        others = {"init_from", "sample_every", "sample_prompt"}
        return {key: value for key, value in super().deciding().items() if key not in others}

    @property
    def architecture(self) -> ModelConfig:
        """The model that this recipe trains."""
        return preset(self.preset, faithful=self.faithful, **self.model)

    @property
    def window(self) -> int:
        """Tokens of a training window."""
        return self.context or self.architecture.context


def resolve(
    config: PretrainConfig,
    tokens: Path,
    ranks: Ranks,
    begun: PretrainConfig | None = None,
    packed: Manifest | None = None,
) -> PretrainConfig:
    """Return the recipe with all keys set: the model, the window, updates, micro-batch and precision.

    What this device would choose for "auto" is taken from `begun`, the recipe of an unfinished run: it may have
    begun on another machine.
    packed: the manifest of `tokens`, if that was checked already. Raises UsageError, DataError or MismatchError if
    recipe, tokens and ranks are inconsistent.
    """
    packed = packed or open_folder(tokens, "tokens")
    if config.init_from is not None:
        config = start_from(config, config.init_from, tokens, begun)
    model = _model_of(config, tokens, packed)
    window = config.context or model.context
    if window > model.context:
        raise UsageError(
            f"context = {window} is longer than model.context = {model.context}",
            repair=f"Use --set context={model.context}, or leave model.context out",
        )
    config = config.model_copy(update={"context": window, "model": model.to_dict(), "dropout": model.dropout})
    _require_consistent(config, tokens, packed, ranks)
    config = resolve_precision(config, begun, ranks.device)
    dtype = compute_dtype(config.precision, ranks.device)
    require_memory(model, ranks, dtype, sharded=config.shard, optimizer=config.optimizer)
    steps = config.steps
    if config.epochs is not None:
        windows = TokenStream(tokens, "train", window, packed).windows
        steps = max(1, math.ceil(config.epochs * windows / config.batch_size))
    warmup_steps = _fitting_warmup(config.warmup_steps, steps)
    if begun is not None and begun.warmup_steps == _fitting_warmup(config.warmup_steps, begun.steps):
        warmup_steps = begun.warmup_steps  # of the length with which the run began
    # A resumed run keeps its micro-batch: another one would round differently.
    micro_batch = config.micro_batch or (begun.micro_batch if begun else None)
    if micro_batch is None:
        micro_batch = max(1, fitting_tokens(model, ranks, dtype, sharded=config.shard) // window)
    return config.model_copy(
        update={
            "steps": steps,
            "epochs": None,
            "warmup_steps": warmup_steps,
            "micro_batch": min(micro_batch, -(-config.batch_size // ranks.count)),
        }
    )


def _model_of(config: PretrainConfig, tokens: Path, packed: Manifest) -> ModelConfig:
    """Return the model for the vocabulary of the tokens; raise an error if the recipe contradicts itself."""
    vocabulary = int(packed.config["vocabulary_size"])
    if config.architecture.is_masked:
        vocabulary = tokenizer_of(config.architecture, tokens).vocabulary_size
    changes: dict[str, Any] = {"vocabulary": vocabulary}
    # A trained model keeps its positions, even if the window is shorter.
    for key in ("context", "dropout") if config.init_from is None else ():
        if getattr(config, key) is not None:
            changes[key] = getattr(config, key)
    model = preset(config.preset, faithful=config.faithful, **(changes | config.model))
    if model.transfer_rate is None:  # for whoever trains it further
        model = model.model_copy(update={"transfer_rate": transfer_rate(model.width)})
    if config.dropout is not None and config.dropout != model.dropout:
        raise UsageError(
            f"dropout = {config.dropout} and model.dropout = {model.dropout} set the same value",
            repair="Give only one of them; a resumed run keeps its own",
        )
    if model.vocabulary < vocabulary:
        raise MismatchError(
            f"the model has {model.vocabulary:,} vocabulary rows, and the tokens in {tokens} need {vocabulary:,}",
            repair="Leave model.vocabulary out, or pack with the model's own tokenizer",
        )
    return model


def _require_consistent(config: PretrainConfig, tokens: Path, packed: Manifest, ranks: Ranks) -> None:
    """Raise UsageError or DataError for keys that do not fit the model, the tokens or the ranks."""
    model, sharded = config.architecture, config.shard and ranks.count > 1
    for part, count in packed.config["counts"].items():
        if count["tokens"] <= config.window:
            raise too_short(tokens, packed, part, config.window)
    if sharded and config.optimizer == "muon":
        raise UsageError(
            "optimizer = muon needs whole matrices, and shard = true divides them", repair="Leave one of them out"
        )
    if config.recompute == "full" and model.is_recurrent:
        raise UsageError(
            "recompute = full needs a Transformer's blocks, and this model is an LSTM",
            repair="Use --set recompute=none",
        )
    if config.sample_every:
        require_samples(config, tokenizer_of(model, tokens), sharded=sharded)


def _fitting_warmup(warmup_steps: float, steps: int) -> float:
    """Return the length of the warm-up: a tenth of the run, if the one asked for is longer than the run."""
    return warmup_steps if warmup_steps <= steps else max(1, steps // 10)


def require_one_model(*layers: Mapping[str, Any]) -> None:
    """Raise UsageError if a user's own keys have both a model to continue from and keys of a new one.

    Those of a recipe are defaults, which `init_from` replaces.
    """
    keys = {key: value for layer in layers for key, value in layer.items() if value is not None}
    for key in ("preset", "faithful") if "init_from" in keys else ():
        if key in keys:
            raise UsageError(
                f"{key} = {keys[key]} is for a new model, and the run continues from {keys['init_from']}",
                repair=f"Leave {key} out",
            )


def start_from(
    config: PretrainConfig, initial: str, tokens: Path, begun: PretrainConfig | None = None
) -> PretrainConfig:
    """Return the recipe with the shape of the model to continue from and, if none is set, its learning rate.

    A folder with weights that were never trained has only a shape: the rate is that of pre-training. Of an
    unfinished run, `begun` has both: the model may be gone. Raises MismatchError where the tokens were packed with
    another tokenizer, UsageError for another shape.
    """
    folder = shipped.resolve(initial) if begun is None else None
    trained = load_config(shipped.resolve(initial)) if begun is None else begun.architecture
    is_new = folder is not None and is_untrained(folder)
    if is_new:  # another program's configuration with weights that were drawn
        trained = trained.model_copy(update={"transfer_rate": None, "is_foreign": False})
    shape = trained.to_dict()
    if changed := [key for key, value in config.model.items() if key != "dropout" and shape.get(key) != value]:
        raise UsageError(
            f"model.{changed[0]} = {config.model[changed[0]]} is not as in {initial}: {shape.get(changed[0])}",
            repair=f"Leave model.{changed[0]} out, or train a new model without --from",
        )
    own = None if folder is None else Tokenizer.of_model(folder, trained.vocabulary)
    if own is not None and own.identity != tokenizer_of(trained, tokens).identity:
        raise MismatchError(
            f"the tokens in {tokens} were packed with another tokenizer than the one of {initial}",
            repair=f"Pack the corpus with it: headwater pack CORPUS --tokenizer {shlex.quote(initial)} --out DIR",
        )
    if config.dropout is not None:
        shape = trained.with_dropout(config.dropout).to_dict()
    update: dict[str, Any] = {"model": shape | config.model}
    if "learning_rate" not in config.model_fields_set and not is_new:
        of_model = trained.transfer_rate or transfer_rate(trained.width)
        update["learning_rate"] = of_model if begun is None else begun.learning_rate
    return config.model_copy(update=update)


def tokenizer_of(config: ModelConfig, tokens: Path) -> Tokenizer:
    """Return the tokenizer of the tokens folder; a masked model's has `[MASK]`."""
    tokenizer = Tokenizer.load(tokens / "tokenizer")
    return tokenizer.with_mask() if config.is_masked else tokenizer
