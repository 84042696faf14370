"""A scaling law: loss over size and tokens, fitted to short runs, and the best size for a budget.

Neither paper fits one; GPT-2's figure 4 shows the trend. The form is that of Kaplan et al. 2020 (equation 1.5):
L(N, D) = ((N_c/N)^(α_N/α_D) + D_c/D)^α_D, with loss in nats per token and D in tokens. N is the floating-point
operations of a token divided by 6, so that a run costs exactly 6 · N · D. The form of Hoffmann et al. 2022,
E + A/N^α + B/D^β, has one more parameter and the same gain by size at every D. The runs of the scale `mini` gain
more by size the longer they are. Fitted to the runs below 6e13 operations, Hoffmann's form misses the larger ones
by 2 to 8 %, Kaplan's by 2 to 7 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import GPU_RATE, Scale, shape_of, training_flops
from headwater_papers.setup import describe_text
from headwater_papers.statistics import Measured

PREFIX = "scaling-"
CLOSE = 0.02  # relative error of a forecast that the law promises
_HUBER = 1e-3  # of log loss, as in Hoffmann et al.
_EXPONENTS = (0.005, 1.5)  # the bounds of alpha_n and alpha_d
_LARGEST = 100.0  # the bound of the logarithms of n_c and d_c
_NEGLIGIBLE = 0.01  # share of a term of the law
_SAMPLES = 100  # of the bootstrap
_SEED = 1
_HOUR = 3_600
_FEWEST_RUNS = 6  # of a fit of the law's four numbers
_FEWEST_MODELS = 8  # of a scale; six would give one bootstrap sample, seven 8 different ones, eight 37
_BUDGETS = {"4 minutes": 240, "1 hour": _HOUR, "1 day": 24 * _HOUR}


class ScalingRun(NamedTuple):
    """One run: operations per token / 6, tokens, held-out loss in nats per token, operations per second."""

    name: str
    size: float
    tokens: float
    loss: float
    rate: float


class Law(NamedTuple):
    """L(N, D) = ((n_c / N)^(alpha_n / alpha_d) + d_c / D)^alpha_d."""

    alpha_n: float
    n_c: float
    alpha_d: float
    d_c: float

    def loss(self, size: float, tokens: float) -> float:
        """Return nats per token of a model of this size after this many tokens."""
        ratio = self.alpha_n / self.alpha_d
        by_size, by_tokens = ratio * math.log(self.n_c / size), math.log(self.d_c / tokens)
        return math.exp(self.alpha_d * float(np.logaddexp(by_size, by_tokens)))

    def best(self, operations: float) -> tuple[float, float]:
        """Return size and tokens of the lowest loss for a budget of floating-point operations."""
        ratio = self.alpha_n / self.alpha_d
        log_size = (math.log(ratio * operations / 6 / self.d_c) + ratio * math.log(self.n_c)) / (ratio + 1)
        size = math.exp(log_size)
        return size, operations / 6 / size


def fit(runs: Sequence[ScalingRun], near: Law | None = None) -> Law:
    """Fit the law to the log loss of runs by Huber's loss, from several starting points or from `near`."""
    from scipy.optimize import least_squares

    sizes, tokens, losses = (np.log([run[at] for run in runs]) for at in (1, 2, 3))

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        alpha_n, n_c, alpha_d, d_c = at
        return alpha_d * np.logaddexp(alpha_n / alpha_d * (n_c - sizes), d_c - tokens) - losses

    # A start has the mean loss at the mean size for endless text, or at the mean length for an endless size.
    middles = [float(values.mean()) for values in (sizes, tokens, losses)]
    starts = [
        (alpha_n, middles[0] + middles[2] / alpha_n, alpha_d, middles[1] + middles[2] / alpha_d)
        for alpha_n in (0.07, 0.2)
        for alpha_d in (0.1, 0.3)
    ]
    if near is not None:
        starts = [(near.alpha_n, math.log(near.n_c), near.alpha_d, math.log(near.d_c))]
    least, most = _EXPONENTS
    fits = [
        least_squares(
            errors,
            np.clip(start, (least, 0.0, least, 0.0), (most, _LARGEST, most, _LARGEST)),
            bounds=([least, 0.0, least, 0.0], [most, _LARGEST, most, _LARGEST]),
            x_scale=(0.1, 1.0, 0.1, 1.0),
            loss="huber",
            f_scale=_HUBER,
            max_nfev=400,
        )
        for start in starts
    ]
    alpha_n, n_c, alpha_d, d_c = (float(value) for value in min(fits, key=lambda one: float(one.cost)).x)
    return Law(alpha_n, math.exp(n_c), alpha_d, math.exp(d_c))


