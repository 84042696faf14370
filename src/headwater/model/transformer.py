"""The Transformer of GPT-1, GPT-2 and BERT, to be read next to the papers.

GPT-1 (Radford et al. 2018) section 3.1, equation 2:  h_0 = U W_e + W_p;  h_l = block(h_{l-1});
P(u) = softmax(h_n W_eᵀ). GPT-2 (Radford et al. 2019) section 2.3 moves LayerNorm to the input of each
sub-block, adds one after the last block, and scales the residual projections by 1/√N at the start. BERT (Devlin
et al. 2019) lets every position see every other; its released models add segment rows, a LayerNorm after the
embeddings and a transform before the output. All of that is data in `ModelConfig`.

Precision: the matrices, and so their matmuls, may be bfloat16; LayerNorm, the residual stream and the logits are
float32.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import DataError
from headwater.model.backend import TORCH, Backend, default_backend
from headwater.model.config import ModelConfig
from headwater.model.loss import project


class Embeddings(NamedTuple):
    """The embedding matrices of one step, perhaps with dropped entries."""

    tokens: Tensor  # (vocabulary, width)
    positions: Tensor  # (context, width)


def token_rows(model: Any, ids: Tensor, embeddings: Embeddings | None) -> Tensor:
    """Return the token matrix's rows: (…) int64 -> (…, width).

    Without `embeddings` nothing else reads the matrix of this step, so entries are dropped from the rows of these
    tokens alone; a matrix has some hundred times as many.
    """
    drops = model.training and model.config.embedding_dropout == "matrix"
    if embeddings is not None or not drops or ids.device.type != "cpu":  # a device would wait for `unique`
        return functional.embedding(ids, (embeddings or model.embeddings()).tokens)
    used, indices = ids.unique(return_inverse=True)
    return functional.embedding(indices, model.embedding_dropout(functional.embedding(used, model.tokens.weight)))


class Embedding(nn.Embedding):
    """A table of rows, not initialised: weights come from `initialise` or from a file."""

    def reset_parameters(self) -> None:
        """Do nothing: torch's initialisation would take most of the time of opening a model."""


class Linear(nn.Linear):
    """y = x Wᵀ + b, computed in the dtype of W. Not initialised, as `Embedding`."""

    backend = TORCH

    def reset_parameters(self) -> None:
        """Do nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) -> (…, out)."""
        dtype = self.weight.dtype
        return self.backend.linear(x.to(dtype), self.weight, self.bias.to(dtype))


