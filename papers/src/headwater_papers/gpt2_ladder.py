"""The ladder of GPT-2's sizes, and what its experiments share: windows of the text, and continuations.

The ladder is the models of a scale whose names begin with `gpt2-`, smallest first. All read one text for the same
number of updates, and parameters grow about threefold with each step, as in table 2 of the paper. A rung is
compared with the paper's model at the same position. `gpt2_compute_optimal` has a ladder of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headwater.config import Config
from headwater.evaluation import read_json_rows
from headwater.inference import load
from headwater.pretraining import PretrainConfig, Sampler, TokenStream
from headwater.storage import Stage, write_json_lines
from headwater_papers.figures import bands
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.paper_tables import MODELS, TABLES
from headwater_papers.scale import Scale
from headwater_papers.setup import parameters
from headwater_papers.statistics import Measured

PREFIX = "gpt2-"
LINES = ("gpt2-references", "gpt2-figure-references", "gpt2-lines", "gpt2-lines-unverified", "gpt2-derived")
TOP_K = int(TABLES["gpt2-appendix"].value("tables 7 to 11", "tokens drawn from"))


class Continued(Config):
    """The number of pieces of held-out text, their length, and the length of the continuations, in tokens."""

    count: int = Field(default=100, ge=2)
    context: int = Field(default=96, ge=1)
    length: int = Field(default=128, ge=1)


class HeldOutContinuation(NamedTuple):
    """A piece of held-out text, a model's continuation, and the real one."""

    context: str
    written: str
    real: str


def rungs(scale: Scale) -> list[str]:
    """Return the models of the ladder, smallest first."""
    return [name for name in scale.models if name.startswith(PREFIX)]


def ends(scale: Scale) -> list[str]:
    """Return the smallest and the largest model of the ladder."""
    ladder = rungs(scale)
    return list(dict.fromkeys((ladder[0], ladder[-1])))


def text_of(scale: Scale) -> str:
    """Return the name of the text that the ladder reads."""
    return scale.models[rungs(scale)[0]].text


def label(laboratory: Laboratory, rung: str) -> str:
    """Return a rung with its size for tables and figures: `gpt2-c, 0.69 M`."""
    return f"{rung}, {parameters(laboratory, rung) / 1e6:.2g} M"


def counterpart(scale: Scale, rung: str) -> str:
    """Return the paper's model at the same position."""
    names = rungs(scale)
    return MODELS[min(names.index(rung), len(MODELS) - 1)]


def panels_over_sizes(
    figure: Any,
    values: Mapping[str, Mapping[str, Measured]],
    sizes: Mapping[str, int],
    y_label: str,
    *,
    rows: int = 1,
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Draw a panel for each title: the rungs' values over their parameters, and `references` as lines."""
    columns = max(1, math.ceil(len(values) / rows))
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (title, of) in zip(panels, values.items(), strict=False):
        lines = (references or {}).get(title, {})
        curves = {title: {sizes[rung]: measured for rung, measured in of.items()}}
        bands(figure, curves, "", "", log_x=True, axes=axes, references=lines)
        axes.set_title(title, fontsize="small")
        axes.tick_params(which="both", labelsize="x-small")
        axes.tick_params(axis="x", which="minor", labelbottom=False)
        for number, (name, value) in enumerate(lines.items()):
            side = number % 2  # so that the names of two near lines do not overlap
            place = {"transform": axes.get_yaxis_transform(), "ha": ("right", "left")[side], "va": "bottom"}
            axes.text(1 - side, value, name, fontsize="xx-small", color="0.35", **place)
    for axes in panels[len(values) :]:
        axes.set_visible(False)
    figure.supxlabel("parameters", fontsize="small")
    figure.supylabel(y_label, fontsize="x-small")


def reference_lines(divisors: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return other systems' numbers by panel and system, divided by the panel's divisor.

    The name of a system whose number is not verified ends in a question mark.
    """
    lines: dict[str, dict[str, float]] = {panel: {} for panel in divisors}
    for table in map(TABLES.__getitem__, LINES):
        for name, (value, *_) in table.rows.items():
            panel, _, system = name.partition(": ")
            if panel in lines and isinstance(value, int | float):
                system += " ?" if table.tag == "unverified" else ""
                lines[panel][system] = value / divisors[panel]
    return lines


def windows_read(tokens: Path, recipe: PretrainConfig, count: int) -> NDArray[np.int64]:
    """Return the indices of `count` training windows that a run of this recipe reads, evenly over its updates."""
    sampler = _sampler(tokens, recipe)
    steps = evenly_placed(recipe.steps, count)
    read = np.unique(np.concatenate([sampler.windows_of(int(step)) for step in steps]))
    return read[evenly_placed(len(read), count)]


def windows_unread(tokens: Path, recipe: PretrainConfig, count: int) -> NDArray[np.int64]:
    """Return the indices of at most `count` windows of the same text that the run does not read."""
    sampler = _sampler(tokens, recipe)
    read = np.concatenate([sampler.windows_of(step) for step in range(recipe.steps)])
    unread = np.setdiff1d(np.arange(sampler.stream.windows), read)
    return unread[evenly_placed(len(unread), count)]


def _sampler(tokens: Path, recipe: PretrainConfig) -> Sampler:
    stream = TokenStream(tokens, "train", recipe.window)
    return Sampler(stream, recipe.batch_size, recipe.batch_size, recipe.seed)


def continuations(laboratory: Laboratory, rung: str, seed: int, asked: Continued) -> list[HeldOutContinuation]:
    """Return a model's continuations of evenly spaced pieces of held-out text.

    Tokens are drawn from the 40 most probable, as in appendix A; the position of a piece is its seed.
    """
    count, context, length = asked.count, asked.context, asked.length
    model = laboratory.model(rung, seed)
    _, tokens = laboratory.tokens(laboratory.scale.models[rung].text)
    config = {"count": count, "context": context, "length": length, "top_k": TOP_K}
    inputs = {"model": model, "tokens": tokens}
    name = f"{rung}, seed {seed}"
    out = laboratory.place(f"continuations-{rung}-{seed}", config, inputs)
    stage = Stage(out, kind="continuations", config=config, inputs=inputs)
    with laboratory.piece("continuations", name, out):
        if not stage.is_complete():
            lm = load(model, device=laboratory.device)
            stream = TokenStream(tokens, "validation", context + length)
            places = evenly_placed(stream.windows, count)
            texts = [stream.window(int(place))[0].tolist() for place in places]
            options: dict[str, Any] = {"max_tokens": length, "min_tokens": length, "top_k": TOP_K}
            running = [
                lm.engine.submit(lm.request(ids[:context], **options, seed=int(place)))
                for place, ids in zip(places, texts, strict=True)
            ]
            decode = lm.tokenizer.decode
            continued: list[dict[str, Any]] = [
                {"context": decode(ids[:context]), "written": one.wait().text, "real": decode(ids[context:])}
                for one, ids in zip(running, texts, strict=True)
            ]
            with stage.write() as work:
                write_json_lines(work / "continuations.jsonl", continued)
    return read_json_rows(out / "continuations.jsonl", lambda row: HeldOutContinuation(**row), "continuations")
