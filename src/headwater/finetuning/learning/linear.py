"""Linear models on features: logistic regression, ridge regression of scores, and the choice of their strength.

The probe reads a base's features, each brought to variance 1, and TF-IDF's model sparse ones as they are. With
fewer rows than sparse features the regression is of the rows' coordinates in their own span, which has the same
solution. The regularisation strength and the factor of the logits have the lowest loss on held-out rows: under
strong regularisation, a model ranks well but is too unsure.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse

from headwater.finetuning.model.heads import Pooled, log_probabilities
from headwater.finetuning.rows.labels import Labels

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]
# Rows to learn from and rows that are held out from them.
Split = tuple[Rows, Rows]
# Inverse strengths of the regularisation: of the probe divided by the share of features that a width of 384 has.
PROBE_STRENGTHS, PROBE_WIDTH, TFIDF_STRENGTHS = (0.003, 0.03, 0.3, 3.0), 384, (0.3, 3.0, 30.0)
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# Steps of the regression: without convergence it is good enough, so its work is bounded.
_STEPS, _FEWEST_STEPS, _WORK = 300, 20, 2e10
_ABSENT = -10.0  # logit of an output that no training row has
_LEAST = 1e-6


class LinearWeights(NamedTuple):
    """weight: (outputs, features); bias: (outputs,)."""

    weight: Floats
    bias: Floats

    def logits(self, features: Any) -> Floats:
        """(rows, features) -> (rows, outputs)."""
        return np.asarray(features @ self.weight.T + self.bias, np.float32)

    def scaled(self, scale: float) -> LinearWeights:
        """Return this with its logits multiplied."""
        return LinearWeights(self.weight * np.float32(scale), self.bias * np.float32(scale))


@dataclass(frozen=True)
class LinearChoice:
    """The features, by name, and the strength and scale of the lowest loss on held-out rows; that loss."""

    features: str
    strength: float
    scale: float
    loss: float

    @property
    def pooled(self) -> Pooled:
        """The pooling whose features the probe reads."""
        return "last" if self.features == "last" else "mean"


def sampled(rows: Rows, most: int) -> Rows:
    """Return at most `most` of the rows, drawn at random and in order; the draw depends on their number alone."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(len(rows)).choice(len(rows), most, replace=False))]


def choose_linear(
    features: Mapping[Any, Any],
    targets: Floats,
    weights: Floats,
    labels: Labels,
    splits: Sequence[Split],
    strengths: Sequence[float],
) -> tuple[LinearChoice, Floats]:
    """Return the best choice and its probabilities of the held-out rows, in the splits' order.

    features: matrices (rows, features) by name; targets: (rows, outputs) probabilities, see `Labels`; weights:
    (rows,) of each in the loss. An output that a split did not learn is not in the loss.
    """
    several = labels.target == "labels"
    held = np.concatenate([held for _, held in splits])
    learned = learned_outputs(targets, weights, splits)
    smoothed = _smoothed(targets, labels)[held] * learned
    importance = weights[held] * (targets[held] * learned).any(axis=1)
    best: tuple[LinearChoice, Floats] | None = None
    for name, matrix in features.items():
        paths = [
            fit_path(matrix[learn], targets[learn], weights[learn], strengths, several) for learn, _ in splits
        ]
        before = np.inf
        for number, strength in enumerate(strengths):
            logits = np.concatenate(
                [path[number].logits(matrix[rows]) for path, (_, rows) in zip(paths, splits, strict=True)]
            )
            losses = [(_loss(logits * np.float32(scale), smoothed, importance), scale) for scale in SCALES]
            loss, scale = min(losses)
            if best is None or loss < best[0].loss:
                best = (
                    LinearChoice(name, strength, scale, loss),
                    probabilities_of(logits * np.float32(scale), several),
                )
            if loss > before:  # more freedom would cost more
                break
            before = loss
    assert best is not None
    return best


def learned_outputs(targets: Floats, weights: Floats, splits: Sequence[Split]) -> npt.NDArray[np.bool_]:
    """Return (held-out rows, outputs): whether a row of the split that a row is held out from has that output."""
    has = [(targets[learn] * weights[learn, None]).any(axis=0) for learn, _ in splits]
    return np.repeat(has, [len(held) for _, held in splits], axis=0)


def probabilities_of(logits: Floats, several: bool) -> Floats:
    """(rows, outputs) -> the same: softmax, or of several labels σ."""
    values = torch.from_numpy(logits)
    return (values.sigmoid() if several else values.softmax(dim=1)).numpy()


def best_scale(probabilities: Floats, targets: Floats, weights: Floats, labels: Labels) -> float:
    """Return the factor of the logits with the lowest loss."""
    logits, smoothed = logits_of(probabilities, labels), _smoothed(targets, labels)
    return min((_loss(logits * np.float32(scale), smoothed, weights), scale) for scale in SCALES)[1]


