"""The one layer that fine-tuning adds, and the model together with it.

P(y | x) = softmax(h W_y), h the last block's output at the extract token (GPT-1 section 3.2, equation 3), with
a bias as in the authors' code. Similarity adds the vectors of both orders before the layer; multiple choice has
one output, and its softmax runs over the answers (section 3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.datasets.rows import Task
from headwater.finetune.batches import Batch
from headwater.model.attention import padding_mask

if TYPE_CHECKING:
    from headwater.model import Model

# Logit of an answer that an example does not have.
ABSENT = -1e9


class TaskOutput(NamedTuple):
    """What one pass gives: logits (examples, outputs) float32, hidden (sequences, time, width) float32, and the
    rows (vocabulary, width) that predict tokens, with the entries that were dropped for `hidden`."""

    logits: Tensor
    hidden: Tensor
    matrix: Tensor


class TaskModel(nn.Module):
    """A language model and its head for one task."""

    def __init__(
        self,
        model: Model,
        task: Task,
        outputs: int,
        *,
        dropout: float = 0.1,
        seed: int = 0,
        head: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.model, self.task, self.dropout = model, task, dropout
        # `skip_init` leaves torch's generator alone.
        self.head = head or nn.utils.skip_init(nn.Linear, model.config.width, outputs)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            nn.init.normal_(self.head.weight, std=model.config.init_deviation, generator=generator)
            nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch) -> TaskOutput:
        """Logits and hidden states of a batch; ABSENT where an example has fewer answers than another."""
        embeddings = self.model.embeddings()
        hidden = self.model.hidden(batch.ids, mask=self._mask(batch), embeddings=embeddings)
        # hidden: (sequences, time, width)
        logits = self.classify(pool(hidden, batch.extract), batch)
        return TaskOutput(logits, hidden, self.model.output_matrix(embeddings))

    def predict(self, batch: Batch) -> Tensor:
        """Logits alone."""
        hidden = self.model.hidden(batch.ids, mask=self._mask(batch))
        return self.classify(pool(hidden, batch.extract), batch)

    def _mask(self, batch: Batch) -> Tensor | None:
        """Return the key mask that keeps padding out of full attention; causal attention needs none."""
        if not self.model.config.is_masked:
            return None
        return padding_mask(batch.extract + 1, batch.ids.shape[1])

    def classify(self, pooled: Tensor, batch: Batch) -> Tensor:
        """(sequences, width) -> (examples, outputs or most answers) float32.

        The dropout mask is one an example: its candidates, and both orders of a pair, share it.
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


def pool(hidden: Tensor, extract: Tensor) -> Tensor:
    """The vectors at the extract tokens: (sequences, time, width), (sequences,) -> (sequences, width)."""
    return hidden[torch.arange(len(hidden), device=hidden.device), extract]
