"""GPT-2, section 2.3: the effect on the gradients of LayerNorm at the input of each sub-block.

The paper moves LayerNorm, adds one after the last block, and scales the initial residual weights by 1/√N. It
prints no measurement. Here four models are trained for a few updates on the same batches: LayerNorm before or
after each sub-block, with and without the scaling. The gradient norm of every block is recorded at every update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.pretraining import TokenStream
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.gpt2_ladder import PREFIX, text_of
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe_text
from headwater_papers.statistics import differences

VARIANTS: Mapping[str, dict[str, Any]] = {
    "pre-norm, 1/√N": {"norm": "pre", "final_norm": True, "residual_scaling": True},
    "pre-norm": {"norm": "pre", "final_norm": True, "residual_scaling": False},
    "post-norm, 1/√N": {"norm": "post", "final_norm": False, "residual_scaling": True},
    "post-norm": {"norm": "post", "final_norm": False, "residual_scaling": False},
}
_Norms = Sequence[Sequence[float]]  # by update, by block


class LayerNormSettings(Config):
    """The shape of the four models and their training, which has no warm-up."""

    layers: int = Field(default=12, ge=2)
    width: int = Field(default=64, ge=1)
    context: int = Field(default=64, ge=2)
    batch_size: int = Field(default=8, ge=1)
    updates: int = Field(default=50, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: each variant once a seed."""
    return {("gradients", name) for name in trainings(scale, VARIANTS)}


def run(laboratory: Laboratory) -> Findings:
    """Train the four variants once a seed, and compare the ratios of the blocks' gradients."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_layer_norm", LayerNormSettings)
    norms = {
        variant: [_norms(laboratory, variant, seed, settings) for seed in scale.seeds] for variant in VARIANTS
    }
    spread = {variant: [math.log(max(one[0]) / min(one[0])) for one in seeds] for variant, seeds in norms.items()}
    rows = [
        Row(variant, "log ratio of the blocks' gradients, first update", values)
        for variant, values in spread.items()
    ]
    rows += [
        Row(
            variant, f"gradient norm of block {block + 1}, first update", [one[0][block] for one in norms[variant]]
        )
        for variant in VARIANTS
        for block in (0, settings.layers - 1)
    ]
    return Findings(
        rows=rows,
        findings=[judge(CLAIMS["gpt2_layer_norm.nearer"], differences(spread["post-norm"], spread["pre-norm"]))],
        setup=[
            *describe_text(laboratory, text_of(scale)),
            (
                "models",
                f"{settings.layers} layers of {settings.width}, context {settings.context}; {settings.updates} "
                f"updates of {settings.batch_size} sequences, Adam, rate {settings.learning_rate:g}, no warm-up",
            ),
        ],
        notes=["The paper prints no gradients. Every panel is the mean over seeds of each block's gradient norm."],
        figures={"layer-norm-gradients": lambda figure: _draw(figure, norms)},
    )


def _norms(laboratory: Laboratory, variant: str, seed: int, settings: LayerNormSettings) -> _Norms:
    tokens, _ = laboratory.tokens(text_of(laboratory.scale))
    stream = TokenStream(tokens, "train", settings.context)
    name = variant.replace("1/√N", "scaled").replace(", ", "-")
    return laboratory.measured(
        f"gradients-{name}-{seed}",
        "norms.json",
        lambda: _train(stream, variant, seed, settings),
        kind="gradients",
        name=f"{variant}, seed {seed}",
        config=settings.to_dict() | {"variant": variant, "seed": seed},
        inputs={"tokens": tokens},
    )


def _train(stream: TokenStream, variant: str, seed: int, settings: LayerNormSettings) -> list[list[float]]:
    """Return the gradient norm of every block at every update; all variants of a seed read the same windows."""
    import torch
    from torch.nn import functional

    from headwater.model import ModelConfig, build_model

    windows = np.random.default_rng(seed).integers(0, stream.windows, (settings.updates, settings.batch_size))
    vocabulary = 1 + max(int(stream.window(int(place))[0].max()) for place in np.unique(windows))
    shape = {"layers": settings.layers, "width": settings.width, "context": settings.context, "heads": 1}
    model: Any = build_model(ModelConfig.build(shape | VARIANTS[variant], {"vocabulary": vocabulary}), seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    norms = []
    for places in windows:
        ids = torch.from_numpy(np.stack([stream.window(int(place))[0] for place in places]).astype(np.int64))
        logits = model(ids[:, :-1])
        optimizer.zero_grad()
        functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        norms.append([_gradient_norm(block) for block in model.blocks])
        optimizer.step()
    return norms


def _gradient_norm(block: Any) -> float:
    return math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in block.parameters()))


def _draw(figure: Any, norms: Mapping[str, Sequence[_Norms]]) -> None:
    panels = figure.subplots(2, 2, sharex=True, sharey=True).flatten()
    for axes, (variant, seeds) in zip(panels, norms.items(), strict=True):
        mean = np.mean(np.asarray(seeds), axis=0)  # (updates, blocks)
        for block in range(mean.shape[1]):
            colour = str(0.75 * block / max(1, mean.shape[1] - 1))
            axes.plot(range(1, len(mean) + 1), mean[:, block], color=colour, linewidth=0.9)
        axes.set_title(variant, fontsize="small")
        axes.set_yscale("log")
    figure.supxlabel("update", fontsize="small")
    figure.supylabel("gradient norm of a block (black: the first, grey: the last)", fontsize="x-small")


LAYER_NORM = Experiment(
    name="gpt2_layer_norm",
    title="Gradients with LayerNorm before and after each sub-block",
    paper="GPT-2",
    section="2.3",
    claim="Moving LayerNorm to the input of each sub-block keeps the gradients of the blocks alike.",
    models=(PREFIX,),
    settings=LayerNormSettings,
    pieces=pieces,
    run=run,
)
