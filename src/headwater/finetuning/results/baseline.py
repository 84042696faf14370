"""The baseline of every fine-tuning: a linear model on TF-IDF, trained on the same rows in seconds.

A fine-tuned model that does not beat it is not worth its cost. The features are TF-IDF of words and character
n-grams (Salton and Buckley 1988). One text alone decides many pairs (Gururangan et al. 2018) and endings (Schwartz
et al. 2017), the overlap decides others: a pair, or a context and its answer, has the n-grams of both and how much
they overlap. Logistic regression decides classes, answers and each of several labels; ridge regression
decides scores. Cross-validation on the training rows chooses the strength of the regularisation.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.finetuning.results.metrics import measure_decisions
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MetricName, TaskName, class_name

ADVICE = (
    "for English take the encoder minilm, if it is not the base already (--model minilm --download), "
    "label more rows, or use the baseline"
)
# With more characters a text, rows or n-grams the baseline would take minutes.
CHARACTERS, BASELINE_ROWS, FEATURES = 2_000, 20_000, 50_000
# Inverse strengths of the regularisation, and the folds that choose one. With more rows or classes it is fixed;
# with more classes the weights have at most this many numbers.
STRENGTHS, FOLDS, CROSS_VALIDATED = (0.3, 3.0, 30.0), 3, 3_000
MOST_COMPARED, _WEIGHTS = 100, 10_000_000
_STEPS = 300  # of logistic regression; without convergence they are enough for a baseline
_WORD = re.compile(r"\w+")

ClassWeight = Literal["balanced"] | Mapping[Any, float] | None
Segments = Sequence[tuple[str, ...]]
Floats = npt.NDArray[np.float64]


def compare(
    task: TaskName,
    labels: Labels,
    metric: MetricName,
    train: tuple[Segments, Floats],
    parts: Mapping[str, tuple[Segments, Floats]],
    *,
    seed: int = 1,
    class_weight: ClassWeight = None,
    fold: npt.NDArray[np.int64] | None = None,
) -> dict[str, dict[str, Any]]:
    """Fit the baseline on `train` and measure it on each part: (texts, targets) by name -> figures by name.

    Rows without a target are ignored, and a part without any target is omitted. fold: (training rows,) of each in
    a cross-validation; the first part is then the training rows, each decided by a baseline without its fold.
    """

    def fitted(kept: npt.NDArray[np.intp]) -> Baseline:
        segments = [train[0][int(row)] for row in kept]
        return Baseline(task, labels, class_weight).fit(segments, train[1][kept], seed=seed)

    baseline = fitted(np.arange(len(train[0])))
    measured: dict[str, dict[str, Any]] = {}
    for name, (segments, targets) in parts.items():
        known = np.flatnonzero(np.isfinite(targets).reshape(len(targets), -1).all(axis=1))
        if not len(known):
            continue
        if fold is not None and not measured:
            decided, truth = np.empty(targets.shape), targets
            for number in np.unique(fold):
                held_out = np.flatnonzero(fold == number)
                decided[held_out] = fitted(np.flatnonzero(fold != number)).decide(
                    [segments[int(row)] for row in held_out]
                )
        else:
            truth, decided = targets[known], baseline.decide([segments[int(row)] for row in known])
        figures = measure_decisions(labels.target, truth, decided, labels.outputs)
        measured[name] = {"name": baseline.name, "rows": min(len(train[0]), BASELINE_ROWS), **figures[metric]}
    return measured


class Baseline:
    """Fit on rows with known targets, then `decide` as a fine-tuned model.

    A choice is decided line by line, one for each answer: whether it is right.
    """

    def __init__(self, task: TaskName, labels: Labels, class_weight: ClassWeight = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.task, self.labels, self.class_weight = task, labels, class_weight
        self.name = "TF-IDF of words and character n-grams" + (", overlap of both texts" * (task != "classify"))
        most = min(FEATURES, max(1_000, _WEIGHTS // max(1, labels.outputs)))
        shared: dict[str, Any] = {"sublinear_tf": True, "max_features": most, "dtype": np.float32}
        self._vectors = [
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **shared),
            TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), **shared),
        ]
        self._model: Any = None

    def fit(self, segments: Segments, targets: Floats, *, seed: int = 1) -> Baseline:
        """Learn from rows' texts and targets, each a class index, an answer's index or a score; return self."""
        order = np.random.default_rng(seed).permutation(len(segments))[:BASELINE_ROWS]
        segments, targets = [segments[row] for row in order], targets[order]
        lines: Any = targets if self.labels.target == "score" else targets.astype(np.int64)
        if self.task == "choice":
            lines = np.concatenate(
                [np.arange(len(row) - 2) == right for row, right in zip(segments, targets, strict=True)]
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # logistic regression without convergence
            self._model = self._linear(lines).fit(self.fitted_features(segments), lines)
        return self

    def decide(self, segments: Segments) -> Floats:
        """Return (rows,): the index of the most probable class or answer, or the score."""
        features = self._features(segments)
        if self.task == "choice":  # the answer that is most probably right; ties go to the first
            ends = np.cumsum([len(row) - 2 for row in segments])
            parts = np.split(self._model.decision_function(features), ends[:-1])
            return np.array([part.argmax() for part in parts], dtype=np.float64)
        return np.asarray(self._model.predict(features), dtype=np.float64)

    def _linear(self, lines: Any) -> Any:
        """Return an unfitted linear model for targets of each row or answer."""
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
        from sklearn.multiclass import OneVsRestClassifier

        if self.labels.target == "score":
            return RidgeCV([1 / strength for strength in STRENGTHS], cv=FOLDS if len(lines) > FOLDS else None)
        if self.labels.target == "labels":
            return OneVsRestClassifier(LogisticRegression(C=STRENGTHS[1], max_iter=_STEPS))
        counts = np.unique(lines, return_counts=True)[1]
        if len(counts) == 1:  # logistic regression needs two classes
            return DummyClassifier()
        weight: Any = self.class_weight
        if isinstance(weight, Mapping):
            by_name = {class_name(label): value for label, value in weight.items()}
            weight = {n: by_name.get(class_name(name), 1.0) for n, name in enumerate(self.labels.names)}
        shared: dict[str, Any] = {"max_iter": _STEPS, "class_weight": weight}
        many = len(counts) > MOST_COMPARED
        if many or len(lines) > CROSS_VALIDATED or counts.min() < FOLDS:
            return LogisticRegression(C=STRENGTHS[-1 if many else 1], **shared)
        return LogisticRegressionCV(Cs=STRENGTHS, cv=FOLDS, **shared)

    def fitted_features(self, segments: Segments) -> Any:
        """Return (rows or answers, features) of rows after learning their n-grams."""
        texts = [_cut(text) for row in segments for text in row]
        for vectors in self._vectors:
            vectors.fit(texts)
        return self._features(segments)

    def _features(self, segments: Segments) -> Any:
        from scipy.sparse import csr_matrix, hstack

        if self.task == "choice":
            pairs = [(f"{row[0]} {row[1]}", answer) for row in segments for answer in row[2:]]
        else:
            pairs = [(row[0], row[-1]) for row in segments]
        sides = zip(*pairs, strict=True) if self.task != "classify" else [[first for first, _ in pairs]]
        one, *two = [
            [vectors.transform(map(_cut, texts)) for vectors in self._vectors] for texts in map(list, sides)
        ]
        blocks: list[Any] = one if self.task != "choice" else []
        if two:
            # TF-IDF vectors have length 1, so their product is the cosine.
            cosines = [csr_matrix(a.multiply(b).sum(axis=1)) for a, b in zip(one, two[0], strict=True)]
            blocks = [*blocks, *two[0], *cosines, csr_matrix(_shared_words(pairs))]
        return hstack(blocks).tocsr()


def _shared_words(pairs: Sequence[tuple[str, str]]) -> Floats:
    """Return (pairs, 3): the shared words' share of the first text's, the second text's and all words."""
    shares = []
    for first, second in pairs:
        one, two = set(_WORD.findall(_cut(first).lower())), set(_WORD.findall(_cut(second).lower()))
        shares.append([len(one & two) / max(1, size) for size in (len(one), len(two), len(one | two))])
    return np.array(shares, dtype=np.float64).reshape(-1, 3)


def _cut(text: str) -> str:
    return text[:CHARACTERS]
