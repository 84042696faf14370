"""The learning rate over the updates, as a factor of its peak.

"cosine", "linear" and "constant" are the usual ones: a linear ramp over `warmup_steps`, then from the peak to
`final_rate` times the peak. "wsd" (warm-up, stable, decay; Hu et al. 2024, MiniCPM, section 4) stays at the peak
and falls linearly over the last fifth of the updates. "gpt1-cosine" and "gpt1-linear" are GPT-1's (section 4.1;
its code's `warmup_cosine` and `warmup_linear`): functions of the share x of all updates, including the ramp, so
that the curve is below the peak when the warm-up ends, and the last update has rate 0. A run of one
update has the rate of the first update of a run of two.
"""

from __future__ import annotations

import math
from typing import Literal

from headwater.model import PAPER_RATE

Schedule = Literal["cosine", "linear", "constant", "wsd", "gpt1-cosine", "gpt1-linear"]

WITHOUT_FINAL_RATE: tuple[Schedule, ...] = ("constant", "gpt1-cosine", "gpt1-linear")
_DECAY_SHARE = 0.2  # the share of the updates in which the schedule "wsd" lowers the rate, at its end

# GPT-1's width; the rate chosen here for a width of 320; the highest rate.
PAPER_WIDTH = 768
MINI_RATE, MINI_WIDTH = 7e-4, 320
HIGHEST_RATE = 1.5e-3
_NARROWER = math.log(MINI_RATE / PAPER_RATE) / math.log(PAPER_WIDTH / MINI_WIDTH)  # 2.8
_WIDER = 1.5


def transfer_rate(width: int) -> float:
    """Return the peak rate at which a model of this width is trained further, which its folder gets.

    At GPT-1's width it is the paper's rate of fine-tuning, 6.25e-5 (Radford et al. 2018, section 4.1), and falls
    with width^1.5 above. Below, it is a power of the width, with 7e-4 at 320, and at most 1.5e-3.
    docs/models.md compares 7e-4 with other rates, for 200 and for 2,000 rows. At widths of 64, 128 and 192, three
    epochs of 2,000 rows of SST-2 and SNLI at 1.5e-3 came within 1.3 points of the best of 1.5e-3, 4e-3 and 1e-2.
    """
    power = _NARROWER if width < PAPER_WIDTH else _WIDER
    return min(HIGHEST_RATE, float(f"{PAPER_RATE * (PAPER_WIDTH / width) ** power:.3g}"))


def learning_rate_factor(
    schedule: Schedule, update: int, steps: int, warmup_steps: float, final_rate: float = 0.0
) -> float:
    """Return the factor of the peak rate for update `update` (from 0) of `steps`.

    `warmup_steps` may be less than 1, as GPT-1's 0.2 % of a short fine-tuning.
    """
    if schedule.startswith("gpt1-"):
        steps = max(2, steps)
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
        warmup_steps = max(warmup_steps, (1 - _DECAY_SHARE) * steps)
    progress = min(1.0, max(0.0, update - warmup_steps) / max(1.0, steps - warmup_steps))
    falling = 0.5 * (1 + math.cos(math.pi * progress)) if schedule == "cosine" else 1 - progress
    return final_rate + (1 - final_rate) * falling
