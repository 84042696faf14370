import json
from pathlib import Path

from sklearn.model_selection import cross_val_score

import headwater as hw

lines = Path("quickstart/labels/source/train.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines[:300]]
texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

classifier = hw.Classifier(base="quickstart/run/model")
print(cross_val_score(classifier, texts, labels, cv=3))
