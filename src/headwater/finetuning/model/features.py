"""Features of a frozen base: train a mixture of its layers and a small task model, and leave the base unchanged.

ELMo (Peters et al. 2018), equation 1: γ · Σ softmax(s)_j · h_j over the layers' outputs h_0 … h_n, with learned
s and γ. Each h_j is first normalised to mean 0 and variance 1, without a gain: the paper's optional LayerNorm. A
task model reads the mixture, and one linear layer classifies its output: `Pooling`, which has no weights, or one
that another distribution registers (`headwater.plugins`).

The base never changes, so each sequence passes through it once: `with_outputs` stores the layers' outputs for
every epoch.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import StorageError
from headwater.finetuning.model.batches import Batch, inference_batches
from headwater.finetuning.model.head import TaskModel, TaskOutput
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.rows.row import POOLING, TaskName
from headwater.plugins import task_model_class
from headwater.storage import storage_errors

if TYPE_CHECKING:
    from headwater.model import Model


class Pooling(nn.Module):
    """Of one text its mean, maximum and extract position; of two [u, v, |u − v|, u · v] and the extract position.

    u and v are a mean and a maximum each.
    """

    def __init__(self, width: int, texts: int, generator: torch.Generator) -> None:
        super().__init__()
        self.features = (3 if texts == 1 else 9) * width

    def forward(self, texts: list[tuple[Tensor, Tensor]], extract: Tensor) -> Tensor:
        """See `headwater.plugins.register_task_model`."""
        pooled = [FrozenTaskModel.pool(*text) for text in texts]
        if len(pooled) == 1:
            return torch.cat([*pooled, extract], dim=1)
        u, v = pooled
        return torch.cat([u, v, (u - v).abs(), u * v, extract], dim=1)


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


class FrozenTaskModel(TaskModel):
    """A frozen language model, and a head over a mixture of its layers. delimiter: the token between two texts."""

    head: FeatureHead
    delimiter: int

    def __init__(
        self,
        model: Model,
        task: TaskName,
        outputs: int,
        *,
        delimiter: int,
        reader: str = POOLING,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        width, texts = model.config.output_width, 1 if task == "classify" else 2
        generator = torch.Generator().manual_seed(seed + 1)  # the linear layer has the seed itself
        read = (Pooling if reader == POOLING else task_model_class(reader))(width, texts, generator)
        head = FeatureHead(model.config.layer_outputs, read, outputs)
        super().__init__(model, task, outputs, dropout=dropout, seed=seed, head=head, delimiter=delimiter)
        self.reader = reader
        if any(True for _ in read.parameters()):
            # An untrained reader's output is small: with a language model's deviation, learning would start
            # slowly.
            with torch.no_grad():
                head.weight *= read.features**-0.5 / model.config.init_deviation
        self.model.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the head; the base stays in evaluation mode."""
        super().train(mode)
        self.model.eval()
        return self

    def forward(self, batch: Batch, with_matrix: bool = False) -> TaskOutput:
        """Return logits, and the mixture of the layers as hidden states."""
        mixed = self.head.mix(self.base_outputs(batch) if batch.outputs is None else batch.outputs)
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

    @staticmethod
    def pool(x: Tensor, inside: Tensor) -> Tensor:
        """Return mean and maximum over the positions `inside`, (sequences, 2 · width); 0 if there are none."""
        chosen = inside[:, :, None]
        mean = (x * chosen).sum(dim=1) / chosen.sum(dim=1).clamp(min=1)
        maximum = x.masked_fill(~chosen, float("-inf")).amax(dim=1)
        return torch.cat([mean, maximum.masked_fill(~inside.any(dim=1)[:, None], 0.0)], dim=1)

    def with_outputs(self, encoded: Encoded, folder: Path | None = None) -> Encoded:
        """Return `encoded` with every layer's output at every token, from one pass over the base.

        They are kept in memory, or memory-mapped in a file of `folder` that has no name and ends with the process.
        Raises StorageError if the disk has too little free space.
        """
        shape = (len(encoded.ids), len(self.head.mixture), self.model.config.output_width)
        if folder is None:
            store: npt.NDArray[np.float16] = np.empty(shape, dtype=np.float16)
        else:
            needed, free = 2 * math.prod(shape), shutil.disk_usage(folder).free
            if needed > free:
                raise StorageError(
                    f"the frozen base's outputs need {needed:,} bytes and {folder} has {free:,} free",
                    repair="Free some space, take fewer rows (--limit), or fine-tune without --freeze",
                )
            with storage_errors(folder), TemporaryFile(dir=folder) as handle:
                store = np.memmap(handle, dtype=np.float16, mode="w+", shape=shape)
        _fill(self, encoded, store)
        return replace(encoded, outputs=store)


def _take(x: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Shift a span of each sequence to its beginning: (sequences, time, width), as before.

    start, end: (sequences,) int64. Also returns which positions are inside the span, (sequences, time) bool.
    `time` stays that of `x`: reading the length of the longest span would make the host wait for a GPU.
    """
    lengths = end - start
    positions = torch.arange(x.shape[1], device=x.device)
    chosen = (start[:, None] + positions).clamp(max=x.shape[1] - 1)
    return x.gather(1, chosen[:, :, None].expand(-1, -1, x.shape[2])), positions < lengths[:, None]


def _fill(model: FrozenTaskModel, encoded: Encoded, store: npt.NDArray[np.float16]) -> None:
    device = model.head.weight.device
    for chosen, batch in inference_batches(encoded, np.zeros((len(encoded), 1), dtype=np.float32)):
        outputs = model.base_outputs(batch.to(device)).cpu().numpy()
        sequences = encoded.first[chosen][batch.owner.numpy()] + batch.slot.numpy()
        for sequence, values in zip(sequences, outputs, strict=True):
            start, end = encoded.starts[sequence : sequence + 2]
            store[start:end] = values[: end - start]
