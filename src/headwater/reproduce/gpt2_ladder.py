"""The ladder of GPT-2's sizes, and what its experiments share: windows that were read, texts that were continued.

The ladder is the models of a scale whose names begin with `gpt2-`, smallest first: one text, one number of
updates, parameters about threefold a step, as in table 2 of the paper. A rung stands for the paper's model of its
place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headwater.config import Config
from headwater.evaluate.published import SIZES
from headwater.evaluate.results import Results
from headwater.language_model import LanguageModel
from headwater.model import build_model
from headwater.model.folder import load_config
from headwater.pretrain import PretrainConfig
from headwater.provenance import Stage
from headwater.reproduce.experiment import Finding
from headwater.reproduce.figures import COLOURS
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe_model, describe_text
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Verdict, decide, differences
from headwater.storage import read_json, write_json
from headwater.tokens.sampler import Sampler, TokenStream

_PREFIX = "gpt2-"
TOP_K = 40  # appendix A


class Ladder(Config):
    """seeds: how many of the scale's seeds a rung is trained with, where that is not all of them.

    A rung of fewer seeds stands in tables and figures; verdicts are on the rungs of all seeds.
    """

    seeds: dict[str, int] = Field(default_factory=dict)


class Continuation(NamedTuple):
    """A piece of held-out text, what a model wrote behind it, and what really stands there."""

    context: str
    written: str
    real: str


def rungs(scale: Scale) -> list[str]:
    """The models of the ladder, smallest first."""
    return [name for name in scale.models if name.startswith(_PREFIX)]


def seeds_of(scale: Scale, rung: str) -> Sequence[int]:
    """The seeds that a rung is trained with."""
    ladder = Ladder.build(scale.experiments.get("gpt2_ladder", {}), source="experiments.gpt2_ladder")
    return scale.seeds[: ladder.seeds.get(rung)]


def full_rungs(scale: Scale) -> list[str]:
    """The rungs of all seeds, smallest first: those that verdicts are on."""
    return [rung for rung in rungs(scale) if len(seeds_of(scale, rung)) == len(scale.seeds)]


def trainings(scale: Scale, names: Sequence[str]) -> list[str]:
    """The pre-training runs of these models by name: `gpt2-a, seed 1`."""
    return [f"{name}, seed {seed}" for name in names for seed in seeds_of(scale, name)]


def text_of(scale: Scale) -> str:
    """The text that the ladder reads."""
    return scale.models[rungs(scale)[0]].text


def parameters(laboratory: Laboratory, rung: str) -> int:
    """Parameters of a rung, embeddings and all."""
    config = load_config(laboratory.model(rung, laboratory.scale.seeds[0]))
    return sum(p.numel() for p in build_model(config, device="meta").parameters())


def label(laboratory: Laboratory, rung: str) -> str:
    """`gpt2-c, 0.69 M`: a rung with its size, as tables and figures name it."""
    return f"{rung}, {parameters(laboratory, rung) / 1e6:.2g} M"


def counterpart(scale: Scale, rung: str) -> str:
    """The paper's model of the same place on its ladder."""
    names = rungs(scale)
    return SIZES[min(names.index(rung), len(SIZES) - 1)]


def describe_ladder(laboratory: Laboratory, names: Sequence[str]) -> list[tuple[str, str]]:
    """The text and these rungs, each with the seeds that it has, in the reader's words."""
    lines = describe_text(laboratory, text_of(laboratory.scale))
    for rung in names:
        name, text = describe_model(laboratory, rung)
        seeds = ", ".join(map(str, seeds_of(laboratory.scale, rung)))
        lines.append((name, f"{text.rpartition('; seeds ')[0]}; seeds {seeds}"))
    return lines


def fewer_seeds(scale: Scale) -> list[str]:
    """A note on the rungs that have fewer seeds than the scale; none where all have all."""
    fewer = [rung for rung in rungs(scale) if rung not in full_rungs(scale)]
    if not fewer:
        return []
    return [
        f"Verdicts are on the rungs of every seed ({', '.join(full_rungs(scale))}); {', '.join(fewer)} has fewer "
        "and stands in tables and figures alone, as hollow marks."
    ]


def value_of(results: Results, protocol: str, metric: str) -> tuple[float, int] | None:
    """(value, examples) of one metric of one protocol, None where it was skipped."""
    for result in results.results:
        if (result.protocol, result.metric) == (protocol, metric):
            return result.value, result.count
    return None


def skipped_because(laboratory: Laboratory, results: Results) -> dict[str, str]:
    """Why protocols were left out, in words that name no place of this machine."""
    folder = str(laboratory.data)
    return {
        entry.protocol: entry.reason.replace(folder, "the data folder")
        for entry in results.skipped
        if entry.examples is None
    }


def judge_steps(
    claim: str,
    paper: str,
    gains: Sequence[Sequence[float]],
    *,
    here: str,
    scale: float = 1.0,
    digits: int = 3,
    unit: str = "",
    sentences: Mapping[Verdict, str],
) -> Finding:
    """The finding on a claim that every rung is better than the one before; `gains` has a list a rung, over seeds.

    It holds where every step by itself does, and does not hold where any step by itself does not.
    """
    steps = [decide(differences(after, before)) for before, after in pairwise(gains)]
    verdicts = {verdict for verdict, _ in steps}
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    lowest = min((one for _, one in steps), key=lambda one: one.value if one.low is None else one.low)
    text = f"least sure step {lowest.text(digits, scale)}{unit}"
    return Finding(claim, paper, f"{here}; {text}", verdict, sentences[verdict], lowest)


