"""GPT-1, section 3.1: what do a Transformer and an LSTM gain from tokens far back?

The paper chooses the Transformer since it has "a more structured memory for handling long-term dependencies in
text, compared to alternatives like recurrent networks", and compares the two on tasks only. Here both read the
same windows, with as many parameters outside the embeddings, and their loss on held-out text is compared by the
number of tokens before the one that is predicted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.pretraining import TokenStream
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import bands
from headwater_papers.gpt2_ladder import PREFIX, text_of
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe_text
from headwater_papers.small_models import (
    SmallModels,
    by_window,
    following,
    held_out_windows,
    losses,
    train,
    vocabulary_of,
)
from headwater_papers.statistics import Measured, differences

KINDS = ("Transformer", "LSTM")


class DistanceSettings(SmallModels):
    """As for other small models, with a longer context and more updates."""

    context: int = 128
    batch_size: int = 8
    updates: int = 600
    windows: int = 300


def _settings(scale: Scale) -> DistanceSettings:
    return scale.settings("gpt1_distances", DistanceSettings)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: both models once a seed."""
    return {("distances", name) for name in trainings(scale, KINDS)}


def run(laboratory: Laboratory) -> Findings:
    """Train both models once a seed, and compare their losses by the length of the context."""
    scale, settings = laboratory.scale, _settings(laboratory.scale)
    contexts = ranges(settings.context)
    measured: dict[tuple[str, str], Measured] = {}
    for kind in KINDS:
        seeds = [_measure(laboratory, kind, seed, settings) for seed in scale.seeds]
        for name in contexts:
            measured[kind, name] = by_window([one[name] for one in seeds])
    leads = {name: differences(measured["LSTM", name], measured["Transformer", name]) for name in contexts}
    near, far = list(contexts)[-3], list(contexts)[-1]
    return Findings(
        rows=[
            Row(
                f"{kind}, {tokens} tokens before", "held-out loss, nats per token", loss, examples=settings.windows
            )
            for (kind, tokens), loss in measured.items()
        ]
        + [
            Row(f"{name} tokens before", "LSTM less Transformer, nats per token", lead, examples=settings.windows)
            for name, lead in leads.items()
        ],
        findings=[
            judge(CLAIMS["gpt1_distances.far"], leads[far], far=far),
            judge(CLAIMS["gpt1_distances.grows"], differences(leads[far], leads[near]), far=far, near=near),
        ],
        setup=[
            *describe_text(laboratory, text_of(scale)),
            settings.described,
            ("LSTM", f"one layer of {_lstm_units(settings, vocabulary_of(laboratory)):,} units, the rest alike"),
        ],
        figures={
            "loss-by-context": lambda figure: bands(
                figure,
                {kind: {start: measured[kind, name] for name, start in contexts.items()} for kind in KINDS},
                "tokens before the one that is predicted",
                "held-out loss, nats per token",
                log_x=True,
                dashed=["LSTM"],
            )
        },
    )


def ranges(context: int) -> dict[str, int]:
    """Return the ranges of context lengths, which double, by name with the first length of each."""
    starts = [2**power for power in range(context.bit_length()) if 2 ** (power + 1) <= context]
    return {f"{start}" if start == 1 else f"{start} to {2 * start - 1}": start for start in starts}


def _measure(laboratory: Laboratory, kind: str, seed: int, settings: SmallModels) -> dict[str, list[float]]:
    tokens, held_out = laboratory.tokens(text_of(laboratory.scale))
    result: dict[str, list[float]] = laboratory.measured(
        f"distances-{kind}-{seed}",
        "losses.json",
        lambda: _train(tokens, held_out, kind, seed, settings, vocabulary_of(laboratory)),
        kind="distances",
        name=f"{kind}, seed {seed}",
        config=settings.to_dict() | {"kind": kind, "seed": seed},
        inputs={"tokens": tokens, "held out": held_out},
    )
    return result


def _train(
    tokens: Path, held_out: Path, kind: str, seed: int, settings: SmallModels, vocabulary: int
) -> dict[str, list[float]]:
    """Train one model; return its mean loss on each held-out window, by the length of the context."""
    from headwater.model import build_model

    model: Any = build_model(_shape(settings, vocabulary, kind), seed=seed)
    train(model, TokenStream(tokens, "train", settings.context), settings, seed)
    model.eval()
    ids = held_out_windows(TokenStream(held_out, "validation", settings.context), settings.windows)
    loss = losses(model, *following(ids))  # column t has t + 1 tokens before its target
    return {
        name: loss[:, start - 1 : 2 * start - 1].mean(axis=1).tolist()
        for name, start in ranges(settings.context).items()
    }


def _shape(settings: SmallModels, vocabulary: int, kind: str) -> Any:
    from headwater.model import ModelConfig

    own = {} if kind == "Transformer" else _lstm(_lstm_units(settings, vocabulary))
    return ModelConfig.build(settings.shape | {"vocabulary": vocabulary} | own)


def _lstm(units: int) -> dict[str, Any]:
    return {"architecture": "lstm", "layers": 1, "units": units}


def _lstm_units(settings: SmallModels, vocabulary: int) -> int:
    """Return the units of the largest LSTM with at most as many parameters as the Transformer."""
    from headwater.model import ModelConfig

    same = settings.shape | {"vocabulary": vocabulary}
    most = ModelConfig.build(same).parameter_count - settings.context * settings.width  # without W_p
    units = settings.width
    while ModelConfig.build(same | _lstm(units + 1)).parameter_count <= most:
        units += 1
    return units


DISTANCES = Experiment(
    name="gpt1_distances",
    title="Loss by the length of the context, Transformer and LSTM",
    paper="GPT-1",
    section="3.1",
    claim="The Transformer has a more structured memory for long-term dependencies than recurrent networks.",
    models=(PREFIX,),
    settings=DistanceSettings,
    pieces=pieces,
    run=run,
)
