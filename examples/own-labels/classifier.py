import json
from pathlib import Path

import headwater as hw

lines = Path("quickstart/labels/source/train.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]
texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

classifier = hw.Classifier(base="quickstart/run/model").fit(texts, labels)
print(classifier.predict(texts[:3]), labels[:3])
print(dict(zip(classifier.classes_, classifier.predict_proba(texts[:1])[0].round(3), strict=True)))
classifier.save("package-classifier")

again = hw.Classifier.load("package-classifier")
assert list(again.predict(texts[:3])) == list(classifier.predict(texts[:3]))
