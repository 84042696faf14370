"""The mixture of members: their probabilities multiplied, each to the power of its weight, and calibrated.

The weights are not negative, sum to 1 and minimise the loss on rows that no member has learned from. This is a
super learner (van der Laan et al. 2007) over a logarithmic pool (Genest and Zidek 1986): a member with uniform
probabilities changes no decision. For several labels the pool averages log-odds. For scores it averages
probabilities, and so expected scores, which minimises the squared error. A temperature divides the logarithms if
that clearly lowers the loss on rows that did not choose it (Guo et al. 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
_LEAST = 1e-9  # probability, before its logarithm
_LOWEST, _HIGHEST = 0.1, 10.0  # temperatures
_PARTS = 4  # of the rows: each measures the temperature that the others choose
_Z = 1.96


def pool(
    probabilities: Sequence[Floats], weights: Sequence[float], labels: Labels, temperature: float = 1.0
) -> Floats:
    """Return the mixture of (rows, outputs) each; 0 for an answer that a row does not have."""
    if len(probabilities) == 1 and temperature == 1:
        return probabilities[0]
    if labels.target == "score":
        return np.asarray(sum(w * shares for w, shares in zip(weights, probabilities, strict=True)), np.float32)
    values = sum(
        w * _logits(shares.astype(np.float64), labels) for w, shares in zip(weights, probabilities, strict=True)
    )
    values = np.asarray(values) / temperature
    if labels.target == "labels":
        return (1 / (1 + np.exp(-values))).astype(np.float32)
    values = np.exp(values - values.max(axis=1, keepdims=True))
    if labels.target == "answer":
        values *= np.maximum.reduce(probabilities) > 0
    return (values / values.sum(axis=1, keepdims=True)).astype(np.float32)


def _logits(shares: Doubles, labels: Labels) -> Doubles:
    values: Doubles = np.log(np.maximum(shares, _LEAST))
    return values - np.log(np.maximum(1 - shares, _LEAST)) if labels.target == "labels" else values


def expected_score(probabilities: Floats, levels: Doubles) -> Doubles:
    """(rows, levels) -> (rows,): the mean of the levels; their sum may be 1 only nearly, as float32 has it."""
    return levels[0] + probabilities.astype(np.float64) @ (levels - levels[0])


def losses(probabilities: Floats, targets: Doubles, labels: Labels) -> Doubles:
    """Return (rows,): the logarithmic loss of each, or the squared error of a score in units of the range."""
    if labels.target == "score":
        levels = np.array(labels.levels)
        wide = levels[-1] - levels[0]
        return np.square((expected_score(probabilities, levels) - targets) / wide)
    shares = probabilities.astype(np.float64)
    if labels.target == "labels":
        right = np.where(targets > 0, shares, 1 - shares)
        return -np.log(np.maximum(right, _LEAST)).sum(axis=1)
    return -np.log(np.maximum(shares[np.arange(len(targets)), targets.astype(np.int64)], _LEAST))


def mean_loss(probabilities: Floats, targets: Doubles, importance: Floats, labels: Labels) -> float:
    """Return the mean negative log-likelihood of rows with these weights; for scores, under normal errors."""
    each = losses(probabilities, targets, labels)
    mean = float((importance * each).sum() / max(1e-9, importance.sum()))
    return float(np.log(max(mean, _LEAST))) / 2 if labels.target == "score" else mean


def mixture_weights(
    probabilities: Mapping[MemberName, Floats],
    targets: Doubles,
    importance: Floats,
    labels: Labels,
    prior: float,
    least: float,
) -> dict[MemberName, float]:
    """Return the weights of the mixture's members; members below the weight `least` are dropped."""
    names = list(probabilities)
    while True:
        weights = best_weights([probabilities[name] for name in names], targets, importance, labels, prior)
        heavy = [name for name, w in zip(names, weights, strict=True) if w >= least or w == max(weights)]
        if len(heavy) == len(names):
            return dict(zip(names, weights, strict=True))
        names = heavy


