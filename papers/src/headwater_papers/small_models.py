"""Models that an experiment trains itself, in a minute each, since no recipe describes them.

All models of a seed read the same windows of the training text in the same order, with Muon for the matrices
between the embeddings and Adam for the rest, and a rate that falls linearly to zero. The windows of held-out text
are the same for every seed and model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headwater.config import Config
from headwater.model import IGNORE
from headwater.pretraining import CHOSEN, TokenStream
from headwater_papers.gpt2_ladder import text_of
from headwater_papers.items import ItemValues
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.statistics import Measured

Ids = NDArray[np.int64]  # (windows, context)
Losses = NDArray[np.float64]  # (windows, context)
_BATCH = 50  # windows that are scored at once


class SmallModels(Config):
    """The shape of the models, their training, and the windows of held-out text."""

    layers: int = Field(default=2, ge=1)
    width: int = Field(default=64, ge=1)
    heads: int = Field(default=1, ge=1)
    context: int = Field(default=32, ge=8)
    batch_size: int = Field(default=16, ge=1)
    updates: int = Field(default=300, ge=1)
    learning_rate: float = Field(default=1e-2, gt=0)
    windows: int = Field(default=500, ge=2)

    @property
    def shape(self) -> dict[str, Any]:
        """The keys of ModelConfig; the deviation is the paper's at a width of 768, scaled to this one."""
        deviation = round(0.02 * (768 / self.width) ** 0.5, 3)
        same = {key: getattr(self, key) for key in ("layers", "width", "heads", "context")}
        return same | {"init_deviation": deviation, "position_deviation": deviation}

    @property
    def described(self) -> tuple[str, str]:
        """The line of the set-up."""
        return (
            "models",
            f"{self.layers} layers of {self.width}, {self.heads} heads, context {self.context}; {self.updates:,} "
            f"updates of {self.batch_size} sequences, {self.updates * self.batch_size * self.context:,} tokens, "
            f"Muon and Adam, rate {self.learning_rate:g}, falling linearly to 0",
        )


def vocabulary_of(laboratory: Laboratory) -> int:
    """Return the entries of the text's tokenizer, without the one of `[MASK]`, which has the id after them."""
    return laboratory.scale.texts[text_of(laboratory.scale)].vocabulary


def train(model: Any, stream: TokenStream, settings: SmallModels, seed: int) -> None:
    """Train a model: L1, or with full attention the masked objective; only parameters that require a gradient."""
    import torch
    from torch.nn import functional

    generator = np.random.default_rng(seed)
    order = generator.integers(0, stream.windows, (settings.updates, settings.batch_size))
    trained = [one for one in model.parameters() if one.requires_grad]
    tables = [part for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    embeddings = {id(parameter) for table in tables for parameter in table.parameters()}
    inner = [one for one in trained if one.dim() == 2 and id(one) not in embeddings]
    rest = [one for one in trained if one.dim() < 2 or id(one) in embeddings]
    optimizers: tuple[Any, ...] = (
        torch.optim.Muon(inner, adjust_lr_fn="match_rms_adamw", weight_decay=0.0),
        torch.optim.Adam(rest, betas=(0.9, 0.95)),
    )
    for update, places in enumerate(order):
        rate = settings.learning_rate * min((update + 1) / 20, 1 - update / settings.updates)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
        ids = np.stack([stream.window(int(place))[0] for place in places])
        read, targets = hidden(ids, generator, model) if model.config.is_masked else following(ids)
        logits = model(torch.from_numpy(read)).flatten(0, 1)
        functional.cross_entropy(logits, torch.from_numpy(targets).flatten(), ignore_index=IGNORE).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer in optimizers:
            optimizer.step()


def following(ids: Ids) -> tuple[Ids, Ids]:
    """Return what a causal model reads, and the token after each; the last token is only a target."""
    return ids[:, :-1], ids[:, 1:]


def hidden(ids: Ids, generator: np.random.Generator, model: Any) -> tuple[Ids, Ids]:
    """Hide 15 % of the tokens; return what the model reads, and the hidden tokens, IGNORE elsewhere."""
    chosen = generator.random(ids.shape) < CHOSEN
    chosen[:, 0] |= ~chosen.any(axis=1)
    return np.where(chosen, model.config.vocabulary - 1, ids), np.where(chosen, ids, IGNORE)


def losses(model: Any, read: Ids, targets: Ids) -> Losses:
    """Return the loss of each target in nats; NaN where there is none."""
    import torch
    from torch.nn import functional

    parts = []
    with torch.no_grad():
        for start in range(0, len(read), _BATCH):
            logits = model(torch.from_numpy(read[start : start + _BATCH])).float()
            wanted = torch.from_numpy(targets[start : start + _BATCH])
            parts.append(
                functional.cross_entropy(logits.movedim(-1, 1), wanted, reduction="none").double().numpy()
            )
    return np.where(targets == IGNORE, np.nan, np.concatenate(parts))


def held_out_windows(stream: TokenStream, count: int) -> Ids:
    """Return `count` evenly spaced windows."""
    return np.stack([stream.window(int(place))[0] for place in evenly_placed(stream.windows, count)])


def by_window(seeds: list[list[float]]) -> Measured:
    """Return the mean over windows, one value a seed, with the values by window."""
    measured = Measured()
    for values in seeds:
        ids = tuple(map(str, range(len(values))))
        measured.add(float(np.mean(values)), None, {"windows": ItemValues(ids, np.array([values]))})
    return measured
