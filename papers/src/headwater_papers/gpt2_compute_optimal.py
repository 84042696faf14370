"""GPT-2, table 3 and figure 4 again, with a ladder whose sizes are trained compute-optimally.

The paper's four sizes read the same text for the same number of updates. Here each step has four times the compute
of the one before it, divided between parameters and tokens as the law of `scaling` says (Hoffmann et al. 2022,
section 3). The law was not fitted to these runs, so they also test it. The ladder is the models of a scale whose
names begin with `optimal-`, least compute first.
"""

from __future__ import annotations

import math
from typing import Any

from headwater_papers.claims import CLAIMS, judge_all, judge_steps
from headwater_papers.experiment import Experiment, Findings, Row, files_missing
from headwater_papers.figures import Curve, bands
from headwater_papers.gpt2_zero_shot import COLUMNS, NEEDED, ZeroShotSettings, bits_fall, table_3
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, trainings
from headwater_papers.scaling import CLOSE, ScalingRun, fit, runs_missing, scaling_run, short_runs
from headwater_papers.scaling import PREFIX as SCALING_PREFIX
from headwater_papers.scaling import pieces as scaling_pieces
from headwater_papers.scores import ScoreTable, left_out_notes
from headwater_papers.setup import describe, parameters
from headwater_papers.statistics import Measured, mean_of_sets, over_seeds

PREFIX = "optimal-"


def ladder_of(scale: Scale) -> list[str]:
    """Return the models of this ladder, least compute first."""
    return [name for name in scale.models if name.startswith(PREFIX)]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the law's runs, and every model once a seed: training, scores, loss on held-out books."""
    names = trainings(scale, ladder_of(scale))
    work = {("pre-training", name) for name in names} | {("scores", f"table 3, {name}") for name in names}
    return work | {("perplexity", f"{name}, held-out") for name in names} | scaling_pieces(scale)


def run(laboratory: Laboratory) -> Findings:
    """Train the ladder, score it, and compare its losses with the law's forecasts."""
    scale = laboratory.scale
    ladder = ladder_of(scale)
    windows = scale.settings("gpt2_zero_shot", ZeroShotSettings).windows
    scores = ScoreTable(COLUMNS)
    bits: dict[str, Measured] = {name: Measured() for name in ladder}
    runs: dict[str, list[ScalingRun]] = {name: [] for name in ladder}
    for name in ladder:
        _, held_out = laboratory.tokens(scale.models[name].text)
        for seed in scale.seeds:
            runs[name].append(scaling_run(laboratory, name, seed))
            scores.add(laboratory, name, *table_3(laboratory, name, seed))
            piece = f"{name}, seed {seed}, held-out"
            figures = laboratory.perplexity(piece, laboratory.model(name, seed), held_out, "validation", windows)
            bits[name].add(
                figures["bits per byte"], figures["loss error"] * figures["bits per byte"] / figures["loss"]
            )
    law = fit(short_runs(laboratory))
    operations = {name: 6 * of[0].size * of[0].tokens for name, of in runs.items()}
    forecasts = {name: law.loss(of[0].size, of[0].tokens) for name, of in runs.items()}
    losses = {name: Measured(one.loss for one in of) for name, of in runs.items()}
    labels = {
        name: f"{name}, {parameters(laboratory, name) / 1e6:.2g} M, {operations[name]:.1e} operations"
        for name in ladder
    }
    perplexities = [of for (_, metric), of in scores.better.items() if metric == "perplexity"]
    errors = {name: abs(forecasts[name] / over_seeds(losses[name]).value - 1) for name in ladder}
    return Findings(
        rows=[
            *scores.rows(labels, COLUMNS),
            *(Row(labels[name], "bits per byte, held-out books", values) for name, values in bits.items()),
            *(Row(labels[name], "held-out loss, nats per token", values) for name, values in losses.items()),
            *(Row(labels[name], "the law's forecast, nats per token", [loss]) for name, loss in forecasts.items()),
        ],
        findings=[
            bits_fall(CLAIMS["gpt2_compute_optimal.bits"], bits),
            judge_steps(
                CLAIMS["gpt2_compute_optimal.scores"],
                means := [mean_of_sets([of[name] for of in perplexities]) for name in ladder],
                here=" → ".join(f"{math.exp(-over_seeds(mean).value):,.0f}" for mean in means),
            ),
            judge_all(
                CLAIMS["gpt2_compute_optimal.forecast"],
                [[CLOSE - abs(forecasts[name] / loss - 1) for loss in losses[name]] for name in ladder],
                part="size",
                here="errors of " + ", ".join(f"{100 * error:.1f} %" for error in errors.values()),
            ),
        ],
        setup=describe(laboratory, ladder),
        notes=[
            "The held-out loss that the law forecasts is that of the training text's own held-out part.",
            *left_out_notes(scores.left_out),
        ],
        figures={"loss-over-compute": lambda figure: _draw(figure, operations, losses, forecasts)},
    )


def _draw(
    figure: Any, operations: dict[str, float], losses: dict[str, Measured], forecasts: dict[str, float]
) -> None:
    measured = {round(operations[name]): values for name, values in losses.items()}
    law = {round(operations[name]): [value] for name, value in forecasts.items()}
    curves: dict[str, Curve] = {"trained": measured, "the law's forecast": law}
    labels = "floating-point operations", "held-out loss, nats per token"
    bands(figure, curves, *labels, log_x=True, dashed=["the law's forecast"])


COMPUTE_OPTIMAL = Experiment(
    name="gpt2_compute_optimal",
    title="Four sizes trained compute-optimally",
    paper="GPT-2",
    section="3 and 4 (table 3, figure 4)",
    claim="With the parameters and tokens that a scaling law says are best, more compute gives better scores.",
    models=(PREFIX, SCALING_PREFIX),
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: runs_missing(scale) + files_missing(NEEDED, data),
)
