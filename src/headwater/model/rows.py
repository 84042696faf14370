"""More vocabulary rows for a model that was trained with fewer.

GPT-1's start, delimiter and extract tokens are such rows: fine-tuning appends them, drawn as all weights were
(Radford et al. 2018, section 3.3 and the original code).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from headwater.model.config import ModelConfig


class Extensible:
    """A model whose vocabulary can grow."""

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
