"""Configuration of training, which is read before torch is imported: a wrong value is refused at once."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwater.config import Config
from headwater.training.journal import Tracker
from headwater.training.schedule import WITHOUT_FINAL_RATE, Schedule

AdamForm = Literal["standard", "original"]
TrainingPrecision = Literal["auto", "fp32", "bf16"]
# Keys that change only rounding and dropout's masks of the result: a resumed run may change them.
_CHANGEABLE = {
    *("micro_batch", "compile", "device", "shard", "recompute", "deterministic"),
    *("keep", "checkpoint_every", "checkpoint_minutes", "track"),
}


class TrainConfig(Config):
    """Configuration of training for every objective. Sizes are in sequences."""

    # The upper bounds are far beyond any run, and keep positions in the text within 63 bits.
    steps: int = Field(default=1_000, ge=1, le=1 << 40)
    """Updates."""
    batch_size: int = Field(default=32, ge=1, le=1 << 20)
    """Sequences per update, over all ranks."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Sequences of a forward pass; by default what fits the device."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The peak learning rate."""
    warmup_steps: float = Field(default=0, ge=0)
    """Updates over which the learning rate rises to its peak."""
    schedule: Schedule = "cosine"
    """Schedule of the learning rate after the warm-up."""
    final_rate: float = Field(default=0.0, ge=0, le=1)
    """The learning rate at the end, as a share of the peak."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled weight decay of matrices."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of Adam's mean of the gradients."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of Adam's mean of their squares."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Adam's epsilon."""
    adam: AdamForm = "standard"
    """standard: as in torch; original: as in GPT-1's code."""
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradients; 0 does not clip."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout while training; by default the preset's."""
    precision: TrainingPrecision = "auto"
    """bf16 or fp32; auto: bf16 if the hardware supports it."""
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    """Seed of every random choice."""
    validate_every: int = Field(default=250, ge=1)
    """Updates between validations."""
    checkpoint_every: int = Field(default=250, ge=1)
    """The most updates between checkpoints."""
    checkpoint_minutes: float = Field(default=5.0, gt=0)
    """The most minutes between checkpoints."""
    keep: int = Field(default=3, ge=1)
    """Number of checkpoints kept."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether to use torch.compile; auto: on an accelerator."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    deterministic: bool = False
    """Make a resumed run on CUDA exact, and slower."""
    track: tuple[Tracker, ...] = ()
    """Additional trackers: tensorboard, trackio, wandb."""

    @model_validator(mode="after")
    def _has_a_final_rate(self) -> Self:
        if self.final_rate and self.schedule in WITHOUT_FINAL_RATE:
            raise ValueError(f"schedule = {self.schedule} has no final_rate")
        return self

    def deciding(self) -> dict[str, Any]:
        """Return the keys that decide the result, which a resumed run must not change, as plain values."""
        return {key: value for key, value in self.to_dict().items() if key not in _CHANGEABLE}
