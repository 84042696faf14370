"""Features of a frozen base: train a mixture of its layers and a small task model, and leave the base unchanged.

ELMo (Peters et al. 2018), equation 1: γ · Σ softmax(s)_j · h_j over the layers' outputs h_0 … h_n, with learned
s and γ. Each h_j is first normalised to mean 0 and variance 1, without a gain: the paper's optional LayerNorm. A
task model (`task_models`) reads the mixture, and one linear layer classifies its output.

The base never changes, so each sequence passes through it once: `with_outputs` stores the layers' outputs for
every epoch.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import StorageError
from headwater.finetuning.batches import Batch, inference_batches
from headwater.finetuning.head import TaskModel, TaskOutput
from headwater.finetuning.inputs import Encoded
from headwater.finetuning.rows import TaskName
from headwater.finetuning.task_models import PoolingReader, RecurrentReader, TaskModelName
from headwater.storage import storage_errors

if TYPE_CHECKING:
    from headwater.model import Model


class FeatureHead(nn.Linear):
    """The mixture's s (layer outputs,) and γ (1,), the task model that reads it, and the linear layer."""

    def __init__(self, layer_outputs: int, reader: PoolingReader | RecurrentReader, outputs: int) -> None:
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

    def __init__(
        self,
        model: Model,
        task: TaskName,
        outputs: int,
        *,
        delimiter: int,
        reader: TaskModelName = "pooling",
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        width, texts = model.config.output_width, 1 if task == "classify" else 2
        generator = torch.Generator().manual_seed(seed + 1)  # the linear layer has the seed itself
        read = PoolingReader(width, texts) if reader == "pooling" else RecurrentReader(width, texts, generator)
        head = FeatureHead(model.config.layer_outputs, read, outputs)
        super().__init__(model, task, outputs, dropout=dropout, seed=seed, head=head, delimiter=delimiter)
        self.separator, self.reader = delimiter, reader
        if isinstance(read, RecurrentReader):
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
            between = batch.ids.eq(self.separator).int().argmax(dim=1)
            spans = [(start, between), (between + 1, end)]
        return self.head.reader(mixed, spans, self.summary(mixed, batch))

    def with_outputs(self, encoded: Encoded, path: Path | None = None) -> Encoded:
        """Return `encoded` with every layer's output at every token, from one pass over the base.

        They are kept in memory, or memory-mapped in the file `path`, which is reused if it is complete. Raises
        StorageError if the disk has too little free space.
        """
        shape = (len(encoded.ids), len(self.head.mixture), self.model.config.output_width)
        if path is None:
            store: npt.NDArray[np.float16] = np.empty(shape, dtype=np.float16)
            _fill(self, encoded, store)
            return replace(encoded, outputs=store)
        with storage_errors(path):
            if (kept := _kept(path, shape)) is None:
                path.parent.mkdir(exist_ok=True)
                needed, free = 2 * int(np.prod(shape)), shutil.disk_usage(path.parent).free
                if needed > free:
                    raise StorageError(
                        f"the frozen base's outputs need {needed:,} bytes and {path.parent} has {free:,} free",
                        repair="Free some space, take fewer rows (--limit), or fine-tune without --freeze",
                    )
                partial = path.with_name(path.name + ".partial")
                mapped = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float16, shape=shape)
                _fill(self, encoded, mapped)
                mapped.flush()
                partial.replace(path)
                kept = _kept(path, shape)
        return replace(encoded, outputs=kept)


def _fill(model: FrozenTaskModel, encoded: Encoded, store: npt.NDArray[np.float16]) -> None:
    device = model.head.weight.device
    for chosen, batch in inference_batches(encoded, np.zeros((len(encoded), 1), dtype=np.float32)):
        outputs = model.base_outputs(batch.to(device)).cpu().numpy()
        sequences = encoded.first[chosen][batch.owner.numpy()] + batch.slot.numpy()
        for sequence, values in zip(sequences, outputs, strict=True):
            start, end = encoded.starts[sequence : sequence + 2]
            store[start:end] = values[: end - start]


def _kept(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.float16] | None:
    """Return the outputs in a file, or None if it is missing, truncated or of another shape."""
    try:
        stored: npt.NDArray[np.float16] = np.load(path, mmap_mode="r")
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return stored if stored.shape == shape and stored.dtype == np.float16 else None
