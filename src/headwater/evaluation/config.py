"""The configuration of an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headwater.config import Config


class EvaluateConfig(Config):
    """How a model is evaluated."""

    window: int | None = Field(default=None, ge=1)
    """Tokens that the model sees at a time; by default its context."""
    stride: int | None = Field(default=None, ge=1)
    """Tokens between the starts of two windows; by default half of a window."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """Number format of the weights; see `hw.load`."""
    yardstick_bytes: int | None = Field(default=None, ge=0)
    """The most bytes of training text for xz and the n-gram model; 0 omits them."""
