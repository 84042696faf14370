"""Warnings of problems in a run: a spike, or a loss that no longer falls.

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
# A stall: over this share of the run the loss has not fallen by this many nats.
STALL_SHARE = 0.2
STALL_NATS = 1e-3
_RECENT = 50

# What to check where training goes wrong.
SUSPECTS = (
    "Check, in this order: the learning rate (halve it, or increase warmup_steps), the batch (too few tokens per "
    "update), the precision (--set precision=fp32), and the data"
)


class Watch:
    """Watches the losses of a run; call each method once per update."""

    def __init__(self, steps: int) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._window = max(200, int(steps * STALL_SHARE))
        self._latest: deque[float] = deque()
        self._before: deque[float] = deque(maxlen=self._window)
        self._stalled = False

    def resume(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take the losses of a resumed run's earlier updates, the lines of its journal."""
        for line in lines:
            if isinstance(loss := line.get("loss"), float):
                self.spike(line["step"], loss)
                self.stall(line["step"], loss)

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

    def stall(self, step: int, loss: float) -> str | None:
        """Return a warning, once, if the loss has not fallen for long."""
        if self._stalled:
            return None
        self._latest.append(loss)
        if len(self._latest) > self._window:
            self._before.append(self._latest.popleft())
        if len(self._before) < self._window or step % max(1, self._window // 100):  # each check sums all of them
            return None
        if (sum(self._before) - sum(self._latest)) / self._window > STALL_NATS:
            return None
        self._stalled = True
        return f"The loss has not fallen over the last {self._window:,} updates (to step {step}). {SUSPECTS}."
