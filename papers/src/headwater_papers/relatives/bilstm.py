"""ELMo's model: a forward and a backward LSTM over shared token rows (Peters et al. 2018, section 3.1).

Each direction has its own layers, with a residual connection between them as in the paper. The token embedding and
the tied output are shared. Decided here: tokens are those of GPT's tokenizer, not the output of ELMo's character
network; a layer's state is mapped to the embedding's width outside the recurrence, as in `lstm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwater.model import IGNORE, Linear, ModelConfig, cross_entropy, default_backend
from headwater_papers.relatives.lstm import Recurrent


def reversal(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """Return indices that reverse each sequence and keep its padding at the end: (batch, time) int64."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    if lengths is None:
        return positions.flip(1)
    return torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)


class Direction(nn.Module):
    """The layers of one direction; each maps its state to the embedding's width."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        units = config.units or config.width
        layers = range(config.layers)
        self.recurrences = nn.ModuleList([nn.LSTM(config.width, units, batch_first=True) for _ in layers])
        self.projections = nn.ModuleList([Linear(units, config.width) for _ in layers])
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> list[Tensor]:
        """(batch, time, width) -> each layer's output, (batch, time, width) float32."""
        outputs: list[Tensor] = []
        for recurrence, projection in zip(self.recurrences, self.projections, strict=True):
            assert isinstance(recurrence, nn.LSTM)
            assert isinstance(projection, Linear)
            read, _ = Recurrent.recur(recurrence, x.to(projection.weight.dtype))  # (batch, time, units)
            x = projection(self.dropout(read)).float() + (x if outputs else 0.0)
            outputs.append(x)
        return outputs


class BiLSTM(Recurrent):
    """Both directions: a model that predicts the next and the previous token, and does not generate."""

    @staticmethod
    def objective(model: BiLSTM, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """See `both_directions`: it replaces L1 in pre-training."""
        return both_directions(model, batch)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.forwards, self.backwards = Direction(config), Direction(config)
        self.backend = default_backend()
        self.backend.assign_to(self)

    def hidden(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        embeddings: Any | None = None,
        layers: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the input of heads, forward and backward: (batch, time) -> (batch, time, 2 · width) float32.

        mask: the `padding_mask` of a padded batch. layers: a list to append the token rows, twice, and each
        layer's output to.
        """
        lengths = None if mask is None else mask.flatten(1).sum(dim=1)
        rows = self._rows(ids, embeddings)
        back = reversal(ids, lengths)[:, :, None].expand_as(rows)
        forwards = self.forwards(rows)
        backwards = [x.gather(1, back) for x in self.backwards(rows.gather(1, back))]
        outputs = [torch.cat(pair, dim=2) for pair in zip(forwards, backwards, strict=True)]
        if layers is not None:
            layers += [torch.cat([rows, rows], dim=2), *outputs]
        return outputs[-1]

    def predictors(self, ids: Tensor, following: Tensor, embeddings: Any | None = None) -> tuple[Tensor, Tensor]:
        """Return the states that predict `following` from `ids`, forward, and `ids` from `following`, backward.

        ids, following: (batch, time) int64, a window and the same one position later. Each result is (batch,
        time, width) float32.
        """
        forwards = self.forwards(self._rows(ids, embeddings))[-1]
        backwards = self.backwards(self._rows(following.flip(1), embeddings))[-1].flip(1)
        return forwards, backwards

    def _rows(self, ids: Tensor, embeddings: Any | None) -> Tensor:
        x = self.token_rows(ids, embeddings).float()
        if self.config.embedding_dropout == "sum":
            x = self.embedding_dropout(x)
        return x


def both_directions(model: BiLSTM, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return ELMo's objective: half the sum of a forward and a backward L1 (Peters et al. 2018, section 3.1).

    Both use the same embedding; the half makes it a mean over predicted tokens. batch: a `TokenBatch`.
    """
    # The token after the window is always a target.
    following = torch.cat([batch.ids[:, 1:], batch.targets[:, -1:]], dim=1)
    embeddings = model.embeddings()
    forwards, backwards = model.predictors(batch.ids, following, embeddings)  # (sequences, context, width) each
    matrix, weights = model.output_matrix(embeddings), batch.weights.flatten()
    unseen = batch.targets.flatten() != IGNORE
    before = batch.ids.flatten().where(unseen, IGNORE)
    losses = [
        cross_entropy(hidden.flatten(0, 1), matrix, targets, weights, model.backend)
        for hidden, targets in ((forwards, batch.targets.flatten()), (backwards, before))
    ]
    return (losses[0] + losses[1]) / 2, {"forward": losses[0].detach(), "backward": losses[1].detach()}
