"""GPT-1, section 4.1: the perplexity that pre-training reaches, and the LSTM's after the same updates.

The paper gives one number, a token of its own vocabulary "on this corpus", and does not say which part.
Here perplexity is measured on books that no model trained on, and on the training text, in windows of one context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import Field

from headwater.config import Config
from headwater.storage import open_folder
from headwater_papers.claims import CLAIMS, Finding, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import bands
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import GPT1, TABLES
from headwater_papers.scale import Scale, tokens_read, trainings
from headwater_papers.setup import describe, parameters
from headwater_papers.statistics import Measured, differences, over_seeds

PUBLISHED = TABLES["gpt1-pretraining"].value(GPT1, "perplexity per token")
PARAMETERS = TABLES["sizes"].value(GPT1, "parameters")  # of the released model
MODELS = {"gpt1": "Transformer", "lstm": "LSTM"}


class PerplexitySettings(Config):
    """The number of windows of each part that perplexity is measured on."""

    windows: int = Field(default=200, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: both models once a seed, and their perplexity on both parts."""
    names = trainings(scale, MODELS)
    training = {("pre-training", name) for name in names}
    return training | {("perplexity", f"{name}, {part}") for name in names for part in ("held-out", "train")}


def run(laboratory: Laboratory) -> Findings:
    """Train both models once a seed, measure both parts."""
    settings = laboratory.scale.settings("gpt1_perplexity", PerplexitySettings)
    text = laboratory.scale.models["gpt1"].text
    train, held_out = laboratory.tokens(text)
    counts = open_folder(held_out, "tokens").config["counts"]["validation"]
    rate = counts["tokens"] / counts["bytes"] / math.log(2)  # of nats per token in bits per byte
    measured: dict[tuple[str, str], Measured] = {}
    bits: dict[str, Measured] = {}
    curves: dict[str, dict[int, list[float]]] = {title: {} for title in MODELS.values()}
    for model, title in MODELS.items():
        for seed in laboratory.scale.seeds:
            folder = laboratory.model(model, seed)
            for part, tokens, where in (("held-out", held_out, "validation"), ("train", train, "train")):
                name = f"{model}, seed {seed}, {part}"
                perplexity = laboratory.perplexity(name, folder, tokens, where, settings.windows)
                error = perplexity["perplexity"] * perplexity["loss error"]
                measured.setdefault((model, part), Measured()).add(perplexity["perplexity"], error)
                if part == "held-out":
                    bits.setdefault(model, Measured()).add(
                        perplexity["loss"] * rate, perplexity["loss error"] * rate
                    )
            for line in laboratory.curve(model, seed):
                if "validation_loss" in line:
                    curves[title].setdefault(line["tokens"], []).append(line["validation_loss"])
    rows = [
        Row(
            MODELS[model],
            f"perplexity per token, {part} text",
            values,
            PUBLISHED if model == "gpt1" and part == "held-out" else None,
        )
        for (model, part), values in measured.items()
    ]
    rows += [Row(MODELS[model], "bits per byte, held-out text", values) for model, values in bits.items()]
    return Findings(
        rows=rows,
        findings=_findings(measured, *_compared_to_the_paper(laboratory)),
        setup=describe(laboratory, list(MODELS)),
        notes=[
            f"Perplexity is over {settings.windows:,} evenly spaced windows of one context; the first token of a "
            "window is not scored. GPT-1's tokenizer loses spaces and case; bits per byte count the bytes of the "
            "original text. The curves are for the documents that choose the checkpoint, not for held-out books.",
        ],
        figures={
            "validation-loss": lambda figure: bands(
                figure, curves, "tokens read", "validation loss, nats per token", dashed=["LSTM"]
            )
        },
    )


def _findings(measured: Mapping[tuple[str, str], Measured], size: str, passes: float) -> list[Finding]:
    transformer, lstm = measured["gpt1", "held-out"], measured["lstm", "held-out"]
    gaps = differences(transformer.map(math.log), measured["gpt1", "train"].map(math.log))
    return [
        judge(
            CLAIMS["gpt1_perplexity.published"],
            transformer.linear(-1, PUBLISHED),
            here=over_seeds(transformer).text(1),
            size=size,
        ),
        judge(CLAIMS["gpt1_perplexity.lstm"], differences(lstm.map(math.log), transformer.map(math.log))),
        judge(
            CLAIMS["gpt1_perplexity.underfits"],
            gaps.linear(-1, 0.05),
            here=f"held-out less training loss: {over_seeds(gaps).text(3)} nats per token",
            passes=passes,
        ),
    ]


def _compared_to_the_paper(laboratory: Laboratory) -> tuple[str, float]:
    """Return the size as `1 %`, of the paper's, and how often the text was read."""
    read = tokens_read(laboratory.scale, "gpt1")
    packed, _ = laboratory.tokens(laboratory.scale.models["gpt1"].text)
    there = open_folder(packed, "tokens").config["counts"]["train"]["tokens"]
    return f"{100 * parameters(laboratory, 'gpt1') / PARAMETERS:.2g} %", read / there


PERPLEXITY = Experiment(
    name="gpt1_perplexity",
    title="Pre-training perplexity",
    paper="GPT-1",
    section="4.1",
    claim=f"Pre-training on books reaches a token perplexity of {PUBLISHED:g}.",
    models=tuple(MODELS),
    settings=PerplexitySettings,
    pieces=pieces,
    run=run,
)
