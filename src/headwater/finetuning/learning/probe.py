"""LP-FT (Kumar et al. 2022): begin with a linear probe of the unchanged base, then tune all weights.

A head with random weights first distorts what the base has learned. The probe is logistic regression on the base's
features, each brought to variance 1; the scaling is part of the head's weights afterwards. Cross-validation on the
training rows chooses the strength of its regularisation and, for a causal model, between the mean over the tokens
and the last one. The probe is measured on the validation rows before tuning: if it is better than tuning by more
than chance may be (see `train`), the probe is the model.

The loss of a probe that separates its rows teaches the base little more. So classes are tuned on cosines between
features and a direction for each class (Wang et al. 2017), and the regression is fitted again on tuned features.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import hstack, issparse, vstack

from headwater.finetuning.model.head import log_probabilities
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.model.ngrams import NGRAMS
from headwater.finetuning.model.pooled import Pooled, PooledModel
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.split import FOLDS

# Inverse strengths of the regularisation, divided by the share of features that a width of 384 has.
STRENGTHS, WIDTH = (0.003, 0.03, 0.3, 3.0), 384
# Factors for a probe's logits: under strong regularisation it ranks well, but its probabilities are too even.
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# Steps of the regression: it is a start without convergence too, so its work is bounded.
_STEPS, _FEWEST_STEPS, _WORK = 300, 20, 2e10
# Of a probe that reads n-grams too: its strengths, and the factor of the base's features of variance 1.
_LEXICAL_STRENGTHS, _LEXICAL_SHARE = (3.0, 30.0), 0.03
_ABSENT = -10.0  # logit of an output that no training row has
_LEAST = 1e-6
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Probe:
    """The probe that training began with, for metrics.json.

    loss: of the training rows, by cross-validation, with the logits multiplied by `scale`.
    """

    pooled: Pooled
    strength: float
    loss: float
    scale: float = 1.0
    lexical: bool = False
    kept: bool = False  # whether it is the model, because tuning did not improve on it enough

    def named(self, labels: Labels) -> str:
        """Return what the probe is, in words."""
        kind = "regression" if labels.target == "score" else "logistic regression"
        where = "mean over the tokens" if self.pooled == "mean" else "last token"
        where += " and TF-IDF" * self.lexical
        return f"{kind} on the {where} (C = {self.strength:g} by cross-validation)"


class _Linear(NamedTuple):
    """weight: (outputs, features); bias: (outputs,)."""

    weight: Floats
    bias: Floats

    def scaled(self, scale: float) -> _Linear:
        return _Linear(self.weight * np.float32(scale), self.bias * np.float32(scale))

    def loss(self, features: Any, targets: Floats, scale: float = 1.0) -> float:
        """Return the mean of −Σ p log P over rows, as `head.class_loss`, of the logits times the scale."""
        logits, wanted = torch.from_numpy(features @ self.weight.T + self.bias) * scale, torch.from_numpy(targets)
        return float(-(wanted * log_probabilities(logits, wanted)).sum(dim=1).mean())


def choose_probe(train: Encoded, labels: Labels, weights: Floats, fold: npt.NDArray[np.int64] | None) -> Probe:
    """Return the pooling, the strength and the scale with the lowest loss in a cross-validation.

    train: with features. weights: (examples,) of each row in the loss. fold: (examples,) the fold of each, -1 for
    a row that is left out; None for too few rows to hold any back: the first pooling and the second strength.
    """
    assert train.features is not None
    targets, several = labels.probabilities(train), labels.target == "labels"
    # Smoothed as by Platt (1999): few rows that are separated do not make the probe certain.
    doubt = 1 / (len(targets) / labels.outputs + 2)
    smoothed = (1 - doubt) * targets + doubt / (2 if several else targets.shape[1])
    tried: list[tuple[float, str, float, float]] = []
    for pooled, features in train.features.items():
        before = np.inf
        strengths = [one * WIDTH / features.shape[1] for one in STRENGTHS]
        for strength in _LEXICAL_STRENGTHS if issparse(features) else strengths:
            if fold is None:
                tried.append((0.0, pooled, strength, 1.0))
                continue
            losses = []
            for number in range(FOLDS):
                held_out, left = fold == number, (fold >= 0) & (fold != number)
                found = _fit(features[left], targets[left], weights[left], strength, several)
                losses.append([found.loss(features[held_out], smoothed[held_out], scale) for scale in SCALES])
            loss, scale = min(zip(np.mean(losses, axis=0).tolist(), SCALES, strict=True))
            tried.append((loss, pooled, strength, scale))
            if loss > before:  # more freedom would cost more, and take the longest to fit
                break
            before = loss
    loss, pooled, strength, scale = tried[1] if fold is None else min(tried)
    return Probe("mean" if pooled == "mean" else "last", float(f"{strength:.2g}"), loss, scale)


def fit_probe(
    model: PooledModel, encoded: Sequence[Encoded], labels: Labels, weights: Floats, start: Probe
) -> float:
    """Set the head by a regression on the model's features; return the loss of the rows.

    encoded: with features. weights: of all their rows.
    """
    model.pooled, model.reads_cosines = start.pooled, False
    each = [one.features[start.pooled] for one in encoded if one.features is not None]
    features = vstack(each, format="csr") if issparse(each[0]) else np.concatenate(each)
    targets = np.concatenate([labels.probabilities(one) for one in encoded])
    found = _fit(features, targets, weights, start.strength, labels.target == "labels").scaled(start.scale)
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(found.weight))
        model.head.bias.copy_(torch.from_numpy(found.bias))
    return found.loss(features, targets)


def predict_by_probe(
    train: Encoded, held_out: Encoded, labels: Labels, weights: Floats, start: Probe
) -> tuple[dict[str, float], Floats]:
    """Return the losses of a probe of the rows `train`, and (rows, outputs): what it predicts for those held out.

    Both have features.
    """
    assert train.features is not None
    assert held_out.features is not None
    targets, several = labels.probabilities(train), labels.target == "labels"
    features, others = train.features[start.pooled], held_out.features[start.pooled]
    found = _fit(features, targets, weights, start.strength, several).scaled(start.scale)
    logits = torch.from_numpy(others @ found.weight.T + found.bias)
    losses = {"training_loss": found.loss(features, targets)}
    losses["validation_loss"] = found.loss(others, labels.probabilities(held_out))
    return losses, (logits.sigmoid() if several else logits.softmax(dim=1)).numpy()


def _fit(features: Any, targets: Floats, weights: Floats, strength: float, several: bool) -> _Linear:
    """Return logistic regression on features of variance 1, as weights of the features themselves.

    Several labels (targets of twice the outputs: present, then absent) are a regression each.
    """
    if issparse(features):
        base, ngrams = features[:, :-NGRAMS].toarray(), features[:, -NGRAMS:]
        mean, deviation = np.zeros(features.shape[1], np.float32), np.ones(features.shape[1], np.float32)
        mean[:-NGRAMS], deviation[:-NGRAMS] = base.mean(axis=0), (base.std(axis=0) + _LEAST) / _LEXICAL_SHARE
        scaled = hstack([(base - mean[:-NGRAMS]) / deviation[:-NGRAMS], ngrams]).tocsr()
    else:
        mean, deviation = features.mean(axis=0), features.std(axis=0) + _LEAST
        scaled = (features - mean) / deviation
    width = targets.shape[1]
    if several:
        each = [_regression(scaled, targets[:, [n + width // 2, n]], weights, strength) for n in range(width // 2)]
        found = _Linear(
            np.stack([one.weight[1] - one.weight[0] for one in each]),
            np.array([one.bias[1] - one.bias[0] for one in each]),
        )
    else:
        found = _regression(scaled, targets, weights, strength)
    weight = found.weight / deviation
    return _Linear(weight.astype(np.float32), (found.bias - weight @ mean).astype(np.float32))


def _regression(scaled: Any, targets: Floats, weights: Floats, strength: float) -> _Linear:
    """Return softmax regression on targets that are probabilities: a row counts once for each of its outputs."""
    state = random.getstate()  # importing it draws from Python's generator, on some versions
    from sklearn.linear_model import LogisticRegression

    random.setstate(state)
    rows, outputs = np.nonzero(targets)
    present = np.unique(outputs)
    weight = np.zeros((targets.shape[1], scaled.shape[1]), np.float32)
    bias = np.full(targets.shape[1], _ABSENT, np.float32)
    if len(present) == 1:
        bias[present] = 0
        return _Linear(weight, bias)
    steps = round(min(_STEPS, max(_FEWEST_STEPS, _WORK / (scaled.shape[0] * weight.size))))
    model: Any = LogisticRegression(C=strength, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without convergence it is a start all the same
        model.fit(scaled[rows], outputs, sample_weight=targets[rows, outputs] * weights[rows])
    if len(present) == 2:
        weight[present] = np.stack([-model.coef_[0] / 2, model.coef_[0] / 2])
        bias[present] = np.array([-1, 1]) * model.intercept_[0] / 2
    else:
        weight[present], bias[present] = model.coef_, model.intercept_
    return _Linear(weight, bias)
