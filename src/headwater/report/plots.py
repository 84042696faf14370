"""Draw lines as inline SVG in a page.

Inline SVG follows the page's colours, light or dark, and its width, and needs no dependency. Each plot has two
widths, and the style sheet shows one: scaled down to a phone, the numbers of one drawing would be too small.
Colours are style-sheet classes. Texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

import numpy as np

Point = tuple[float, float]

# Width, height, and the space for the axes' numbers.
_SIZES = {"wide": (760, 300), "narrow": (360, 260)}
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 40
_MOST_POINTS = 240
_FEWEST_OF_A_LINE = 2  # so few measurements are points: a line would claim what lies between them


@dataclass(frozen=True)
class Series:
    """One line: its name in the legend, its points in order of x, and whether each point is marked."""

    name: str
    points: Sequence[Point]
    marked: bool = False


def line_chart(series: Sequence[Series], x_label: str, y_label: str) -> str:
    """Draw lines over common axes, as two <svg> elements of class "wide" and "narrow"; "" without points."""
    drawn = [Series(s.name, points, s.marked) for s in series if (points := thin(s.points))]
    if not drawn:
        return ""
    return "".join(_chart(drawn, x_label, y_label, name, *size) for name, size in _SIZES.items())


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers in [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def short_number(value: float) -> str:
    """Format a number for an axis: `0.25`, `12`, `3.5k`, `20M`."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def thin(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Average neighbouring points to at most `most`; skip points that are not finite."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    size = math.ceil(len(finite) / most) or 1
    groups = [finite[start : start + size] for start in range(0, len(finite), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]


def _chart(series: Sequence[Series], x_label: str, y_label: str, name: str, width: int, height: int) -> str:
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points]
    x_span = (min(0.0, *xs), max(xs) or 1.0)
    margin = (max(ys) - min(ys)) * 0.05 or 1.0
    y_span = (min(ys) - margin, max(ys) + margin)
    x = partial(np.interp, xp=x_span, fp=(_LEFT, width - _RIGHT))
    y = partial(np.interp, xp=y_span, fp=(height - _BOTTOM, _TOP))
    parts = []
    for tick in ticks(*y_span, 5) if max(ys) > min(ys) else ys[:1]:
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at}" dy=".32em" text-anchor="end">{short_number(tick)}</text>')
    for tick in ticks(*x_span, 6 if width > 500 else 4):
        parts.append(
            f'<text x="{x(tick):.1f}" y="{height - _BOTTOM + 18}" text-anchor="middle">{short_number(tick)}</text>'
        )
    parts.append(
        f'<text class="label" x="{width - _RIGHT}" y="{height - 4}" text-anchor="end">{escape(x_label)}</text>'
    )
    for number, line in enumerate(series):
        drawn = [(f"{x(px):.1f}", f"{y(py):.1f}") for px, py in line.points]
        path = " ".join(f"{px},{py}" for px, py in drawn)
        if len(drawn) > _FEWEST_OF_A_LINE:
            parts.append(f'<polyline class="series s{number % 6}" points="{path}"/>')
        if line.marked or len(drawn) <= _FEWEST_OF_A_LINE:
            parts += [f'<circle class="point s{number % 6}" cx="{px}" cy="{py}" r="3"/>' for px, py in drawn]
    title = f"{y_label} over {x_label}: " + "; ".join(
        f"{s.name} from {s.points[0][1]:.3g} to {s.points[-1][1]:.3g}" for s in series
    )
    return (
        f'<svg class="chart {name}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
