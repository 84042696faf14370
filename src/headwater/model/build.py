"""Build the model that a configuration describes, and count its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headwater.model.config import ModelConfig

if TYPE_CHECKING:
    from headwater.model.bilstm import BiLSTM
    from headwater.model.lstm import LSTM
    from headwater.model.transformer import Transformer

    Model: TypeAlias = Transformer | LSTM | BiLSTM


def build_model(config: ModelConfig, *, seed: int | None = None, device: str = "cpu") -> Model:
    """Build the model that `config` describes, in float32.

    Its weights are drawn from the seed, or uninitialised without one. On device "meta" no memory is allocated.
    """
    import torch

    from headwater.model.bilstm import BiLSTM
    from headwater.model.lstm import LSTM
    from headwater.model.transformer import Transformer

    classes: dict[str, Callable[[ModelConfig], Model]] = {
        "transformer": Transformer,
        "lstm": LSTM,
        "bilstm": BiLSTM,
    }
    with torch.device("meta"):
        model = classes[config.architecture](config)
    if device != "meta":
        model = model.to_empty(device=device)
    if seed is not None:
        model.initialise(seed)
    return model


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of the model that `config` describes, without allocating it."""
    return sum(parameter.numel() for parameter in build_model(config, device="meta").parameters())
