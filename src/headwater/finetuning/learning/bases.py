"""The base of a training: opened once, or chosen among this machine's bases by a probe on sampled rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headwater import shipped
from headwater.device import choose_device
from headwater.errors import DataError, ResourceError, UsageError
from headwater.finetuning.learning.config import POLICY, FinetuneConfig
from headwater.finetuning.learning.linear import PROBE_STRENGTHS, PROBE_WIDTH, choose_linear
from headwater.finetuning.learning.parts import Parts
from headwater.finetuning.model.fine_tuned import refuse_as_base
from headwater.finetuning.model.heads import Pooled, PooledModel, text_frame
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.rows.split import folds
from headwater.model import build_model, load_config, load_model
from headwater.reading import compose
from headwater.storage import Progress
from headwater.tokenizer import Tokenizer, missing_tokenizer

if TYPE_CHECKING:
    from headwater.model import Model, ModelConfig

ENCODER, KOREAN, ENGLISH = "minilm", "gpt2-mini-ko", shipped.DEFAULT
# The encoder's gain in accuracy over gpt2-mini, in the mixture, on SST-2 with 64 rows per class.
ENCODER_POINTS = 17
_LETTERS, _HANGUL, _LATIN = re.compile(r"[^\W\d_]"), re.compile(r"[가-힣ᄀ-ᇿ㄰-㆏]"), re.compile(r"[A-Za-zÀ-ɏ]")
_ENGLISH = {"the", "and", "of", "to", "is", "in", "it", "was", "for", "that", "with", "on", "this", "are", "not"}
_ENGLISH_SHARE = 0.08  # of the words of a table in English, at least
_LATIN_SHARE = 0.9  # of its letters
_SOME, _MOST = 0.2, 0.5  # of a script among the letters
_LOST, _PIECES = 0.1, 1.5  # lost letters, and tokens of a letter, of a tokenizer that cannot read a script


@dataclass(frozen=True)
class Base:
    """A base as a training reads it: with the three task rows and this training's dropout, and the tokenizer."""

    name: str
    folder: Path | None
    model: Model = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)

    @property
    def config(self) -> ModelConfig:
        """The shape of the model."""
        return self.model.config

    def fresh(self, dropout: float | None = None) -> Model:
        """Return a copy of the model, to be trained; dropout: in place of this training's."""
        copy = build_model(self.config if dropout is None else self.config.with_dropout(dropout))
        copy.load_state_dict(self.model.state_dict())
        return copy.to(self.model.tokens.weight.device)


def open_base(config: FinetuneConfig, model: Any, device: torch.device | None = None) -> Base:
    """Open a base: a folder, a name, or what `hw.load` returned. Raises UsageError for a fine-tuned model."""
    if isinstance(model, str | Path):
        folder = shipped.resolve(model)
        refuse_as_base(folder)
        tokenizer = Tokenizer.of_model(folder, load_config(folder).vocabulary, None)
        if tokenizer is None:
            raise missing_tokenizer(folder)
        loaded = load_model(folder, device=device or choose_device(config.device))
        return Base(shipped.name_of(folder), folder, *_prepared(config, loaded, tokenizer))
    if not hasattr(model, "tokenizer"):
        raise UsageError(
            f"base is of the type {type(model).__name__}",
            expected="a model folder, a model that ships, or what hw.load returned",
        )
    return Base("the loaded model", None, *_prepared(config, model.model, model.tokenizer))


def _prepared(config: FinetuneConfig, base: Model, tokenizer: Tokenizer) -> tuple[Model, Tokenizer]:
    """Return a copy of the base with the three task rows and this training's dropout, and the tokenizer with
    their ids.

    `from_scratch` and `transfer_layers` draw new weights for the rest. Raises MismatchError if the tokenizer has
    more ids than the model has rows, UsageError for more layers than the base has, or layers of an LSTM.
    """
    tokenizer.require_rows(base.config.vocabulary)
    extended = tokenizer.with_task_tokens()
    shape = base.config.faithful_to(config.faithful)
    if config.dropout is not None:
        shape = shape.with_dropout(config.dropout)
    partial = config.transfer_layers is not None
    model = build_model(shape, seed=config.seed if partial or config.from_scratch else None)
    model = model.to(base.tokens.weight.device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=not partial)
    missing = extended.vocabulary_size - model.config.vocabulary
    model.add_rows(max(0, missing), seed=seeds(config.seed)[0])
    return model.train(), extended


def seeds(seed: int) -> tuple[int, int]:
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


