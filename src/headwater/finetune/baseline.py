"""The baseline of every fine-tuning: TF-IDF of character n-grams, trained on the same rows in seconds.

A fine-tuned model that does not beat it is not worth its cost. Classes of one text: logistic regression; scores:
ridge regression; a pair: the same on the cosine of the two texts; a choice: the answer with the largest cosine to
context and question. TF-IDF as in Salton and Buckley 1988, by scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.datasets.rows import Metric, Task
from headwater.finetune.examples import Labels, class_name
from headwater.finetune.metrics import measure_classes, measure_scores

NAMES: dict[Task, str] = {
    "classify": "TF-IDF of character n-grams",
    "entail": "TF-IDF cosine",
    "similarity": "TF-IDF cosine",
    "choice": "TF-IDF cosine",
}
ADVICE = "try more rows, more epochs, another learning rate or a larger model, or use the baseline"
# With more characters a text, rows or n-grams the baseline would take minutes.
CHARACTERS, ROWS, FEATURES = 2_000, 20_000, 50_000

ClassWeight = Literal["balanced"] | Mapping[Any, float] | None
Segments = Sequence[tuple[str, ...]]
Floats = npt.NDArray[np.float64]


def compare(
    task: Task,
    labels: Labels,
    metric: Metric,
    train: tuple[Segments, Floats],
    parts: Mapping[str, tuple[Segments, Floats]],
    *,
    seed: int = 1,
    class_weight: ClassWeight = None,
) -> dict[str, dict[str, Any]]:
    """Fit the baseline on `train` and measure it on each part: (texts, targets) by name -> figures by name.

    Rows without a target are ignored, and a part without any target is omitted.
    """
    baseline = Baseline(task, labels, class_weight=class_weight).fit(*train, seed=seed)
    measured: dict[str, dict[str, Any]] = {}
    for name, (segments, targets) in parts.items():
        known = np.flatnonzero(np.isfinite(targets))
        if not len(known):
            continue
        truth, decided = targets[known], baseline.decide([segments[int(n)] for n in known])
        if labels.target == "score":
            figures = measure_scores(truth, decided)
        else:
            classes = max(labels.outputs, int(max(truth.max(), decided.max())) + 1)
            figures = measure_classes(truth.astype(np.int64), decided.astype(np.int64), classes)
        measured[name] = {"name": NAMES[task], "rows": min(len(train[0]), ROWS), **figures[metric]}
    return measured


class Baseline:
    """Fit on rows with known targets, then `decide` as a fine-tuned model."""

    def __init__(self, task: Task, labels: Labels, *, class_weight: ClassWeight = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.task, self.labels, self.class_weight = task, labels, class_weight
        self._vectors = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=FEATURES, dtype=np.float32
        )
        self._model: Any = None

    def fit(self, segments: Segments, targets: Floats, *, seed: int = 1) -> Baseline:
        """Learn from rows' texts and targets, each a class index or a score; return self."""
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression, Ridge

        if len(segments) > ROWS:
            chosen = np.sort(np.random.default_rng(seed).permutation(len(segments))[:ROWS])
            segments, targets = [segments[n] for n in chosen], targets[chosen]
        try:
            self._vectors.fit([_cut(text) for row in segments for text in row])
        except ValueError:  # no text has two characters in a row
            self._vectors = None
        if self.task == "choice":
            return self
        features = self._features(segments)
        score = self.labels.target == "score"
        weight: Any = self.class_weight
        if isinstance(weight, Mapping):
            by_name = {class_name(label): value for label, value in weight.items()}
            weight = {n: by_name.get(name, 1.0) for n, name in enumerate(self.labels.names)}
        model: Any = LogisticRegression(C=10, max_iter=300, class_weight=weight)
        if score:
            model = Ridge()
        elif len(np.unique(targets)) == 1:  # logistic regression needs two classes
            model = DummyClassifier()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 300 steps without convergence are enough for a baseline
            self._model = model.fit(features, targets if score else targets.astype(np.int64))
        return self

    def decide(self, segments: Segments) -> Floats:
        """Return (rows,): the index of the most probable class or answer, or the score."""
        if self.task == "choice":
            return self._answers(segments)
        decided = self._model.predict(self._features(segments)).astype(np.float64)
        if self.labels.target == "score":
            return np.clip(decided, self.labels.levels[0], self.labels.levels[-1])
        return decided

    def _features(self, segments: Segments) -> Any:
        if self.task == "classify":
            return self._rows([text for (text,) in segments])
        return self._cosines([first for first, _ in segments], [second for _, second in segments])[:, None]

    def _rows(self, texts: Sequence[str]) -> Any:
        if self._vectors is None:
            return np.zeros((len(texts), 1), dtype=np.float32)
        return self._vectors.transform([_cut(text) for text in texts])

    def _cosines(self, first: Sequence[str], second: Sequence[str]) -> Floats:
        """Return (pairs,) cosines: TF-IDF vectors have length 1."""
        one, two = self._rows(first), self._rows(second)
        product = one.multiply(two) if hasattr(one, "multiply") else one * two
        return np.asarray(product.sum(axis=1), dtype=np.float64).ravel()

    def _answers(self, segments: Segments) -> Floats:
        """Return (rows,): the answer with the largest cosine to context and question; ties go to the first."""
        counts = [len(row) - 2 for row in segments]
        stories = [f"{row[0]} {row[1]}" for row in segments for _ in row[2:]]
        cosines = self._cosines(stories, [answer for row in segments for answer in row[2:]])
        return np.array([part.argmax() for part in np.split(cosines, np.cumsum(counts)[:-1])], dtype=np.float64)


def _cut(text: str) -> str:
    return text[:CHARACTERS]
