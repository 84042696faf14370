"""Figures by matplotlib, and the two common forms of the papers': curves with bands, and bars in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater_papers.statistics import Estimate, over_seeds

# Draws into an empty matplotlib Figure.
Draw = Callable[[Any], None]
# One value a seed for each x.
Curve = Mapping[int, Sequence[float]]
# Colours that differ in print and for colour-blind readers (Okabe and Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_FADED = 0.2


def save_plot(draw: Draw, path: Path, suffixes: Sequence[str] = (".svg",)) -> None:
    """Draw a figure by matplotlib and write it once for each suffix; the same numbers give the same files."""
    import matplotlib.figure

    style: Any = {"svg.hashsalt": "headwater", "svg.fonttype": "none", "legend.frameon": False}
    with matplotlib.rc_context(style | {"axes.spines.top": False, "axes.spines.right": False}):
        figure = matplotlib.figure.Figure(figsize=(6.4, 4.0), layout="constrained")
        draw(figure)
        for suffix in suffixes:
            changing = "Software" if suffix == ".png" else "Date"
            figure.savefig(path.with_suffix(suffix), dpi=150, metadata={changing: None})


def bands(
    figure: Any,
    curves: Mapping[str, Curve],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    dashed: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
    references: Mapping[str, float] | None = None,
    axes: Any = None,
) -> None:
    """Draw the mean of each curve over seeds, with the 95 % interval as a band.

    Names in `dashed` are drawn dashed, and `references` are horizontal lines. Without `axes` the figure gets axes
    and a legend.
    """
    alone = axes is None
    axes = axes or figure.subplots()
    for number, (name, curve) in enumerate(curves.items()):
        xs, points = list(curve), [over_seeds(values) for values in curve.values()]
        colour = (colours or {}).get(name, COLOURS[number % len(COLOURS)])
        style = "--" if name in dashed else "-"
        axes.plot(xs, [p.value for p in points], style, color=colour, marker="o", markersize=3.5, label=name)
        if all(p.low is not None for p in points):
            axes.fill_between(
                xs, [p.low for p in points], [p.high for p in points], color=colour, alpha=_FADED, linewidth=0
            )
    for number, (name, value) in enumerate((references or {}).items()):
        axes.axhline(value, color="0.45", linewidth=1, linestyle=(":", "-.")[number % 2], label=name)
    axes.set(xlabel=x_label, ylabel=y_label)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    if alone:
        figure.legend(loc="outside lower center", ncols=2, fontsize="small")


def grouped_bars(
    figure: Any,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[Estimate | None]],
    y_label: str,
    *,
    published: Mapping[str, Sequence[float | None]] | None = None,
) -> None:
    """Draw bars in groups with their intervals, and the paper's values as ticks."""
    axes = figure.subplots()
    width = 0.8 / len(bars)
    for number, (name, estimates) in enumerate(bars.items()):
        x = np.arange(len(groups)) - 0.4 + (number + 0.5) * width
        # None becomes NaN, which is not drawn.
        value, low, high = np.array([estimate or (None, None, None) for estimate in estimates], float).T
        paper = np.array((published or {}).get(name, [None] * len(groups)), float)
        axes.bar(x, value, width * 0.92, color=COLOURS[number % len(COLOURS)], label=name)
        axes.vlines(x, low, high, color="0.2", linewidth=1)
        axes.hlines(paper, x - width * 0.45, x + width * 0.45, color="black", linewidth=1.5)
    axes.set_xticks(range(len(groups)), groups, rotation=30, ha="right", fontsize="small")
    axes.set_ylabel(y_label)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