def seed_curves(
    of: Mapping[str, Sequence[float]], sizes: Mapping[str, int], full: Sequence[str]
) -> list[list[tuple[float, float]]]:
    """Values by rung as one curve a seed over parameters, of the rungs that have all seeds."""
    return [[(sizes[rung], of[rung][number]) for rung in full] for number in range(len(of[full[0]]))]


def mark_others(
    axes: Any, of: Mapping[str, Sequence[float]], sizes: Mapping[str, int], full: Sequence[str], colour: int = 0
) -> None:
    """Rungs of fewer seeds as hollow marks beside the curve."""
    points = [(sizes[rung], value) for rung, values in of.items() if rung not in full for value in values]
    if points:
        axes.plot(*zip(*points, strict=True), "o", color=COLOURS[colour], markerfacecolor="none", markersize=4)


def windows_read(tokens: Path, recipe: PretrainConfig, count: int) -> NDArray[np.int64]:
    """Indices of `count` training windows that a run of this recipe reads, evenly over its updates."""
    stream = TokenStream(tokens, "train", recipe.window)
    sampler = Sampler(stream, recipe.batch_size, recipe.batch_size, recipe.seed)
    steps = np.unique(np.linspace(0, recipe.steps - 1, min(count, recipe.steps)).round().astype(int))
    read = np.unique(np.concatenate([sampler.windows_of(int(step)) for step in steps]))
    return _evenly(read, count)


def windows_unread(tokens: Path, recipe: PretrainConfig, count: int) -> NDArray[np.int64]:
    """Indices of `count` windows of the same text that the run does not read; fewer where few are left."""
    stream = TokenStream(tokens, "train", recipe.window)
    sampler = Sampler(stream, recipe.batch_size, recipe.batch_size, recipe.seed)
    read = np.zeros(stream.windows, dtype=bool)
    for step in range(recipe.steps):
        read[sampler.windows_of(step)] = True
    return _evenly(np.flatnonzero(~read), count)


def loss_on(
    laboratory: Laboratory, name: str, model: Path, tokens: Path, part: str, chosen: Sequence[int]
) -> dict[str, float]:
    """Loss a token (nats), perplexity and bits per byte of a model on chosen windows of a tokens folder."""
    windows = [int(index) for index in chosen]
    config = {"part": part, "windows": windows}
    inputs = {"model": model, "tokens": tokens}
    out = laboratory.place(f"perplexity-{name.replace(', ', '-').replace(' ', '-')}", config, inputs)
    stage = Stage(out, kind="perplexity", config=config, inputs=inputs)
    with laboratory.piece("perplexity", name, out):
        if not stage.is_complete():
            lm = LanguageModel.open(model)
            stream = TokenStream(tokens, part, lm.config.context)
            asked = [stream.window(index)[0].tolist() for index in windows]
            scores = lm.scorer.token_scores([(ids[:1], ids[1:]) for ids in asked])
            lost = -math.fsum(float(value) for score in scores for value in score.log_probability)
            count = sum(len(ids) - 1 for ids in asked)
            size = sum(len(lm.tokenizer.token_bytes(token)) for ids in asked for token in ids[1:])
            found = {"loss": lost / count, "perplexity": math.exp(lost / count), "tokens": count}
            with stage.write() as work:
                write_json(work / "perplexity.json", found | {"bits per byte": lost / math.log(2) / size})
    read: dict[str, float] = read_json(out / "perplexity.json")
    return read


def continuations(
    laboratory: Laboratory, rung: str, seed: int, *, count: int, context: int, length: int
) -> list[Continuation]:
    """What a model writes behind `count` pieces of held-out text, spread evenly over it: nobody picks.

    context and length in tokens; drawn from the 40 likeliest as in appendix A, seeded by the place of the piece.
    """
    model = laboratory.model(rung, seed)
    _, tokens = laboratory.tokens(laboratory.scale.models[rung].text)
    config = {"count": count, "context": context, "length": length, "top_k": TOP_K}
    inputs = {"model": model, "tokens": tokens}
    name = f"{rung}, seed {seed}"
    out = laboratory.place(f"continuations-{rung}-{seed}", config, inputs)
    stage = Stage(out, kind="continuations", config=config, inputs=inputs)
    with laboratory.piece("continuations", name, out):
        if not stage.is_complete():
            lm = LanguageModel.open(model)
            stream = TokenStream(tokens, "validation", context + length)
            places = _evenly(np.arange(stream.windows), count)
            texts = [stream.window(int(place))[0].tolist() for place in places]
            options: dict[str, Any] = {"max_tokens": length, "min_tokens": length, "top_k": TOP_K}
            running = [
                lm.engine.submit(lm.request(ids[:context], **options, seed=int(place)))
                for place, ids in zip(places, texts, strict=True)
            ]
            decode = lm.tokenizer.decode
            found: list[dict[str, Any]] = [
                {"context": decode(ids[:context]), "written": one.wait().text, "real": decode(ids[context:])}
                for one, ids in zip(running, texts, strict=True)
            ]
            with stage.write() as work:
                (work / "continuations.jsonl").write_text(
                    "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found), encoding="utf-8"
                )
    lines = (out / "continuations.jsonl").read_text(encoding="utf-8").split("\n")
    return [Continuation(**json.loads(line)) for line in lines if line]


def _evenly(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    chosen = np.linspace(0, len(places) - 1, min(count, len(places))).round().astype(int)
    return places[np.unique(chosen)]