class LayerNorm(nn.LayerNorm):
    """Mean 0 and variance 1 over the width, then a gain and a bias (Ba et al. 2016)."""

    backend = TORCH

    def forward(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(…, width) float32 -> the same in `dtype`."""
        return self.backend.norm(x, self.weight, self.bias, self.eps, dtype)


class Attention(nn.Module):
    """Masked multi-head self-attention with one fused projection to queries, keys and values."""

    backend = TORCH

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.factor = config.attention_factor(layer)
        self.heads, self.dropout = config.heads, config.dropouts[1]
        self.causal = config.attention == "causal"
        self.query_key_value = Linear(config.width, 3 * config.width)
        self.projection = Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, time, width) -> (batch, time, width)."""
        batch, time, width = x.shape
        fused = self.query_key_value(x)  # (batch, time, 3 · width)
        fused = fused.view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = fused.permute(2, 0, 3, 1, 4)  # each (batch, head, time, head_dim)
        if self.factor != 1:
            query = query * self.factor
        dropout = self.dropout if self.training else 0.0
        attended = self.backend.attend(query, key, value, mask, dropout, self.causal)
        return self.projection(attended.transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    """Two linear maps, four times as wide inside, with GELU between them (Hendrycks and Gimpel 2016).

    Others' models have other widths and activations.
    """

    backend = TORCH

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.expand = Linear(config.width, config.mlp_width)
        self.contract = Linear(config.mlp_width, config.width)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, time, width)."""
        return self.contract(self.backend.activate(self.expand(x), self.activation))


class Block(nn.Module):
    """Attention and MLP, each with a residual connection; LayerNorm before (GPT-2) or after (GPT-1) each."""

    backend = TORCH

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.norm_1 = LayerNorm(config.width, config.norm_epsilon)
        self.attention = Attention(config, layer)
        self.norm_2 = LayerNorm(config.width, config.norm_epsilon)
        self.mlp = MLP(config)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, time, width) -> (batch, time, width), the residual stream."""
        if self.pre_norm:
            dtype = self.mlp.expand.weight.dtype
            x = self.backend.add(x, self.residual_dropout(self.attention(self.norm_1(x, dtype), mask)))
            return self.backend.add(x, self.residual_dropout(self.mlp(self.norm_2(x, dtype))))
        x = self.norm_1(self.backend.add(x, self.residual_dropout(self.attention(x, mask))))
        return self.norm_2(self.backend.add(x, self.residual_dropout(self.mlp(x))))


class OutputTransform(nn.Module):
    """BERT's layers before the tied projection: a linear map, GELU, LayerNorm; and the bias after it."""

    backend = TORCH

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = Linear(config.width, config.width)
        self.norm = LayerNorm(config.width, config.norm_epsilon)
        self.bias = nn.Parameter(torch.empty(config.vocabulary))
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> (…, width)."""
        return self.norm(self.backend.activate(self.dense(x), self.activation).float())


class Extensible:
    """A model whose vocabulary can grow.

    GPT-1's start, delimiter and extract tokens are such rows: fine-tuning appends them, drawn as all weights were
    (Radford et al. 2018, section 3.3 and the original code).
    """

    config: ModelConfig
    tokens: nn.Embedding

    @torch.no_grad()
    def add_rows(self, count: int, *, seed: int) -> None:
        """Append `count` vocabulary rows, N(0, init_deviation²).

        Parameters are replaced: make the optimizer afterwards.
        """
        if count == 0:
            return
        old = self.tokens.weight
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.empty(count, old.shape[1]).normal_(std=self.config.init_deviation, generator=generator)
        weight = torch.cat([old, drawn.to(device=old.device, dtype=old.dtype)])
        self.tokens.weight = nn.Parameter(weight, requires_grad=old.requires_grad)
        self.tokens.num_embeddings = len(weight)
        output = getattr(self, "output", None)
        if output is not None:
            more = torch.cat([output.weight, drawn.to(output.weight)])
            output.weight = nn.Parameter(more, requires_grad=output.weight.requires_grad)
            output.num_embeddings = len(more)
        transform = getattr(self, "output_transform", None)
        if transform is not None:
            bias = transform.bias
            transform.bias = nn.Parameter(torch.cat([bias, bias.new_zeros(count)]), bias.requires_grad)
        self.config = self.config.model_copy(update={"vocabulary": len(weight)})


class Transformer(Extensible, nn.Module):
    """Token and position embeddings, blocks, and the projection to the vocabulary, tied in GPT and BERT.

    `backend` computes the operations of all parts; `Backend.assign_to` changes it.
    """

    backend: Backend

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = Embedding(config.vocabulary, config.width)
        self.positions = Embedding(config.context, config.width)
        self.segments = Embedding(config.segments, config.width) if config.segments else None
        self.embedding_norm = (
            LayerNorm(config.width, config.norm_epsilon) if config.embedding_norm else nn.Identity()
        )
        self.embedding_dropout = nn.Dropout(config.dropouts[0])
        self.blocks = nn.ModuleList([Block(config, layer) for layer in range(config.layers)])
        self.final_norm = LayerNorm(config.width, config.norm_epsilon) if config.final_norm else nn.Identity()
        self.output = None if config.tied else Embedding(config.vocabulary, config.width)
        self.output_transform = OutputTransform(config) if config.output_transform else None
        self.backend = default_backend()
        self.backend.assign_to(self)

    def forward(self, ids: Tensor) -> Tensor:
        """Next-token logits: (batch, time) int64 -> (batch, time, vocabulary) float32."""
        embeddings = self.embeddings()
        return self.logits(self.hidden(ids, embeddings=embeddings), embeddings)

    def embeddings(self) -> Embeddings:
        """Return the matrices of this step; dropout of their entries is GPT-1's code's."""
        return Embeddings(self._dropped(self.tokens.weight), self._dropped(self.positions.weight))

    def _dropped(self, matrix: Tensor) -> Tensor:
        return self.embedding_dropout(matrix) if self.config.embedding_dropout == "matrix" else matrix

    def hidden(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        embeddings: Embeddings | None = None,
        segments: Tensor | None = None,
        layers: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the last block's output, after the final norm if there is one: the input of heads.

        ids: (batch, time) int64. mask: see `attend`; a padded batch of a model with full attention needs
        `padding_mask`. segments: (batch, time) int64, the sentence of each position, None for the first. layers:
        a list to append h_0 … h_n to. Returns (batch, time, width) float32. Raises DataError if the text is longer
        than the context.
        """
        time = ids.shape[1]
        if time > self.config.context:
            raise DataError(
                f"{time} tokens are longer than the model's context", expected=f"at most {self.config.context}"
            )
        positions = embeddings.positions if embeddings else self._dropped(self.positions.weight)
        x = token_rows(self, ids, embeddings).float() + positions[:time].float()
        if self.segments is not None:
            rows = self.segments.weight.float()
            x = x + (rows[0] if segments is None else functional.embedding(segments, rows))
        x = self.embedding_norm(x)
        if self.config.embedding_dropout == "sum":
            x = self.embedding_dropout(x)
        for block in self.blocks:
            if layers is not None:
                layers.append(x)
            x = block(x, mask)
        final: Tensor = self.final_norm(x)
        if layers is not None:
            layers.append(final)
        return final

    def output_matrix(self, embeddings: Embeddings | None = None) -> Tensor:
        """Return the rows of the softmax: (rows, width).

        With `softmax_rows = "all"` these are the vocabulary and the positions during training. Positions are never
        a target, so outside training these are the vocabulary.
        """
        if self.output is not None:
            return self.output.weight
        tokens, positions = embeddings or self.embeddings()
        if self.config.softmax_rows == "vocabulary" or not self.training:
            return tokens
        return torch.cat([tokens, positions])

    def logits(self, hidden: Tensor, embeddings: Embeddings | None = None) -> Tensor:
        """(…, width) -> (…, rows of the output matrix) float32."""
        matrix = self.output_matrix(embeddings)
        if self.output_transform is None:
            return project(hidden, matrix)
        return project(self.output_transform(hidden), matrix) + self.output_transform.bias.float()

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw all weights from the seed: N(0, deviation²), biases 0, norms 1 and 0 (GPT-1 section 4.1).

        Residual projections are divided by √N with N residual layers, two per block (GPT-2 section 2.3).
        """
        generator = torch.Generator().manual_seed(seed)
        scale = 1 / math.sqrt(2 * self.config.layers) if self.config.residual_scaling else 1.0
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.ones_(parameter)
                continue
            deviation = self.config.init_deviation
            if name == "positions.weight":
                deviation = self.config.position_deviation
            elif name.endswith(("attention.projection.weight", "mlp.contract.weight")):
                deviation *= scale
            # Drawn on the CPU, so that a seed gives the same weights on every device.
            parameter.copy_(torch.empty(parameter.shape).normal_(std=deviation, generator=generator))
