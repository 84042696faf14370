"""GPT-1, section 3.1, equation 2: where does a model's knowledge of position come from?

h_0 = U W_e + W_p, where W_p has a row for each position. Without W_p, attention that sees every position treats
its input as a set. With the causal mask, a position sees fewer tokens than the one after it, so that even without
W_p the second block can depend on the order. Here models are trained with and without W_p, with causal attention
on L1 and with full attention on the masked objective. Two things are measured on held-out text: the loss, and how
much the loss of the last token rises when all but the token before it are shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwater.model import IGNORE
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
    "loss": "held-out loss, nats a token",
    "order": "rise of the last token's loss if earlier tokens are shuffled, nats",
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
            Row(variant, title, measured[variant, measure], examples=settings.windows)
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
            judge(CLAIMS["gpt1_positions.order"], measured["causal, without W_p", "order"]),
        ],
        setup=[*describe_text(laboratory, text_of(scale)), settings.described],
        notes=[
            "The losses of causal and of full attention cannot be compared: one predicts the next token, the "
            "other 15 % of the tokens, which it does not see. Only what each loses without W_p is compared.",
            "The last token is predicted once in order, and once with all earlier tokens but the one before it "
            "shuffled. With full attention and without W_p both have the same probability, up to rounding.",
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
    """Train one variant; return its loss on each held-out window, and by how much shuffling raises the last."""
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
    shuffled = np.concatenate([generator.permuted(ids[:, :-2], axis=1), ids[:, -2:]], axis=1)
    rise = _last_loss(model, shuffled) - _last_loss(model, ids)
    return {"loss": loss.tolist(), "order": rise.tolist()}


def _last_loss(model: Any, ids: np.ndarray) -> np.ndarray:
    """Return the loss of the last token of each window, which a model with full attention reads as [MASK]."""
    last = ids[:, -1:]
    if model.config.is_masked:
        read = np.concatenate([ids[:, :-1], np.full_like(last, model.config.vocabulary - 1)], axis=1)
    else:
        read = ids[:, :-1]
    targets = np.full_like(read, IGNORE)
    targets[:, -1:] = last
    return losses(model, read, targets)[:, -1]


def _draw(figure: Any, measured: Mapping[tuple[str, str], Measured]) -> None:
    rises = {"earlier tokens shuffled": [over_seeds(measured[variant, "order"]) for variant in VARIANTS]}
    grouped_bars(figure, list(VARIANTS), rises, "rise of the last token's loss, nats")


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
