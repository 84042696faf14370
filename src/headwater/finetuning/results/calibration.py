"""Calibrate probabilities: divide all logits by one temperature, fitted on validation rows.

Temperature scaling (Guo et al. 2017): P = softmax(z / T), with the T of the lowest loss on rows that were not
trained on. Every prediction stays the same. The head's weights are divided by T, so whatever reads the model has
these probabilities. The targets are those of Platt (1999), n + 1 of n + 2, because a few rows that are all right
do not prove certainty.

Scores have no probability to calibrate, but a scale. An expected level stays in the range of the training rows and
shrinks towards its middle. Ratings stay like this. The levels of scores over a wide range, such as prices, are
stretched by the line of least squares through the validation rows: a row can have more than any training row had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.labels import Labels

if TYPE_CHECKING:
    from headwater.finetuning.learning.train import TrainingOutcome
    from headwater.finetuning.model.inputs import Encoded

Floats = npt.NDArray[np.float64]

# Fewer validation rows do not determine a temperature; the temperatures that are tried.
_FEWEST, _LOWEST, _HIGHEST = 10, 0.05, 20.0
# Bins of equal width of the expected calibration error (Naeini et al. 2015).
_BINS = 15
# The shares of rows, the most confident first, whose accuracy is shown.
_COVERAGE = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
_LARGEST_LOSS = 100.0
_STEEPEST = 2.0  # the largest factor of scores: few rows do not determine it well


def calibrate(outcome: TrainingOutcome, validation: Encoded) -> dict[str, Any] | None:
    """Scale the head's logits, and the outcome's probabilities, by the best temperature for the validation rows.

    Returns, for metrics.json, {"temperature", "ece_before", "rows", "ece", "coverage"}, see `reliability`; of
    scores over a wide range {"slope", "rows"}; None, with nothing changed, for ratings and for fewer than 10 rows.
    """
    labels, targets = outcome.fine_tuned.labels, validation.targets
    if len(targets) < _FEWEST:
        return None
    if labels.target == "score":
        return _stretch(outcome, targets) if labels.is_spread else None
    before, logits = outcome.probabilities, _logits(labels, outcome.probabilities)
    temperature = _fitted(labels, logits, targets)
    outcome.fine_tuned.model.scale_logits(1 / temperature)
    outcome.probabilities = _probabilities(labels, logits / temperature).astype(np.float32)
    errors = {"temperature": temperature, "ece_before": reliability(labels, targets, before)["ece"]}
    return errors | reliability(labels, targets, outcome.probabilities)


def _stretch(outcome: TrainingOutcome, targets: Floats) -> dict[str, Any]:
    """Move the levels of scores by the line from expected to true scores, which is never flatter than 1."""
    labels, expected = outcome.fine_tuned.labels, outcome.fine_tuned.decide(outcome.probabilities)
    spread = float(np.var(expected))
    steep = float(np.cov(expected, targets, bias=True)[0, 1] / spread) if spread else 1.0
    slope = float(f"{min(max(steep, 1.0), _STEEPEST):.4g}")
    levels = targets.mean() + slope * (np.array(labels.levels) - expected.mean())
    outcome.fine_tuned.labels = replace(labels, levels=levels.tolist())
    return {"slope": slope, "rows": len(targets)}


def reliability(labels: Labels, targets: Floats, probabilities: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return {"rows", "ece", "coverage": [{"share", "threshold", "accuracy"}]} of rows that all have a target.

    ece: the mean difference of confidence and accuracy over bins of confidence. coverage: the accuracy of the most
    confident share of the rows, and the confidence from which a row belongs to it. Of several labels, each label
    of each row counts.
    """
    if labels.target == "labels":
        confidence = np.maximum(probabilities, 1 - probabilities).ravel()
        right = ((probabilities >= 0.5) == (targets > 0)).ravel()
    else:
        confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=_BINS)
    order = np.argsort(-confidence, kind="stable")
    accuracy = right[order].cumsum() / np.arange(1, len(right) + 1)
    coverage = []
    for share in _COVERAGE:
        last = max(1, round(share * len(right))) - 1
        threshold = float(confidence[order[last]])
        coverage.append({"share": share, "threshold": threshold, "accuracy": float(accuracy[last])})
    return {"rows": len(targets), "ece": float(np.abs(gaps).sum() / len(right)), "coverage": coverage}


def _logits(labels: Labels, probabilities: npt.NDArray[np.float32]) -> Floats:
    """Return logits that have these probabilities; −∞ for an answer that a row does not have."""
    shares = probabilities.astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.log(shares) - np.log1p(-shares) if labels.target == "labels" else np.log(shares)


def _probabilities(labels: Labels, logits: Floats) -> Floats:
    from scipy.special import expit, softmax

    found: Floats = expit(logits) if labels.target == "labels" else softmax(logits, axis=1)
    return found


def _fitted(labels: Labels, logits: Floats, targets: Floats) -> float:
    """Return the temperature with the lowest cross-entropy, with four digits."""
    from scipy.optimize import minimize_scalar

    smooth = 1 / (len(targets) + 2)
    if labels.target == "labels":
        wanted = np.where(targets > 0, 1 - smooth, smooth)
    else:
        there = np.isfinite(logits)
        wanted = np.where(there, smooth / np.maximum(1, there.sum(axis=1, keepdims=True) - 1), 0.0)
        wanted[np.arange(len(targets)), targets.astype(np.int64)] = 1 - smooth

    def loss(power: float) -> float:
        shares = _probabilities(labels, logits / np.exp(power))
        with np.errstate(divide="ignore"):
            losses = wanted * np.minimum(-np.log(shares), _LARGEST_LOSS)
            if labels.target == "labels":
                losses += (1 - wanted) * np.minimum(-np.log1p(-shares), _LARGEST_LOSS)
        return float(losses.sum())

    best = minimize_scalar(loss, bounds=(np.log(_LOWEST), np.log(_HIGHEST)), method="bounded")
    return float(f"{np.exp(best.x):.4g}")
