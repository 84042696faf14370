"""Numbers, sizes, durations and untrusted text as a person reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Control characters, and those that reorder or hide text on a terminal. Tab and newline are among them.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    """Escape control characters except those in `keep`, so that text from a file cannot control the terminal."""
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else ascii(m[0])[1:-1], text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 token`, `12,000 tokens`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def counted_examples(count: int, details: Mapping[str, Any]) -> str:
    """Return the number of a score's examples, and of how many if a limit left out some: `200 of 5,153 examples`.

    details: of the score in `results.json`, whose `first` and `available` say so.
    """
    if "available" not in details:
        return counted(count, "example")
    first, available = details["first"], details["available"]
    if count == first:
        return f"{count:,} of {available:,} examples"
    return f"{counted(count, 'example')}, from the first {first:,} of {available:,}"


def duration(seconds: float) -> str:
    """Return `0.4 s`, `38 s`, `3 min 05 s` or `2 h 10 min`; a dash for infinity or NaN."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def byte_size(count: float) -> str:
    """Return `37 B`, `4.2 kB`, `420.0 MB` or `1.60 GB`."""
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1)):
        if round(count, digits) < 1000:
            return f"{count:,.{digits}f} {unit}"
        count /= 1000
    return f"{count:,.2f} GB"
