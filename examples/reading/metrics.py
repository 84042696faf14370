"""Four metrics on ten pairs of texts, seven of which mean the same: a constant answer, and a better one."""

import math
from statistics import correlation

truth = [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]
answers = {"always 1": [1] * 10, "8 of 10 right": [1, 1, 1, 1, 1, 1, 0, 0, 0, 1]}
for name, answer in answers.items():
    pairs = list(zip(truth, answer, strict=True))
    tp, tn, fp, fn = (pairs.count(kind) for kind in ((1, 1), (0, 0), (0, 1), (1, 0)))
    accuracy = (tp + tn) / len(pairs)
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    f1 = 2 * precision * recall / (precision + recall)
    below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    matthews = (tp * tn - fp * fn) / below if below else 0.0
    print(f"{name:14} accuracy {accuracy:.2f}, F1 {f1:.2f}, Matthews {matthews:.2f}")
alike, predicted = [0.0, 1.0, 2.5, 4.0, 5.0], [1.0, 1.2, 2.0, 2.9, 3.5]
print(f"Pearson of {alike} and {predicted}: {correlation(alike, predicted):.2f}")
