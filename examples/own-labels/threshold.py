import json
from pathlib import Path

import headwater as hw

calibration = json.loads(Path("packages/metrics.json").read_text(encoding="utf-8"))["calibration"]
for one in calibration["coverage"]:
    print(f"{one['share']:4.0%} of the rows, from {one['threshold']:.2f}: accuracy {one['accuracy']:.3f}")

classifier = hw.Classifier.load("packages")
texts = ["import torch", "SELECT name FROM users"]
probabilities = classifier.predict_proba(texts)
sure = probabilities.max(axis=1) >= calibration["coverage"][3]["threshold"]
print(classifier.predict(texts)[sure], sure)
