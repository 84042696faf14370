"""The task model that ELMo's features are used in (`frozen`).

For one text: a bi-LSTM with max-pooling over its positions. For two texts, as ESIM (Chen et al. 2017, section 3):
one bi-LSTM reads both, each position is compared with the other text's aligned vector, a second bi-LSTM reads the
comparison, and its mean and maximum go through one layer. ESIM's layers are 300 wide; here they are a quarter of
the base's width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.model import Linear
from headwater_papers.relatives.bilstm import reversal
from headwater_papers.relatives.lstm import Recurrent


class BothWays(nn.Module):
    """A bi-LSTM that skips padding both ways: (sequences, time, width) -> (sequences, time, 2 · units) float32."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(width, units, batch_first=True)
        self.backwards = nn.LSTM(width, units, batch_first=True)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """inside: (sequences, time) bool, the positions that are not padding."""
        x = x.to(self.forwards.get_parameter("weight_ih_l0").dtype)
        back = reversal(inside, inside.sum(dim=1))[:, :, None]
        forwards, _ = Recurrent.recur(self.forwards, x)
        backwards, _ = Recurrent.recur(self.backwards, x.gather(1, back.expand_as(x)))
        return torch.cat([forwards, backwards.gather(1, back.expand_as(backwards))], dim=2).float()


class RecurrentReader(nn.Module):
    """A bi-LSTM over one text, or ESIM over two."""

    def __init__(self, width: int, texts: int, generator: torch.Generator) -> None:
        super().__init__()
        units = max(1, width // 4)
        self.features = 2 * units if texts == 1 else units
        with torch.device("meta"):  # does not use torch's global generator
            self.encoder = BothWays(width, units)
            if texts == 2:
                self.comparison = Linear(8 * units, units)
                self.composition = BothWays(units, units)
                self.last = Linear(8 * units, units)
        self.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in self.parameters():
                bound = parameter.shape[-1] ** -0.5
                if parameter.dim() < 2:
                    nn.init.zeros_(parameter)
                else:
                    parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, texts: list[tuple[Tensor, Tensor]], extract: Tensor) -> Tensor:
        """Return (sequences, features). texts: (x, inside) of each, (sequences, time, width) and (…, time) bool.

        extract: the hidden states of the extract tokens, (sequences, width), which are not read.
        """
        read = [self.encoder(text, inside) for text, inside in texts]  # each (sequences, time, 2 · units)
        if len(read) == 1:
            return _pool(read[0], texts[0][1])[:, self.features :]  # the maximum
        (a, b), (in_a, in_b) = read, (inside for _, inside in texts)
        scores = a @ b.transpose(1, 2)  # (sequences, time of a, time of b)
        pairs = ((a, in_a, _aligned(scores, in_b, b)), (b, in_b, _aligned(scores.transpose(1, 2), in_a, a)))
        pooled = []
        for own, inside, other in pairs:
            compared = torch.cat([own, other, own - other, own * other], dim=2)  # (sequences, time, 8 · units)
            composed = self.composition(functional.relu(self.comparison(compared)), inside)
            pooled.append(_pool(composed, inside))
        return torch.tanh(self.last(torch.cat(pooled, dim=1)).float())


def _pool(x: Tensor, inside: Tensor) -> Tensor:
    """Return mean and maximum over the positions `inside`, (sequences, 2 · width); 0 if there are none."""
    chosen = inside[:, :, None]
    mean = (x * chosen).sum(dim=1) / chosen.sum(dim=1).clamp(min=1)
    maximum = x.masked_fill(~chosen, float("-inf")).amax(dim=1)
    return torch.cat([mean, maximum.masked_fill(~inside.any(dim=1)[:, None], 0.0)], dim=1)


def _aligned(scores: Tensor, inside: Tensor, other: Tensor) -> Tensor:
    """Return, for each position, the other text's positions averaged by their scores (ESIM, equations 12, 13).

    It is 0 where the other text has no position.
    """
    outside = ~inside[:, None, :]
    return scores.masked_fill(outside, -1e9).softmax(dim=2).masked_fill(outside, 0.0) @ other