def resampled(runs: Sequence[ScalingRun]) -> list[Law]:
    """Fit laws to bootstrap samples of the runs, with a fixed seed; samples of too few runs are redrawn."""
    draws = np.random.default_rng(_SEED)
    laws: list[Law] = []
    whole = fit(runs)
    while len(laws) < _SAMPLES:
        drawn = sorted(set(draws.integers(len(runs), size=len(runs)).tolist()))
        if len(drawn) >= _FEWEST_RUNS:
            laws.append(fit([runs[at] for at in drawn], near=whole))
    return laws


def names(scale: Scale) -> list[str]:
    """Return the models of the scale that the law is fitted to."""
    return [name for name in scale.models if name.startswith(PREFIX)]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: each of the short runs, once."""
    return {("pre-training", f"{name}, seed {scale.seeds[0]}") for name in names(scale)}


def runs_missing(scale: Scale) -> list[str]:
    """Return what is missing if the scale has too few runs for a law, in the form of `Experiment.lacks`."""
    enough = len(names(scale)) >= _FEWEST_MODELS
    return [] if enough else [f"{_FEWEST_MODELS} models {PREFIX!r} in the scale, which has {len(names(scale))}"]


def run(laboratory: Laboratory) -> Findings:
    """Train each short run, fit the law, forecast budgets."""
    runs = short_runs(laboratory)
    law, laws = fit(runs), resampled(runs)
    forecasts = [
        fit([other for other in runs if other is not one], near=law).loss(one.size, one.tokens) for one in runs
    ]
    missed = Measured(CLOSE - abs(forecast / one.loss - 1) for forecast, one in zip(forecasts, runs, strict=True))
    error = CLOSE - statistics.fmean(missed)
    rate = statistics.median(one.rate for one in runs)
    rows = [Row(one.name, "held-out loss, nats per token", [one.loss]) for one in runs]
    rows += [Row("the law", f"{name}", [value]) for name, value in law._asdict().items()]
    budgets = {name: seconds * rate for name, seconds in _BUDGETS.items()} | {
        "1 hour of an H100": _HOUR * GPU_RATE
    }
    return Findings(
        rows=rows,
        findings=[
            judge(
                CLAIMS["scaling.forecast"],
                missed,
                here=f"mean error {100 * error:.2f} %, each of {len(runs)} runs left out in turn",
            )
        ],
        setup=[
            *describe_text(laboratory, laboratory.scale.models[runs[0].name].text),
            (
                "runs",
                ", ".join(
                    f"{one.name}: N = {one.size / 1e6:.2f} M, {one.tokens / 1e6:.2f} M tokens" for one in runs
                ),
            ),
            ("rate", f"{rate / 1e9:,.0f} G operations per second (median of the runs)"),
        ],
        notes=[
            f"L(N, D) = (({law.n_c:.3g}/N)^({law.alpha_n:.3f}/{law.alpha_d:.3f}) + {law.d_c:.3g}/D)"
            f"^{law.alpha_d:.3f}. N is operations per token / 6, with the output matrix, without the input rows. "
            f"The interval of a forecast is that of {_SAMPLES} bootstrap samples of the runs.",
            *undetermined(law, runs),
            *(_budget(name, operations, law, laws, runs) for name, operations in budgets.items()),
        ],
        figures={"law": lambda figure: _draw(figure, runs, law)},
    )


def short_runs(laboratory: Laboratory) -> list[ScalingRun]:
    """Train the runs that the law is fitted to, and return their losses."""
    return [scaling_run(laboratory, name, laboratory.scale.seeds[0]) for name in names(laboratory.scale)]


def scaling_run(laboratory: Laboratory, name: str, seed: int) -> ScalingRun:
    """Train a model of the scale, and return its size, tokens and loss."""
    lines = laboratory.curve(name, seed)
    shape = shape_of(laboratory.scale, name)
    size = training_flops(shape) / 6
    speed = statistics.median(line["tokens_per_second"] for line in lines)
    last = [line["validation_loss"] for line in lines if "validation_loss" in line][-1]
    return ScalingRun(name, size, lines[-1]["tokens"], last, 6 * size * speed)


def undetermined(law: Law, runs: Sequence[ScalingRun]) -> list[str]:
    """Return a note for each exponent that the runs do not determine.

    Its term of the law is negligible in every run, or the fit ended at a bound of the exponent or of its scale.
    """
    ratio = law.alpha_n / law.alpha_d
    terms = np.array(
        [(ratio * math.log(law.n_c / one.size), math.log(law.d_c / one.tokens)) for one in runs]
    ).T  # logarithms, (2, runs)
    shares = np.exp(terms - np.logaddexp(*terms)).max(axis=1)
    exponents = ("N", law.alpha_n, law.n_c), ("D", law.alpha_d, law.d_c)
    return [
        f"The exponent of {what}, {value:.3g}, is not determined by these runs, and a best size that follows from "
        "it is a guess."
        for (what, value, scale), share in zip(exponents, shares, strict=True)
        if share < _NEGLIGIBLE
        or math.log(scale) > 0.99 * _LARGEST
        or any(math.isclose(value, bound, rel_tol=1e-2) for bound in _EXPONENTS)
    ]


def _budget(name: str, operations: float, law: Law, laws: Sequence[Law], runs: Sequence[ScalingRun]) -> str:
    size, tokens = law.best(operations)
    best = [other.best(operations) for other in laws]
    low, high = np.quantile([other.loss(*at) for other, at in zip(laws, best, strict=True)], (0.025, 0.975))
    smallest, largest = np.quantile([at[0] for at in best], (0.025, 0.975)) / 1e6
    times = operations / max(6 * one.size * one.tokens for one in runs)
    more = f" This extrapolates: the longest run took 1/{times:,.0f} of these operations." if times > 2 else ""
    return (
        f"{name} ({operations:.2g} operations): N = {size / 1e6:.2g} M ({smallest:.2g} to {largest:.2g} M), "
        f"{tokens / 1e6:,.3g} M tokens, {law.loss(size, tokens):.2f} nats per token ({low:.2f} to {high:.2f})."
        f"{more}"
    )


def _draw(figure: Any, runs: Sequence[ScalingRun], law: Law) -> None:
    axes = figure.subplots()
    by_size: Mapping[float, list[ScalingRun]] = {one.size: [r for r in runs if r.size == one.size] for one in runs}
    for number, (size, of) in enumerate(sorted(by_size.items())):
        tokens = np.geomspace(min(r.tokens for r in runs), max(r.tokens for r in runs))
        axes.plot(tokens, [law.loss(size, each) for each in tokens], color=f"C{number}", linewidth=1)
        axes.plot(
            [r.tokens for r in of], [r.loss for r in of], "o", color=f"C{number}", label=f"N = {size / 1e6:.2f} M"
        )
    axes.set(xlabel="tokens read", ylabel="held-out loss, nats per token", xscale="log")
    axes.legend(fontsize="small")


SCALING = Experiment(
    name="scaling",
    title="A scaling law for this machine",
    paper="GPT-2",
    section="4, figure 4",
    claim="Loss falls smoothly with size and text; the law says which shape is best for a budget.",
    models=(PREFIX,),
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: runs_missing(scale),
)
