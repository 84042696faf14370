"""GPT-1, section 3.1, equation 2: where does a model's knowledge of position come from?

h_0 = U W_e + W_p, where W_p has a row for each position. Without W_p, attention that sees every position treats
its input as a set. With the causal mask, a position sees fewer tokens than the one after it, so that even without
W_p the second block can depend on the order. Here models are trained with and without W_p, with causal attention
on L1 and with full attention on the masked objective. Two things are measured on held-out text: the loss, and how
well a linear map finds the position of a token in the output of the last block.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwater.pretraining import TokenStream
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import grouped_bars
from headwater_papers.gpt2_ladder import PREFIX, text_of
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe_text
from headwater_papers.small_models import (
    SmallModels,
    by_window,
    following,
    held_out_windows,
    hidden,
    losses,
    train,
    vocabulary_of,
)
from headwater_papers.statistics import Measured, differences, over_seeds

# Each with its attention, and whether it has W_p.
VARIANTS: Mapping[str, tuple[str, bool]] = {
    "causal, with W_p": ("causal", True),
    "causal, without W_p": ("causal", False),
    "full, with W_p": ("full", True),
    "full, without W_p": ("full", False),
}
_MEASURES = {
    "loss": "held-out loss, nats per token",
    "position": "R² of a linear map from the last block's output to the position",
}


def _settings(scale: Scale) -> SmallModels:
    return scale.settings("gpt1_positions", SmallModels)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: each variant once a seed."""
    return {("positions", name) for name in trainings(scale, VARIANTS)}


def run(laboratory: Laboratory) -> Findings:
    """Train the four variants once a seed, and compare what W_p adds to each kind of attention."""
    scale, settings = laboratory.scale, _settings(laboratory.scale)
    measured: dict[tuple[str, str], Measured] = {}
    for variant in VARIANTS:
        seeds = [_measure(laboratory, variant, seed, settings) for seed in scale.seeds]
        for measure in _MEASURES:
            measured[variant, measure] = by_window([one[measure] for one in seeds])
    lost = {
        attention: differences(
            measured[f"{attention}, without W_p", "loss"], measured[f"{attention}, with W_p", "loss"]
        )
        for attention in ("causal", "full")
    }
    return Findings(
        rows=[
            Row(
                variant,
                title,
                measured[variant, measure],
                examples=settings.windows // (1 if measure == "loss" else 2),
            )
            for measure, title in _MEASURES.items()
            for variant in VARIANTS
        ],
        findings=[
            judge(
                CLAIMS["gpt1_positions.full"],
                differences(lost["full"], lost["causal"]),
                causal=over_seeds(lost["causal"]).text(3),
                full=over_seeds(lost["full"]).text(3),
            ),
            judge(CLAIMS["gpt1_positions.mask"], measured["causal, without W_p", "position"]),
        ],
        setup=[*describe_text(laboratory, text_of(scale)), settings.described],
        notes=[
            "The losses of causal and of full attention cannot be compared: one predicts the next token, the "
            "other 15 % of the tokens, which it does not see. Only what each loses without W_p is compared.",
            "The linear map is learned on half of the windows of held-out text, and R² is that on the other half, "
            "1 - Σ (position - predicted)² / Σ (position - mean)². Full attention without W_p has equal outputs "
            "for any order of a window, so only what words themselves tell of their place is left.",
        ],
        figures={"with-and-without": lambda figure: _draw(figure, measured)},
    )


def _measure(laboratory: Laboratory, variant: str, seed: int, settings: SmallModels) -> dict[str, list[float]]:
    text = text_of(laboratory.scale)
    tokens, held_out = laboratory.tokens(text)
    result: dict[str, list[float]] = laboratory.measured(
        f"positions-{variant.replace(', ', '-').replace(' ', '-')}-{seed}",
        "losses.json",
        lambda: _train(tokens, held_out, variant, seed, settings, vocabulary_of(laboratory)),
        kind="positions",
        name=f"{variant}, seed {seed}",
        config=settings.to_dict() | {"variant": variant, "seed": seed},
        inputs={"tokens": tokens, "held out": held_out},
    )
    return result


def _train(
    tokens: Path, held_out: Path, variant: str, seed: int, settings: SmallModels, vocabulary: int
) -> dict[str, list[float]]:
    """Train one variant; return its loss on each held-out window, and how well its outputs tell positions."""
    from headwater.model import ModelConfig, build_model

    attention, has_positions = VARIANTS[variant]
    shape = settings.shape | {"attention": attention, "vocabulary": vocabulary + 1}  # the last is [MASK]
    model: Any = build_model(ModelConfig.build(shape), seed=seed)
    if not has_positions:
        model.positions.weight.data.zero_()
        model.positions.weight.requires_grad_(False)
    train(model, TokenStream(tokens, "train", settings.context), settings, seed)
    model.eval()
    ids = held_out_windows(TokenStream(held_out, "validation", settings.context), settings.windows)
    generator = np.random.default_rng(0)
    read, targets = hidden(ids, generator, model) if model.config.is_masked else following(ids)
    loss = np.nanmean(losses(model, read, targets), axis=1)
    return {"loss": loss.tolist(), "position": read_positions(model, ids)}


def read_positions(model: Any, ids: np.ndarray) -> list[float]:
    """Return the share of the positions' variance that a linear map of the last block's output explains.

    It is learned on the even windows; returned is the value of each odd one, whose mean is R².
    """
    import torch

    with torch.no_grad():
        outputs = model.hidden(torch.from_numpy(ids)).double().numpy()  # (windows, context, width)
    learned, measured = outputs[::2], outputs[1::2]
    places = np.arange(ids.shape[1]) - (ids.shape[1] - 1) / 2  # around their mean
    features = learned.reshape(-1, learned.shape[-1])
    centre = features.mean(axis=0)
    weights = np.linalg.lstsq(features - centre, np.tile(places, len(learned)), rcond=None)[0]
    errors = places - (measured - centre) @ weights  # (windows, context)
    return [float(value) for value in 1 - (errors**2).mean(axis=1) / (places**2).mean()]


def _draw(figure: Any, measured: Mapping[tuple[str, str], Measured]) -> None:
    known = {"position": [over_seeds(measured[variant, "position"]) for variant in VARIANTS]}
    grouped_bars(figure, list(VARIANTS), known, "R² of the position in the last block's output")


POSITIONS = Experiment(
    name="gpt1_positions",
    title="Where position comes from: with and without W_p, causal and full",
    paper="GPT-1",
    section="3.1",
    claim="The input of the first block is the sum of token and position embeddings.",
    models=(PREFIX,),
    settings=SmallModels,
    pieces=pieces,
    run=run,
)
