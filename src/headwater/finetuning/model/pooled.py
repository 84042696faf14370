"""A head over one vector per text: the mean over its tokens, or the last one. Two texts are read separately.

The vector of two texts u and v, of length 1 each, is [u, v, |u − v|, u · v] (InferSent, Conneau et al. 2017).
Where their order means nothing, as in similarity, it is [u + v, |u − v|, u · v]. The texts have no task tokens
around them: a GPT reads them alone, BERT between `[CLS]` and `[SEP]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.finetuning.model.batches import Batch, inference_batches
from headwater.finetuning.model.head import TaskModel, require_finite
from headwater.finetuning.model.inputs import Encoded, Frame
from headwater.finetuning.rows.row import TaskName
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model, ModelConfig

Pooled = Literal["mean", "last"]
# Cosines are divided by this to be logits, during tuning only.
_TEMPERATURE = 0.1


def text_frame(tokenizer: Tokenizer, config: ModelConfig) -> Frame:
    """Return the tokens before and after a text that a model reads alone."""
    before, after = tokenizer.frame if config.is_masked else ([], [])
    return Frame(tuple(before), (), tuple(after))


class PooledModel(TaskModel):
    """A language model and a linear layer over `features`.

    While classes are tuned, `reads_cosines` is set: the rows of the layer are directions, and a logit is the
    cosine of one and the features, without dropout. It is not saved: the layer is fitted again afterwards.
    """

    def __init__(
        self, model: Model, task: TaskName, outputs: int, *, pooled: Pooled = "mean", dropout: float = 0.1
    ) -> None:
        width = model.config.output_width * {"classify": 1, "similarity": 3}.get(task, 4)
        head = nn.utils.skip_init(nn.Linear, width, outputs)
        super().__init__(model, task, outputs, dropout=dropout, head=head)
        self.pooled: Pooled = pooled
        self.reads_cosines = False

    def summary(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the vector of each text: (sequences, time, width) -> (sequences, width)."""
        if self.pooled == "last":
            return super().summary(hidden, batch)
        real = torch.arange(hidden.shape[1], device=hidden.device) <= batch.extract[:, None]
        return (hidden * real[:, :, None]).sum(dim=1) / (batch.extract + 1)[:, None]

    def features(self, vectors: Tensor) -> Tensor:
        """Return what the head reads: (sequences, width) -> (examples, features) float32."""
        vectors = vectors.float()
        if self.task == "classify":
            return vectors
        u, v = functional.normalize(vectors[0::2], dim=1), functional.normalize(vectors[1::2], dim=1)
        alone = [u + v] if self.task == "similarity" else [u, v]
        return torch.cat([*alone, (u - v).abs(), u * v], dim=1)

    def classify(self, pooled: Tensor, batch: Batch) -> Tensor:
        """(sequences, width) -> (examples, outputs) float32."""
        features = self.features(pooled)
        if self.reads_cosines:
            directions = functional.normalize(self.head.weight.float(), dim=1)
            return functional.normalize(features, dim=1) @ directions.T / _TEMPERATURE
        if self.training and self.dropout:
            features = functional.dropout(features, self.dropout)
        return functional.linear(features, self.head.weight.float(), self.head.bias.float())

    @torch.no_grad()
    def set_head(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> None:
        """Set the layer: weight (outputs, features), bias (outputs,)."""
        self.reads_cosines = False
        self.head.weight.copy_(torch.from_numpy(weight))
        self.head.bias.copy_(torch.from_numpy(bias))

    @torch.no_grad()
    def set_directions(self, features: npt.NDArray[np.float32], targets: npt.NDArray[np.float32]) -> None:
        """Make the layer's rows the mean directions of each class's features (Snell et al. 2017).

        features: (examples, features); targets: (examples, outputs), the probability of each. A class without a
        row begins away from all the others: the gradient of a cosine with 0 has no bound.
        """
        directions = functional.normalize(torch.from_numpy(features), dim=1)
        sums = torch.from_numpy(targets).T @ directions  # (outputs, features)
        sums[~sums.any(dim=1)] = -directions.mean(dim=0)
        self.head.weight.copy_(functional.normalize(sums, dim=1))
        self.reads_cosines = True

    @torch.no_grad()
    def read_features(
        self, encoded: Encoded, poolings: tuple[Pooled, ...]
    ) -> dict[Pooled, npt.NDArray[np.float32]]:
        """Return the features of all examples by pooling, from one pass and without dropout.

        Raises FolderError for features that are not finite.
        """
        values = {kind: np.empty((len(encoded), self.head.in_features), np.float32) for kind in poolings}
        before, training = self.pooled, self.training
        self.eval()
        for chosen, batch in inference_batches(encoded, np.zeros((len(encoded), 1), np.float32)):
            moved = batch.to(self.head.weight.device)
            hidden = self.read(moved)
            for pooling, features in values.items():
                self.pooled = pooling
                features[chosen] = self.features(self.summary(hidden, moved)).cpu().numpy()
        self.pooled = before
        self.train(training)
        for features in values.values():
            require_finite(features, "the base's features")
        return values