def best_weights(
    probabilities: Sequence[Floats], targets: Doubles, importance: Floats, labels: Labels, prior: float
) -> list[float]:
    """Return the weight of each member that minimises the loss; importance: (rows,) weights of the rows.

    prior: the strength of the penalty on unequal weights, as a number of rows.
    """
    count = len(probabilities)
    if count == 1:
        return [1.0]
    from scipy.optimize import minimize

    scale = 1.0 if labels.target != "score" else _error_scale(probabilities, targets, labels)

    def loss(weights: Doubles) -> float:
        fitted = np.abs(weights) / np.abs(weights).sum()
        total = float((importance * losses(pool(probabilities, fitted, labels), targets, labels)).sum()) / scale
        return (total + prior * float(np.square(fitted - 1 / count).sum())) / max(1, len(targets))

    best = minimize(
        loss,
        np.full(count, 1 / count),
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints=[{"type": "eq", "fun": lambda weights: weights.sum() - 1}],
        options={"maxiter": 100, "eps": 1e-4},
    )
    # The corners and the equal weights too: the search may stop early.
    points = [np.clip(best.x, 0, 1), np.full(count, 1 / count), *np.eye(count)]
    chosen = min((point / point.sum() for point in points), key=loss)
    rounded = [round(float(weight), 4) for weight in chosen]
    return [weight / sum(rounded) for weight in rounded]


def _error_scale(probabilities: Sequence[Floats], targets: Doubles, labels: Labels) -> float:
    """Return twice the variance of the best member's errors: squared errors over it are logarithmic losses."""
    return max(1e-9, 2 * min(float(losses(shares, targets, labels).mean()) for shares in probabilities))


def best_temperature(probabilities: Floats, targets: Doubles, labels: Labels, least_rows: int) -> float:
    """Return the temperature of least loss if its gain is clear on rows that did not choose it, else 1."""
    if labels.target == "score" or len(targets) < least_rows:
        return 1.0
    parts = np.arange(len(targets)) % _PARTS
    gains = np.zeros(len(targets))
    for part in range(_PARTS):
        others, rows = parts != part, parts == part
        temperature = _temperature(probabilities[others], targets[others], labels)
        after = pool([probabilities[rows]], [1.0], labels, temperature)
        gains[rows] = _smoothed_losses(probabilities[rows], targets[rows], labels, len(targets))
        gains[rows] -= _smoothed_losses(after, targets[rows], labels, len(targets))
    clear = gains.mean() > _Z * gains.std(ddof=1) / len(gains) ** 0.5
    return _temperature(probabilities, targets, labels) if clear else 1.0


def _temperature(probabilities: Floats, targets: Doubles, labels: Labels) -> float:
    from scipy.optimize import minimize_scalar

    def loss(power: float) -> float:
        scaled = pool([probabilities], [1.0], labels, float(np.exp(power)))
        return float(_smoothed_losses(scaled, targets, labels, len(targets)).mean())

    best = minimize_scalar(loss, bounds=(np.log(_LOWEST), np.log(_HIGHEST)), method="bounded")
    return float(f"{np.exp(best.x):.4g}")


def _smoothed_losses(probabilities: Floats, targets: Doubles, labels: Labels, rows: int) -> Doubles:
    """Return (rows,) losses for targets that give 1 / (rows + 2) to the other outputs (Platt 1999).

    A few rows that are all predicted correctly do not prove certainty.
    """
    own, share = losses(probabilities, targets, labels), 1 / (rows + 2)
    logs = -np.log(np.maximum(probabilities.astype(np.float64), _LEAST))
    if labels.target == "labels":
        others = -np.log(np.maximum(1 - probabilities.astype(np.float64), _LEAST))
        other = np.where(targets > 0, others, logs).sum(axis=1)
    else:
        present = probabilities > 0
        counts = np.maximum(present.sum(axis=1) - 1, 1)
        other = ((logs * present).sum(axis=1) - own) / counts
    return (1 - share) * own + share * other
