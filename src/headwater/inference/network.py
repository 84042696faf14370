"""The Transformer's forward pass over a flat list of tokens, for inference.

The same equations as `model.transformer` (GPT-1 section 3.1, equation 2; GPT-2 section 2.3), laid out for
text that was not padded: every token of every request is one row, the matrix products run over all rows
at once, and attention, the only part where tokens meet, is left to the caller, who knows which rows belong
together. `Scorer` and `Engine` are the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import UsageError
from headwater.inference.matrices import Matrix, Precision, arrange, arrange_linear
from headwater.model.transformer import Block, Embeddings, Transformer

# (layer, query, key, value), each (rows, head, head_dim) -> (rows, head, head_dim).
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class Network:
    """A Transformer's weights at one precision, and its forward pass over rows of tokens.

    Residual stream and norms are float32 whatever the precision; keys, values and attention have `dtype`.
    """

    def __init__(self, model: Transformer, precision: Precision | None = None) -> None:
        if not isinstance(model, Transformer):
            raise UsageError(f"a model of class {type(model).__name__} was given", expected="a Transformer")
        self.config, self.device = model.config, model.tokens.weight.device
        self.precision = precision or ("bf16" if model.tokens.weight.dtype == torch.bfloat16 else "fp32")
        self.dtype = torch.float32 if self.precision == "fp32" else torch.bfloat16
        embeddings = Embeddings(
            model.tokens.weight.detach().to(self.dtype), model.positions.weight.detach().to(self.dtype)
        )
        self.tokens, self.positions = embeddings
        self.output = arrange(model.output_matrix(embeddings), None, self.precision)
        self.layers = [Layer(block, self.precision) for block in model.blocks if isinstance(block, Block)]
        final = model.final_norm
        self.final_norm = Norm(final) if isinstance(final, nn.LayerNorm) else None

    def matrices(self) -> Iterator[tuple[Matrix, int]]:
        """One matrix of each shape that occurs, with the width of its input."""
        layer, width = self.layers[0], self.config.width
        yield layer.query_key_value, width
        yield layer.projection, width
        yield layer.expand, width
        yield layer.contract, 4 * width
        yield self.output, width

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """h_0 = U W_e + W_p: (rows,) int64 each -> (rows, width) float32."""
        return (
            functional.embedding(ids, self.tokens).float()
            + functional.embedding(positions, self.positions).float()
        )

    @torch.no_grad()
    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend, keep: Tensor | None = None) -> Tensor:
        """The last block's output after the final norm, in float32.

        ids, positions: (rows,) int64. keep: (kept,) int64, the rows whose output is wanted: what only the
        other rows need of the last block is not computed. Returns (kept or rows, width).
        """
        x = self.embed(ids, positions)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x, index, attend, self, keep if index == last else None)
        return x if self.final_norm is None else self.final_norm(x)

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, width) -> (rows, rows of the output matrix) float32."""
        return self.output(hidden).float()


class Norm:
    """LayerNorm in float32, whatever the model keeps its parameters in."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.shape, self.epsilon = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.detach().float(), norm.bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, width) float32 -> the same."""
        return functional.layer_norm(x, self.shape, self.weight, self.bias, self.epsilon)


class Layer:
    """One block: its matrices arranged for inference, its norms as they are."""

    def __init__(self, block: Block, precision: Precision) -> None:
        self.pre_norm = block.pre_norm
        self.norm_1, self.norm_2 = Norm(block.norm_1), Norm(block.norm_2)
        self.query_key_value = arrange_linear(block.attention.query_key_value, precision)
        self.projection = arrange_linear(block.attention.projection, precision)
        self.expand = arrange_linear(block.mlp.expand, precision)
        self.contract = arrange_linear(block.mlp.contract, precision)

    def __call__(self, x: Tensor, index: int, attend: Attend, network: Network, keep: Tensor | None) -> Tensor:
        """(rows, width) -> (rows, width), or (kept, width)."""
        rows, width = x.shape
        fused = self.query_key_value(self.norm_1(x) if self.pre_norm else x).to(network.dtype)
        query, key, value = fused.view(rows, 3, network.config.heads, -1).unbind(1)
        attended = attend(index, query, key, value).reshape(rows, width)
        if keep is not None:
            x, attended = x[keep], attended[keep]
        x = x + self.projection(attended)
        if not self.pre_norm:
            x = self.norm_1(x)
        inner = self.expand(self.norm_2(x) if self.pre_norm else x)
        x = x + self.contract(functional.gelu(inner, approximate="tanh"))
        return x if self.pre_norm else self.norm_2(x)


def require_ids(ids: list[int], vocabulary: int) -> None:
    """Raise UsageError for the first id that is no row of the model."""
    for position, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"token id {token} at position {position} is out of range", expected=f"0 to {vocabulary - 1}"
            )
