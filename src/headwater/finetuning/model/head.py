"""The one layer that fine-tuning adds, and the model together with it.

P(y | x) = softmax(h W_y), h the last block's output at the extract token (GPT-1 section 3.2, equation 3), with
a bias as in the authors' code; of several labels per row σ(h W_y), decided here. With full attention h is the
output at the first token (BERT, Devlin et al. 2019, section 3), and the second text has its own segment row; of a
bidirectional LSTM each half is taken at its last position. Similarity adds the vectors of both orders before the
layer; multiple choice has one output, and its softmax runs over the answers (section 3.3). `objective` has the
losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import FolderError
from headwater.finetuning.model.batches import Batch, inference_batches
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.rows.row import TaskName
from headwater.model import padding_mask

if TYPE_CHECKING:
    from headwater.finetuning.rows.labels import Labels
    from headwater.model import Model

# Logit of an answer that an example does not have.
ABSENT = -1e9


class TaskOutput(NamedTuple):
    """The result of a forward pass: logits (examples, outputs) float32, hidden (sequences, time, width) float32.

    matrix: (vocabulary, width), which predicts tokens from `hidden`, with the same dropped entries, or None.
    """

    logits: Tensor
    hidden: Tensor
    matrix: Tensor | None


class TaskModel(nn.Module):
    """A language model and its head for one task."""

    def __init__(
        self,
        model: Model,
        task: TaskName,
        outputs: int,
        *,
        dropout: float = 0.1,
        seed: int = 0,
        head: nn.Linear | None = None,
        delimiter: int | None = None,
    ) -> None:
        """delimiter: the id of the token between two texts, needed by a model with segment rows."""
        super().__init__()
        self.model, self.task, self.dropout, self.delimiter = model, task, dropout, delimiter
        # `skip_init` does not use torch's global generator.
        self.head = head or nn.utils.skip_init(nn.Linear, model.config.output_width, outputs)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            nn.init.normal_(self.head.weight, std=model.config.init_deviation, generator=generator)
            nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch, with_matrix: bool = False) -> TaskOutput:
        """Return logits and hidden states of a batch; ABSENT for answers that an example does not have."""
        embeddings = self.model.embeddings() if with_matrix else None
        hidden = self.read(batch, embeddings=embeddings)  # (sequences, time, width)
        logits = self.classify(self.summary(hidden, batch), batch)
        return TaskOutput(logits, hidden, self.model.output_matrix(embeddings) if with_matrix else None)

    @torch.no_grad()
    def predict(self, encoded: Encoded, labels: Labels) -> tuple[npt.NDArray[np.float32], float]:
        """Return probabilities (examples, outputs or most answers), and L2 over the examples with a label.

        Raises FolderError for probabilities that are not finite.
        """
        targets = labels.probabilities(encoded)
        probabilities = np.zeros_like(targets if labels.target != "labels" else targets[:, : labels.outputs])
        device = self.head.weight.device
        loss = 0.0
        training = self.training
        self.eval()
        for chosen, batch in inference_batches(encoded, targets):
            logits = self(batch.to(device)).logits.cpu()
            shares = log_probabilities(logits, batch.targets)
            probabilities[chosen] = shares.exp().numpy()[:, : probabilities.shape[1]]
            loss -= float((shares * batch.targets).sum())
        self.train(training)
        require_finite(probabilities, "the model's probabilities")
        return probabilities, loss / max(1, int(encoded.known.sum()))

    def read(self, batch: Batch, **options: Any) -> Tensor:
        """Return the model's hidden states, (sequences, time, width); with padding and segments as needed."""
        config = self.model.config
        if not config.is_causal:
            options["mask"] = padding_mask(batch.extract + 1, batch.ids.shape[1])
        if config.segments > 1 and self.delimiter is not None:
            delimiters = batch.ids == self.delimiter
            options["segments"] = (delimiters.cumsum(dim=1) > delimiters.long()).long()
        hidden: Tensor = self.model.hidden(batch.ids, **options)
        return hidden

    def summary(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return one vector per sequence: (sequences, time, width) -> (sequences, width)."""
        config = self.model.config
        last = hidden[torch.arange(len(hidden), device=hidden.device), batch.extract]
        first = hidden[:, 0]
        if config.is_causal:
            return last
        return first if config.is_masked else torch.cat([last[:, : config.width], first[:, config.width :]], dim=1)

    def classify(self, pooled: Tensor, batch: Batch) -> Tensor:
        """(sequences, width) -> (examples, outputs or most answers) float32.

        An example's candidates, and both orders of a pair, share one dropout mask.
        """
        weight, bias = self.head.weight.float(), self.head.bias.float()
        if self.training and self.dropout:
            mask = functional.dropout(pooled.new_ones(batch.examples, pooled.shape[1]), self.dropout)
            pooled = pooled * mask[batch.owner]
        if self.task == "choice":
            scores = functional.linear(pooled, weight, bias).squeeze(1)  # (sequences,)
            logits = scores.new_full(batch.targets.shape, ABSENT)
            return logits.index_put((batch.owner, batch.slot), scores)
        if self.task == "similarity":
            pooled = pooled.new_zeros(batch.examples, pooled.shape[1]).index_add(0, batch.owner, pooled)
        return functional.linear(pooled, weight, bias)


def require_finite(values: npt.NDArray[Any], name: str) -> None:
    """Raise FolderError unless all values are finite: a model's weights overflow otherwise."""
    if not np.isfinite(values).all():
        raise FolderError(f"{name} are not finite: the weights overflow", expected="finite numbers")


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the logarithms that the targets weigh: logits (examples, outputs) -> float32, of their shape.

    They are of the softmax or, for several labels, of σ(x) for present ones, then of σ(−x) for absent ones.
    """
    logits = logits.float()
    if targets.shape[1] == 2 * logits.shape[1]:
        return functional.logsigmoid(torch.cat([logits, -logits], dim=1))
    return logits.log_softmax(dim=1)