def choose_base(config: FinetuneConfig, parts: Parts, progress: Progress) -> Base:
    """Return the base of this machine whose probe has the least loss on a sample of the rows.

    A choice, whose answers no probe reads, has the base of its script.
    """
    text = _sample_text(parts)
    names = _available_bases(text)
    if len(names) == 1 or config.task == "choice" or config.from_scratch:
        return open_base(config, names[0])
    best: tuple[float, Base] | None = None
    for name in names:
        progress.start(f"probe of the base {name}")
        base = open_base(config, name)
        loss = probe_loss(config, base, parts)
        progress.finish(f"loss {loss:.4f} on a sample of the rows")
        if best is None or loss < best[0]:
            best = loss, base
    assert best is not None
    return best[1]


def probe_loss(config: FinetuneConfig, base: Base, parts: Parts) -> float:
    """Return the loss of a probe on a sample of the training rows, by cross-validation."""
    train = parts.train
    order = np.random.default_rng(config.seed).permutation(len(train.rows))[: POLICY.base_rows]
    sample = train.take(sorted(order.tolist()))
    fold = folds(sample.rows, sample.targets, config.seed, POLICY.folds)
    if fold is None:
        return 0.0
    frame = text_frame(base.tokenizer, base.config)
    try:
        encoded = encode(
            sample.rows, config.task, base.tokenizer, base.config.context, targets=sample.targets, frame=frame
        )
    except DataError:  # a text without a token
        return float("inf")
    model = PooledModel(base.model, config.task, parts.labels.outputs).to(base.model.tokens.weight.device)
    features = model.read_features(encoded, ("mean",))
    width = features["mean"].shape[1]
    splits = [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in range(POLICY.folds)]
    choice, _ = choose_linear(
        features,
        parts.labels.probabilities(encoded),
        np.ones(len(encoded), np.float32),
        parts.labels,
        splits,
        [strength * PROBE_WIDTH / width for strength in PROBE_STRENGTHS],
    )
    return choice.loss


def poolings(base: Base) -> tuple[Pooled, ...]:
    """Return the poolings that a probe may use: of an encoder only the mean, which it was trained for."""
    return ("mean", "last") if base.config.is_causal else ("mean",)


def _available_bases(text: str) -> list[str]:
    """Return the bases of this machine for a text: those that ship for its script, and the encoder."""
    letters = len(_LETTERS.findall(text)) or 1
    hangul, latin = len(_HANGUL.findall(text)) / letters, len(_LATIN.findall(text)) / letters
    names = [KOREAN] * (hangul > _SOME) + [ENGLISH] * (latin > _SOME or hangul <= _SOME)
    return [*names, ENCODER] if latin > _MOST and _has_encoder() else names


def _has_encoder() -> bool:
    try:
        return shipped.find(ENCODER).is_dir()
    except ResourceError:
        return False


def _sample_text(parts: Parts) -> str:
    rows = parts.train.rows
    chosen: Sequence[Any] = rows[:: max(1, len(rows) // POLICY.base_rows)]
    return "\n".join(text[:1_000] for row in chosen for text in row.segments)


def base_notes(base: Base, parts: Parts) -> list[str]:
    """Return notes on a base and the rows: letters that it cannot read, and the encoder for English."""
    text, notes = _sample_text(parts), []
    letters = _LETTERS.findall(compose(text).casefold())
    ids = base.tokenizer.encode(text, None)
    read = _LETTERS.findall(compose(base.tokenizer.decode(ids)).casefold())
    lost = 1 - min(1.0, len(read) / max(1, len(letters)))
    if lost > _LOST:
        notes.append(f"{base.name} cannot read these rows: its tokenizer loses {lost:.0%} of their letters")
    elif len(ids) > _PIECES * len(letters) and letters:
        pieces = len(ids) / len(letters)
        notes.append(f"{base.name} was not made for the script of these rows: {pieces:.1f} tokens per letter")
    words = re.findall(r"[a-z']+", text.lower())
    english = bool(words) and sum(word in _ENGLISH for word in words) / len(words) > _ENGLISH_SHARE
    english = english and len(_LATIN.findall(text)) > _LATIN_SHARE * len(_LETTERS.findall(text))
    if english and base.name in shipped.names() and not _has_encoder():
        notes.append(
            f"these rows are English: the encoder {ENCODER}, which is not on this machine, brought "
            f"{ENCODER_POINTS} points of accuracy over {ENGLISH} on SST-2 with 64 rows per class: --model "
            f"{ENCODER} --download"
        )
    return notes
