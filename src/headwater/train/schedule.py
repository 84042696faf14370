"""The learning rate over the updates, as a factor of its peak.

"cosine", "linear" and "constant" are the usual ones: a linear ramp over `warmup_steps`, then from the peak to
`final_rate` times the peak. "wsd" (warm-up, stable, decay; Hu et al. 2024, MiniCPM, section 4) stays at the peak
and falls linearly over the last fifth of the updates. "gpt1-cosine" and "gpt1-linear" are GPT-1's (section 4.1;
its code's `warmup_cosine` and `warmup_linear`): functions of the share x of all updates, including the ramp, so
that the curve is below the peak when the warm-up ends, and the last update has rate 0.
"""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "linear", "constant", "wsd", "gpt1-cosine", "gpt1-linear"]

DECAY_SHARE = 0.2  # of the updates, at the end of "wsd"

# GPT-1's rate of fine-tuning, the width of its model, and the exponent for narrower ones.
PAPER_RATE, PAPER_WIDTH, RATE_POWER = 6.25e-5, 768, 1.5


def transfer_rate(width: int) -> float:
    """Return the peak learning rate for a trained model of this width: 6.25e-5 · (768 / width)^1.5.

    At GPT-1's width that is the paper's rate of fine-tuning (Radford et al. 2018, section 4.1).
    """
    return float(f"{PAPER_RATE * (PAPER_WIDTH / width) ** RATE_POWER:.3g}")


def learning_rate_factor(
    schedule: Schedule, update: int, steps: int, warmup_steps: float, final_rate: float = 0.0
) -> float:
    """Return the factor of the peak rate for update `update` (from 0) of `steps`.

    `warmup_steps` may be less than 1, as GPT-1's 0.2 % of a short fine-tuning.
    """
    if schedule.startswith("gpt1-"):
        x, warmup = (update + 1) / steps, warmup_steps / steps
        ramp = x / warmup if x <= warmup else 1.0
        if schedule == "gpt1-linear":
            return ramp * (1 - x)
        return ramp if x <= warmup else 0.5 * (1 + math.cos(math.pi * x))
    if update < warmup_steps:
        return min(1.0, (update + 1) / warmup_steps)
    if schedule == "constant":
        return 1.0
    if schedule == "wsd":
        warmup_steps = max(warmup_steps, (1 - DECAY_SHARE) * steps)
    progress = min(1.0, max(0.0, update - warmup_steps) / max(1.0, steps - warmup_steps))
    falling = 0.5 * (1 + math.cos(math.pi * progress)) if schedule == "cosine" else 1 - progress
    return final_rate + (1 - final_rate) * falling
