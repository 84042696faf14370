"""Task models: they turn a frozen base's mixture of layers into the vector that the linear layer classifies.

`PoolingReader` has no weights. For one text it returns mean, maximum and the extract position; for two texts u and
v it returns [u, v, |u − v|, u · v] and the extract position, where u and v are a mean and a maximum each.

`RecurrentReader` is the kind of model that ELMo's features were used in. For one text: a bi-LSTM with max-pooling
over its positions. For two texts, as ESIM (Chen et al. 2017, section 3): one bi-LSTM reads both, each position is
compared with the other text's aligned vector, a second bi-LSTM reads the comparison, and its mean and maximum go
through one layer. ESIM's layers are 300 wide; here they are a quarter of the base's width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.model import Linear, Recurrent

TaskModelName = Literal["pooling", "lstm"]


class PoolingReader(nn.Module):
    """Mean, maximum and extract position."""

    def __init__(self, width: int, texts: int) -> None:
        super().__init__()
        self.features = (3 if texts == 1 else 9) * width

    def forward(self, x: Tensor, spans: list[tuple[Tensor, Tensor]], extract: Tensor) -> Tensor:
        """(sequences, time, width), the spans of the texts, (sequences, width) -> (sequences, features)."""
        pooled = [_mean_and_maximum(*take(x, *span)) for span in spans]
        if len(pooled) == 1:
            return torch.cat([*pooled, extract], dim=1)
        u, v = pooled
        return torch.cat([u, v, (u - v).abs(), u * v, extract], dim=1)


class BothWays(nn.Module):
    """A bi-LSTM that skips padding both ways: (sequences, time, width) -> (sequences, time, 2 · units) float32."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(width, units, batch_first=True)
        self.backwards = nn.LSTM(width, units, batch_first=True)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """inside: (sequences, time) bool, the positions that are not padding."""
        x = x.to(self.forwards.get_parameter("weight_ih_l0").dtype)
        back = Recurrent.reversal(inside, inside.sum(dim=1))[:, :, None]
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

    def forward(self, x: Tensor, spans: list[tuple[Tensor, Tensor]], extract: Tensor) -> Tensor:
        """As `PoolingReader.forward`, without the extract position."""
        taken = [take(x, *span) for span in spans]
        read = [self.encoder(text, inside) for text, inside in taken]  # each (sequences, time, 2 · units)
        if len(read) == 1:
            return _maximum(read[0], taken[0][1])
        (a, b), (in_a, in_b) = read, (inside for _, inside in taken)
        scores = a @ b.transpose(1, 2)  # (sequences, time of a, time of b)
        pairs = ((a, in_a, _aligned(scores, in_b, b)), (b, in_b, _aligned(scores.transpose(1, 2), in_a, a)))
        pooled = []
        for own, inside, other in pairs:
            compared = torch.cat([own, other, own - other, own * other], dim=2)  # (sequences, time, 8 · units)
            composed = self.composition(functional.relu(self.comparison(compared)), inside)
            pooled.append(_mean_and_maximum(composed, inside))
        return torch.tanh(self.last(torch.cat(pooled, dim=1)).float())


def take(x: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Shift a span of each sequence to its beginning: (sequences, time, width), as before.

    start, end: (sequences,) int64. Also returns which positions are inside the span, (sequences, time) bool.
    `time` stays that of `x`: reading the length of the longest span would make the host wait for a GPU.
    """
    lengths = end - start
    positions = torch.arange(x.shape[1], device=x.device)
    chosen = (start[:, None] + positions).clamp(max=x.shape[1] - 1)
    return x.gather(1, chosen[:, :, None].expand(-1, -1, x.shape[2])), positions < lengths[:, None]


def _aligned(scores: Tensor, inside: Tensor, other: Tensor) -> Tensor:
    """Return, for each position, the other text's positions averaged by their scores (ESIM, equations 12, 13).

    It is 0 where the other text has no position.
    """
    outside = ~inside[:, None, :]
    return scores.masked_fill(outside, -1e9).softmax(dim=2).masked_fill(outside, 0.0) @ other


def _mean_and_maximum(x: Tensor, inside: Tensor) -> Tensor:
    """Pool over positions `inside`, 0 if there are none: (sequences, time, width) -> (sequences, 2 · width)."""
    chosen = inside[:, :, None]
    mean = (x * chosen).sum(dim=1) / chosen.sum(dim=1).clamp(min=1)
    return torch.cat([mean, _maximum(x, inside)], dim=1)


def _maximum(x: Tensor, inside: Tensor) -> Tensor:
    maximum = x.masked_fill(~inside[:, :, None], float("-inf")).amax(dim=1)
    return maximum.masked_fill(~inside.any(dim=1)[:, None], 0.0)
