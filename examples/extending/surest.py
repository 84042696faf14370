"""The accuracy of the rows that a classifier is surest of: how many it may decide alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import headwater as hw


def accuracy_of_surest(
    classifier: hw.Classifier, texts: Sequence[str], labels: Sequence[str], share: float
) -> float:
    """Return the accuracy on the `share` of the rows with the largest probabilities."""
    probabilities = classifier.predict_proba(texts)
    surest = np.argsort(-probabilities.max(axis=1))[: max(1, round(share * len(texts)))]
    right = classifier.classes_[probabilities.argmax(axis=1)] == np.asarray(labels)
    return float(right[surest].mean())


rows = {}
for part in ("train", "validation"):
    lines = Path(f"quickstart/labels/source/{part}.jsonl").read_text(encoding="utf-8").splitlines()
    parsed = [json.loads(line) for line in lines]
    rows[part] = [row["text"] for row in parsed], [row["label"] for row in parsed]
classifier = hw.Classifier(base="quickstart/run/model").fit(*rows["train"])
for share in (1.0, 0.5, 0.1):
    print(f"{accuracy_of_surest(classifier, *rows['validation'], share):.0%} of the surest {share:.0%} are right")
