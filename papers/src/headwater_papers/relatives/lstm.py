"""The LSTM that GPT-1 is compared with (Radford et al. 2018, section 5): same tokens, objective, heads and loop.

The paper only says one layer of 2,048 units. Decided here: token embeddings have the Transformer's width; one
linear map outside the recurrence maps the hidden state to that width, so that the output matrix is tied to the
embeddings and heads are as wide as the Transformer's; dropout is on the embeddings and the hidden state, at the
Transformer's rate. The forget gates' initial bias is 1 (Jozefowicz et al. 2015). There are no positions and no
limit of context.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwater.errors import UsageError
from headwater.model import (
    Backend,
    Embedding,
    Embeddings,
    Extensible,
    Linear,
    ModelConfig,
    default_backend,
    project,
    token_rows,
)


class Recurrent(Extensible, nn.Module):
    """A recurrent model's token embedding, tied to the output."""

    backend: Backend

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = Embedding(config.vocabulary, config.width)
        self.embedding_dropout = nn.Dropout(config.dropouts[0])

    def embeddings(self) -> Embeddings:
        """Return the token matrix of this step, as `Transformer.embeddings`, without positions."""
        tokens = self.tokens.weight
        if self.config.embedding_dropout == "matrix":
            tokens = self.embedding_dropout(tokens)
        return Embeddings(tokens, tokens[:0])

    def token_rows(self, ids: Tensor, embeddings: Embeddings | None) -> Tensor:
        """Return the token matrix's rows: (…) int64 -> (…, width)."""
        return token_rows(self, ids, embeddings)

    def output_matrix(self, embeddings: Embeddings | None = None) -> Tensor:
        """Return the rows of the softmax: (vocabulary, width)."""
        return (embeddings or self.embeddings()).tokens

    def logits(self, hidden: Tensor, embeddings: Embeddings | None = None) -> Tensor:
        """(…, width) -> (…, vocabulary) float32."""
        return project(hidden, self.output_matrix(embeddings))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw all weights from the seed: N(0, deviation²), biases 0, the forget gates' 1."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            else:
                drawn = torch.empty(parameter.shape)
                parameter.copy_(drawn.normal_(std=self.config.init_deviation, generator=generator))
        for recurrence in (module for module in self.modules() if isinstance(module, nn.LSTM)):
            units = recurrence.hidden_size
            for layer in range(recurrence.num_layers):
                # The gates' order is input, forget, cell, output; setting one of the two biases is enough.
                recurrence.get_parameter(f"bias_ih_l{layer}")[units : 2 * units] = 1.0

    @staticmethod
    def recur(
        recurrence: nn.LSTM, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run a recurrence: (batch, time, in) -> (batch, time, units) and the state after it.

        On a device its biases, which are float32 in training, must have the matrices' dtype.
        """
        if x.device.type == "cpu" or x.dtype == torch.float32:
            return recurrence(x, state)
        if state is None:
            zeros = x.new_zeros(recurrence.num_layers, len(x), recurrence.hidden_size)
            state = (zeros, zeros)
        weights = [weight.to(x.dtype) for weight in recurrence._flat_weights if weight is not None]
        layers, dropout = recurrence.num_layers, recurrence.dropout
        x, hidden, cell = torch.lstm(x, state, weights, True, layers, dropout, recurrence.training, False, True)
        return x, (hidden, cell)


class LSTM(Recurrent):
    """Token embedding, recurrence, linear map to the embedding's width, tied output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        units = config.units or config.width
        between = config.dropout if config.layers > 1 else 0.0
        self.recurrence = nn.LSTM(config.width, units, config.layers, batch_first=True, dropout=between)
        self.hidden_dropout = nn.Dropout(config.dropout)
        self.projection = Linear(units, config.width)
        self.backend = default_backend()
        self.backend.assign_to(self)

    def forward(self, ids: Tensor) -> Tensor:
        """Next-token logits: (batch, time) int64 -> (batch, time, vocabulary) float32."""
        embeddings = self.embeddings()
        return self.logits(self.hidden(ids, embeddings=embeddings), embeddings)

    def hidden(
        self,
        ids: Tensor,
        *,
        state: list[Tensor] | None = None,
        mask: Tensor | None = None,
        embeddings: Embeddings | None = None,
        layers: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the input of heads: (batch, time) int64 -> (batch, time, width) float32.

        state: a list with the hidden and the cell state before the text, each (layers, batch, units), empty for
        the initial ones; those after the text replace them. layers: a list to append the token rows and the result
        to. Raises UsageError for a mask.
        """
        if mask is not None:
            raise UsageError("an LSTM was given an attention mask", expected="none: it reads from left to right")
        rows = x = self.token_rows(ids, embeddings)  # (batch, time, width)
        if self.config.embedding_dropout == "sum":
            x = self.embedding_dropout(x)
        before = (state[0], state[1]) if state else None
        x, after = self.recur(self.recurrence, x.to(self.projection.weight.dtype), before)  # (batch, time, units)
        if state is not None:
            state[:] = after
        projected: Tensor = self.projection(self.hidden_dropout(x)).float()
        if layers is not None:
            layers += [rows.float(), projected]
        return projected
