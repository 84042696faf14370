"""ELMo's transfer (Peters et al. 2018, equation 1): a frozen base, and a head over a mixture of its layers.

The head reads s_j, the softmax of learned numbers, times γ, of every layer's normalised output, through the task
model of `esim`. It is a task model of the recipe gpt1: `run_stage(…, build=build_frozen)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.finetuning import Batch, TaskModel, TaskName, TaskOutput
from headwater.tokenizer import Tokenizer
from headwater_papers.relatives.esim import RecurrentReader

if TYPE_CHECKING:
    from headwater.model import Model


class FeatureHead(nn.Linear):
    """The mixture's s (layer outputs,) and γ (1,), the task model that reads it, and the linear layer."""

    def __init__(self, layer_outputs: int, reader: Any, outputs: int) -> None:
        super().__init__(reader.features, outputs)
        self.reader = reader
        self.mixture = nn.Parameter(torch.zeros(layer_outputs))
        self.scale = nn.Parameter(torch.ones(1))

    def reset_parameters(self) -> None:
        """Do nothing: `TaskModel` draws the weights from its seed."""

    def mix(self, outputs: Tensor) -> Tensor:
        """Equation 1: (sequences, time, layers + 1, width) -> (sequences, time, width) float32."""
        weights = self.scale.float() * self.mixture.float().softmax(dim=0)
        return torch.einsum("stlw,l->stw", outputs.float(), weights)


@torch.no_grad()
def layer_outputs(model: Model) -> int:
    """Return how many outputs of a position a base has: its token rows, and those of its layers."""
    outputs: list[Tensor] = []
    model.eval().hidden(torch.zeros(1, 1, dtype=torch.long, device=model.tokens.weight.device), layers=outputs)
    return len(outputs)


class FrozenTaskModel(TaskModel):
    """A frozen language model, and a head over a mixture of its layers."""

    head: FeatureHead
    delimiter: int

    def __init__(
        self, model: Model, task: TaskName, outputs: int, *, delimiter: int, dropout: float = 0.1, seed: int = 0
    ) -> None:
        """delimiter: the id of the token between two texts."""
        generator = torch.Generator().manual_seed(seed + 1)  # the linear layer has the seed itself
        read = RecurrentReader(model.config.output_width, 1 if task == "classify" else 2, generator)
        head = FeatureHead(layer_outputs(model), read, outputs)
        super().__init__(model, task, outputs, dropout=dropout, seed=seed, head=head, delimiter=delimiter)
        with torch.no_grad():
            # An untrained reader's output is small: with the base's deviation it would learn slowly.
            head.weight *= read.features**-0.5 / model.config.init_deviation
        self.model.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the head; the base stays in evaluation mode."""
        super().train(mode)
        self.model.eval()
        return self

    def forward(self, batch: Batch, with_matrix: bool = False) -> TaskOutput:
        """Return logits, and the mixture of the layers as hidden states."""
        mixed = self.head.mix(self.base_outputs(batch))
        logits = self.classify(self._pooled(mixed, batch), batch)
        return TaskOutput(logits, mixed, self.model.output_matrix() if with_matrix else None)

    @torch.no_grad()
    def base_outputs(self, batch: Batch) -> Tensor:
        """Return every layer's normalised output: (sequences, time, layers + 1, width) float16."""
        layers: list[Tensor] = []
        self.read(batch, layers=layers)
        stacked = torch.stack([layer.float() for layer in layers], dim=2)
        return functional.layer_norm(stacked, stacked.shape[-1:]).half()

    def _pooled(self, mixed: Tensor, batch: Batch) -> Tensor:
        """(sequences, time, width) -> (sequences, features)."""
        start, end = torch.ones_like(batch.extract), batch.extract  # without start and extract tokens
        spans = [(start, end)]
        if self.task != "classify":
            between = batch.ids.eq(self.delimiter).int().argmax(dim=1)
            spans = [(start, between), (between + 1, end)]
        pooled: Tensor = self.head.reader([_take(mixed, *span) for span in spans], self.summary(mixed, batch))
        return pooled


def build_frozen(
    base: Model, tokenizer: Tokenizer, task: TaskName, outputs: int, dropout: float, seed: int
) -> FrozenTaskModel:
    """Return the task model for `run_stage`."""
    delimiter = tokenizer.task_tokens.delimiter
    return FrozenTaskModel(base, task, outputs, delimiter=delimiter, dropout=dropout, seed=seed)


def _take(x: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Shift a span of each sequence to its beginning: (sequences, time, width), as before.

    start, end: (sequences,) int64. Also returns which positions are inside the span, (sequences, time) bool.
    `time` stays that of `x`: reading the length of the longest span would make the host wait for a GPU.
    """
    lengths = end - start
    positions = torch.arange(x.shape[1], device=x.device)
    chosen = (start[:, None] + positions).clamp(max=x.shape[1] - 1)
    return x.gather(1, chosen[:, :, None].expand(-1, -1, x.shape[2])), positions < lengths[:, None]