def logits_of(probabilities: Floats, labels: Labels) -> Floats:
    """Return logits that have these probabilities."""
    shares = np.clip(probabilities.astype(np.float64), 1e-12, 1)
    logits = np.log(shares)
    if labels.target == "labels":
        logits -= np.log(np.clip(1 - probabilities.astype(np.float64), 1e-12, 1))
    return logits.astype(np.float32)


def _smoothed(targets: Floats, labels: Labels) -> Floats:
    """Return targets of less than certainty, as Platt's (1999): a few rows that are separated do not prove it."""
    doubt = 1 / (len(targets) / max(2, labels.outputs) + 2)
    return np.float32(1 - doubt) * targets + np.float32(
        doubt / (2 if labels.target == "labels" else targets.shape[1])
    )


def _loss(logits: Floats, targets: Floats, weights: Floats) -> float:
    values, wanted = torch.from_numpy(np.ascontiguousarray(logits)), torch.from_numpy(targets)
    losses = -(wanted * log_probabilities(values, wanted)).sum(dim=1).numpy()
    return float(np.average(losses, weights=weights if weights.any() else None))


def fit_path(
    features: Any, targets: Floats, weights: Floats, strengths: Sequence[float], several: bool
) -> list[LinearWeights]:
    """Return a regression for each strength, as weights of the features themselves."""
    if issparse(features):
        return _sparse_path(features, targets, weights, strengths, several)
    mean, deviation = features.mean(axis=0), features.std(axis=0) + _LEAST
    scaled = (features - mean) / deviation
    return [
        LinearWeights((fit.weight / deviation).astype(np.float32), fit.bias - (fit.weight / deviation) @ mean)
        for fit in (_regressions(scaled, targets, weights, strength, several) for strength in strengths)
    ]


def _sparse_path(
    features: Any, targets: Floats, weights: Floats, strengths: Sequence[float], several: bool
) -> list[LinearWeights]:
    if features.shape[0] >= min(2_000, features.shape[1]):
        return [_regressions(features, targets, weights, strength, several) for strength in strengths]
    values, vectors = np.linalg.eigh((features @ features.T).toarray().astype(np.float64))
    span = values > max(values[-1], 1e-12) * 1e-9
    scale = np.sqrt(values[span])
    inside, back = vectors[:, span] * scale, vectors[:, span] / scale
    path = []
    for strength in strengths:
        fitted = _regressions(inside, targets, weights, strength, several)
        weight = np.ascontiguousarray((features.T @ (back @ fitted.weight.T)).T, np.float32)
        path.append(LinearWeights(weight, fitted.bias))
    return path


def _regressions(features: Any, targets: Floats, weights: Floats, strength: float, several: bool) -> LinearWeights:
    """Return softmax regression; several labels (targets of twice the outputs) are a regression each."""
    if not several:
        return _regression(features, targets, weights, strength)
    width = targets.shape[1] // 2
    each = [_regression(features, targets[:, [n + width, n]], weights, strength) for n in range(width)]
    return LinearWeights(
        np.stack([fit.weight[1] - fit.weight[0] for fit in each]),
        np.array([fit.bias[1] - fit.bias[0] for fit in each], np.float32),
    )


def _regression(features: Any, targets: Floats, weights: Floats, strength: float) -> LinearWeights:
    """Return softmax regression on targets that are probabilities: a row counts once for each of its outputs."""
    state = random.getstate()  # importing it draws from Python's generator, on some versions
    from sklearn.linear_model import LogisticRegression

    random.setstate(state)
    rows, outputs = np.nonzero(targets * weights[:, None])
    present = np.unique(outputs)
    weight = np.zeros((targets.shape[1], features.shape[1]), np.float32)
    bias = np.full(targets.shape[1], _ABSENT, np.float32)
    if len(present) < 2:
        bias[present] = 0
        return LinearWeights(weight, bias)
    size = features.nnz if issparse(features) else features.size
    steps = round(min(_STEPS, max(_FEWEST_STEPS, _WORK / max(1, size * len(present)))))
    model: Any = LogisticRegression(C=strength, max_iter=steps)
    whole = len(rows) == features.shape[0] and bool((rows == np.arange(len(rows))).all())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without convergence it is good enough
        model.fit(
            features if whole else features[rows], outputs, sample_weight=targets[rows, outputs] * weights[rows]
        )
    if len(present) == 2:
        weight[present] = np.stack([-model.coef_[0] / 2, model.coef_[0] / 2])
        bias[present] = np.array([-1, 1]) * model.intercept_[0] / 2
    else:
        weight[present], bias[present] = model.coef_, model.intercept_
    return LinearWeights(weight, bias)
