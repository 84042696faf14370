"""Build the model that a configuration describes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypeAlias

from headwater.model.config import ModelConfig, architecture_of

if TYPE_CHECKING:
    from headwater.model.lstm import LSTM
    from headwater.model.transformer import Transformer

    Model: TypeAlias = Transformer | LSTM


def build_model(config: ModelConfig, *, seed: int | None = None, device: str = "cpu") -> Model:
    """Build the model that `config` describes, in float32.

    Its weights are drawn from the seed, or uninitialised without one. On device "meta" no memory is allocated.
    """
    import torch

    module, name = architecture_of(config).module.split(":")
    with torch.device("meta"):
        model: Model = getattr(importlib.import_module(module), name)(config)
    if device != "meta":
        model = model.to_empty(device=device)
    if seed is not None:
        model.initialise(seed)
    return model
