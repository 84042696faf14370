"""Warnings of a spike in a run's loss.

(`Trainer.update` raises an error for a loss that is not finite, before it changes the weights.)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

# A spike: this many standard deviations above the recent mean, and at least this much above it in nats.
SPIKE_DEVIATIONS = 6.0
SPIKE_NATS = 0.5
_RECENT = 50

# What to check where training goes wrong.
SUSPECTS = (
    "Check, in this order: the learning rate (halve it, or increase warmup_steps), the batch (too few tokens per "
    "update), the precision (--set precision=fp32), and the data"
)


class Watch:
    """Watches the losses of a run; call `spike` once per update."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def resume(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take the losses of a resumed run's earlier updates, the lines of its journal."""
        for line in lines:
            if isinstance(loss := line.get("loss"), float):
                self.spike(line["step"], loss)

    def spike(self, step: int, loss: float) -> str | None:
        """Return a warning if this loss is far above the recent ones."""
        recent = list(self._recent)
        self._recent.append(loss)
        if len(recent) < _RECENT:
            return None
        mean = sum(recent) / len(recent)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in recent) / len(recent))
        if loss < mean + max(SPIKE_NATS, SPIKE_DEVIATIONS * deviation):
            return None
        return f"The loss jumped to {loss:.3f} at step {step} (recent mean {mean:.3f}). {SUSPECTS}."
