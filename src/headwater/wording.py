"""How numbers are said in messages and on pages: what is counted, and how long something takes."""

from __future__ import annotations

import math


def counted(number: int, what: str) -> str:
    """`1 token`, `12,000 tokens`: a number and what is counted."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """`0.4 s`, `38 s`, `3 min 05 s`, `2 h 10 min`; a dash where it is no number."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
