"""LP-FT (Kumar et al. 2022): begin with a linear probe of the unchanged base, then tune all weights.

A head with random weights first distorts what the base has learned. The probe is logistic regression on the base's
features, each brought to variance 1; the scaling is part of the head's weights afterwards. Cross-validation on the
training rows chooses the strength of its regularisation and, for a causal model, between the mean over the tokens
and the last one. The measurement of the probe on the validation rows is kept: if no epoch improves on it, the
probe is the model.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.model.pooled import Pooled, PooledModel
from headwater.finetuning.rows.labels import Labels

# Inverse strengths of the regularisation, divided by the share of features that a width of 384 has.
STRENGTHS, WIDTH = (0.003, 0.03, 0.3, 3.0), 384
FOLDS = 3
_STEPS = 300
_ABSENT = -10.0  # logit of an output that no training row has
_LEAST = 1e-6
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Start:
    """The probe that training began with, for metrics.json. loss: by cross-validation, of the training rows."""

    pooled: Pooled
    strength: float
    loss: float
    kept: bool = False  # whether no epoch improved on it

    def __str__(self) -> str:
        where = "mean over the tokens" if self.pooled == "mean" else "last token"
        return f"logistic regression on the {where} (C = {self.strength:g} by cross-validation)"


class _Linear(NamedTuple):
    """weight: (outputs, features); bias: (outputs,)."""

    weight: Floats
    bias: Floats

    def loss(self, features: Floats, targets: Floats) -> float:
        """Return the mean of −Σ p log P over rows, as `head.class_loss`."""
        logits = torch.from_numpy(features @ self.weight.T + self.bias)
        if targets.shape[1] == 2 * logits.shape[1]:
            logarithms = torch.nn.functional.logsigmoid(torch.cat([logits, -logits], dim=1))
        else:
            logarithms = logits.log_softmax(dim=1)
        return float(-(torch.from_numpy(targets) * logarithms).sum(dim=1).mean())


def fit_probe(model: PooledModel, train: Encoded, labels: Labels, weights: Floats, seed: int) -> Start:
    """Set the head of an untrained model by logistic regression on its features; return what was chosen.

    weights: (examples,) of each row in the loss.
    """
    targets = labels.probabilities(train)
    choices: tuple[Pooled, ...] = ("mean", "last") if model.model.config.is_causal else ("mean",)
    tried: list[tuple[float, Pooled, float]] = []
    features: dict[Pooled, Floats] = {}
    several = labels.target == "labels"
    for pooled in choices:
        model.pooled = pooled
        features[pooled] = model.all_features(train)
        folds = list(_folds(targets, seed))
        strengths = [one * WIDTH / features[pooled].shape[1] for one in STRENGTHS]
        for strength in strengths:
            losses = [
                _fit(features[pooled][one], targets[one], weights[one], strength, several).loss(
                    features[pooled][other], targets[other]
                )
                for one, other in folds
            ]
            tried.append((float(np.mean(losses)) if losses else 0.0, pooled, strength))
    # Too few rows to hold any back: the second strength.
    loss, pooled, strength = min(tried) if tried[0][0] else tried[1]
    model.pooled = pooled
    found = _fit(features[pooled], targets, weights, strength, several)
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(found.weight))
        model.head.bias.copy_(torch.from_numpy(found.bias))
    return Start(pooled, float(f"{strength:.2g}"), loss)


def _folds(targets: Floats, seed: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield (rows to learn from, rows held back); rows of an output are spread evenly over the folds."""
    if len(targets) < 2 * FOLDS:
        return
    order = np.random.default_rng(seed).permutation(len(targets))
    order = order[np.argsort(targets[order].argmax(axis=1), kind="stable")]
    for fold in range(FOLDS):
        held = np.arange(len(order)) % FOLDS == fold
        yield order[~held], order[held]


def _fit(features: Floats, targets: Floats, weights: Floats, strength: float, several: bool) -> _Linear:
    """Return logistic regression on features of variance 1, as weights of the features themselves.

    Several labels (targets of twice the outputs: present, then absent) are a regression each.
    """
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


def _regression(scaled: Floats, targets: Floats, weights: Floats, strength: float) -> _Linear:
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
    model: Any = LogisticRegression(C=strength, max_iter=_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without convergence it is a start all the same
        model.fit(scaled[rows], outputs, sample_weight=targets[rows, outputs] * weights[rows])
    if len(present) == 2:
        weight[present] = np.stack([-model.coef_[0] / 2, model.coef_[0] / 2])
        bias[present] = np.array([-1, 1]) * model.intercept_[0] / 2
    else:
        weight[present], bias[present] = model.coef_, model.intercept_
    return _Linear(weight, bias)
