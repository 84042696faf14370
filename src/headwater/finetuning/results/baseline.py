"""The baseline of every fine-tuning: a linear model on TF-IDF, trained on the same rows in seconds.

A fine-tuned model that does not beat it is not worth its cost. The features are TF-IDF of words and character
n-grams (Salton and Buckley 1988) and, for a pair or for a context and its answer, how much the two texts overlap.
Logistic regression decides classes, answers and each of several labels; ridge regression decides scores.

One text alone decides many pairs (Gururangan et al. 2018) and endings (Schwartz et al. 2017), the overlap decides
others, and on skewed classes a constant answer can have the highest F1. So sets of features, strengths of the
regularisation and constant answers are compared by cross-validation on the training rows; the best one is used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.finetuning.results.metrics import measure_decisions
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MetricName, TaskName, class_name

# Sets of features by task, the largest last: what is in a set, and its name.
FEATURE_SETS: dict[TaskName, dict[tuple[str, ...], str]] = {
    "classify": {
        ("characters",): "TF-IDF of character n-grams",
        ("characters", "words"): "TF-IDF of words and character n-grams",
    },
    "entail": {
        ("cosine",): "TF-IDF cosine",
        ("overlap",): "overlap of both texts",
        ("overlap", "texts"): "TF-IDF and overlap of both texts",
    },
    "choice": {
        ("cosine",): "TF-IDF cosine",
        ("overlap",): "overlap of answer and context",
        ("overlap", "second"): "TF-IDF of the answer, overlap with the context",
    },
}
FEATURE_SETS["similarity"] = FEATURE_SETS["entail"]
ADVICE = "for English take the encoder minilm (--model minilm), label more rows, or use the baseline"
# With more characters a text, rows or n-grams the baseline would take minutes.
CHARACTERS, BASELINE_ROWS, FEATURES = 2_000, 20_000, 50_000
# The inverse strengths of the regularisation; the rows and the folds of the cross-validation.
STRENGTHS = (0.3, 3.0, 30.0)
CROSS_VALIDATED, FOLDS = 3_000, 3
# With more classes the features are compared with one strength, and the weights have at most this many numbers.
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
        baseline = Baseline(task, labels, metric=metric, class_weight=class_weight)
        return baseline.fit([train[0][int(row)] for row in kept], train[1][kept], seed=seed)

    baseline = fitted(np.arange(len(train[0])))
    measured: dict[str, dict[str, Any]] = {}
    for name, (segments, targets) in parts.items():
        known = np.flatnonzero(np.isfinite(targets).reshape(len(targets), -1).all(axis=1))
        if not len(known):
            continue
        if fold is not None and not measured:
            decided, truth = np.empty(targets.shape), targets
            for number in np.unique(fold):
                held = np.flatnonzero(fold == number)
                decided[held] = fitted(np.flatnonzero(fold != number)).decide([segments[int(row)] for row in held])
        else:
            truth, decided = targets[known], baseline.decide([segments[int(row)] for row in known])
        figures = measure_decisions(labels.target, truth, decided, labels.outputs)
        measured[name] = {"name": baseline.name, "rows": min(len(train[0]), BASELINE_ROWS), **figures[metric]}
    return measured


def comparison(metric: str, model: Mapping[str, Any], measured: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return what `Estimator.compare` returns, from the figures of the model and the baseline on `count` rows."""
    beaten = model["value"] > measured["value"]
    return {
        "metric": metric,
        "model": dict(model),
        "baseline": dict(measured),
        "count": count,
        "beaten": beaten,
    }


def compare_held_out(
    task: TaskName,
    labels: Labels,
    metric: MetricName,
    model: Mapping[str, Any],
    train: tuple[Segments, Floats],
    held: tuple[Segments, Floats],
    *,
    seed: int,
    class_weight: ClassWeight,
    fold: npt.NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Return what `Estimator.compare` returns. model: the model's figures on the rows `held`; fold: as there."""
    parts = {"held": held}
    measured = compare(task, labels, metric, train, parts, seed=seed, class_weight=class_weight, fold=fold)
    return comparison(metric, model, measured["held"], len(held[1]))


def recorded(metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `comparison` in metrics.json; None without a baseline."""
    if "baseline" not in metrics:
        return None
    model = {key: metrics[key] for key in ("value", "interval")}
    return comparison(metrics["metric"], model, metrics["baseline"], metrics["count"])


@dataclass(frozen=True)
class _Candidate:
    """A linear model on a set of features, or an answer that does not depend on the texts."""

    features: tuple[str, ...] = ()
    strength: float = 1.0
    constant: float | None = None


class Baseline:
    """Fit on rows with known targets, then `decide` as a fine-tuned model.

    metric: what the cross-validation compares; by default accuracy, or Pearson's correlation for scores.
    name: what it chose.

    A choice is decided line by line, one for each answer: whether it is right.
    """

    def __init__(
        self, task: TaskName, labels: Labels, *, metric: MetricName | None = None, class_weight: ClassWeight = None
    ) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.task, self.labels, self.class_weight = task, labels, class_weight
        by_target: dict[str, MetricName] = {"score": "pearson", "labels": "micro_f1"}
        self.metric: MetricName = metric or by_target.get(labels.target, "accuracy")
        self.name = ""
        most = min(FEATURES, max(1_000, _WEIGHTS // max(1, labels.outputs)))
        shared: dict[str, Any] = {"sublinear_tf": True, "max_features": most, "dtype": np.float32}
        self._vectors = [
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **shared),
            TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), **shared),
        ]
        self._chosen = _Candidate()
        self._model: Any = None

    def fit(self, segments: Segments, targets: Floats, *, seed: int = 1) -> Baseline:
        """Learn from rows' texts and targets, each a class index, an answer's index or a score; return self."""
        random = np.random.default_rng(seed)
        if len(segments) > BASELINE_ROWS:
            kept = np.sort(random.permutation(len(segments))[:BASELINE_ROWS])
            segments, targets = [segments[row] for row in kept], targets[kept]
        self._fit_vectors(segments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # logistic regression without convergence
            self._chosen = self._choose(segments, targets, random)
            if self._chosen.constant is None:
                (features,) = self._features(segments, [self._chosen.features])
                self._model = self._linear(self._chosen.strength).fit(features, self._of_lines(segments, targets))
        self.name = self._described(self._chosen)
        return self

    def _fit_vectors(self, segments: Segments) -> None:
        """Learn the n-grams of rows' texts."""
        texts = [_cut(text) for row in segments for text in row]
        self._vectors = [vectors for vectors in self._vectors if _fitted(vectors, texts)]

    def _default(self) -> _Candidate:
        """Return the candidate without a cross-validation: all features; weaker regularisation of many classes."""
        many = self.labels.target == "class" and self.labels.outputs > MOST_COMPARED
        return _Candidate([*FEATURE_SETS[self.task]][-1], STRENGTHS[-1 if many else 1])

    def all_features(self, segments: Segments) -> Any:
        """Return (rows or answers, features) of the largest set, with the n-grams of these rows."""
        self._fit_vectors(segments)
        return self._features(segments, [self._default().features])[0]

    def decide(self, segments: Segments) -> Floats:
        """Return (rows,): the index of the most probable class or answer, or the score."""
        if self._chosen.constant is not None:
            return np.full(len(segments), self._chosen.constant)
        (features,) = self._features(segments, [self._chosen.features])
        return self._decided(getattr(self._model, self._method)(features), segments)

    def _choose(self, segments: Segments, targets: Floats, random: np.random.Generator) -> _Candidate:
        """Return the candidate with the best metric over all held-out rows of a cross-validation."""
        from sklearn.model_selection import cross_val_predict

        sets = list(FEATURE_SETS[self.task])
        candidates = [_Candidate(one, strength) for one in reversed(sets) for strength in STRENGTHS]
        if self.labels.target in ("class", "answer"):
            constants = [_Candidate(constant=float(one)) for one in np.unique(targets)]
            if self.labels.target == "class" and len(constants) == 1:
                return constants[0]
            candidates += constants
        # With many classes a cross-validation takes long, and of few rows it says nothing.
        classes = self.labels.outputs if self.labels.target == "class" else 2
        if classes > MOST_COMPARED or len(segments) < FOLDS * classes:
            return self._default()
        rows = random.permutation(len(segments))[:CROSS_VALIDATED]
        segments, targets = [segments[row] for row in rows], targets[rows]
        features = dict(zip(sets, self._features(segments, sets), strict=True))
        lines = self._of_lines(segments, targets)
        if not (folds := self._folds(segments, lines)):
            return self._default()

        def value(candidate: _Candidate) -> float:
            if candidate.constant is not None:
                decided = np.full(len(targets), candidate.constant)
            else:
                model, inputs = self._linear(candidate.strength), features[candidate.features]
                found = cross_val_predict(model, inputs, lines, cv=folds, method=self._method)
                decided = self._decided(found, segments)
            measured = measure_decisions(
                self.labels.target, targets, decided, self.labels.outputs, intervals=False
            )
            return float(measured[self.metric]["value"])

        return max(candidates, key=value)

    def _folds(self, segments: Segments, lines: Any) -> list[Any]:
        """Return a cross-validation of the lines of features; empty if a fold leaves one class to learn from.

        Rows with the same first text are in one fold. Otherwise the words of a premise that comes with every
        label are evidence against the label of the row that is held out. A choice may have an empty context.
        """
        from sklearn.model_selection import GroupKFold

        first = [next(filter(None, row), "") for row in segments]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(first))}
        groups = [numbers[text] for text in first] if len(numbers) >= FOLDS else range(len(first))
        folds = list(GroupKFold(FOLDS).split(lines, groups=np.repeat(groups, self._answers(segments))))
        if self.labels.target == "class" and any(len(np.unique(lines[others])) < 2 for others, _ in folds):
            return []
        return folds

    @property
    def _method(self) -> str:
        return "decision_function" if self.task == "choice" else "predict"

    def _linear(self, strength: float) -> Any:
        """Return a linear model of the features, which have one line for each row or answer."""
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.multiclass import OneVsRestClassifier

        if self.labels.target == "score":
            return Ridge(alpha=1 / strength)
        weight: Any = self.class_weight if self.labels.target == "class" else None
        if isinstance(weight, Mapping):
            by_name = {class_name(label): value for label, value in weight.items()}
            weight = {n: by_name.get(class_name(name), 1.0) for n, name in enumerate(self.labels.names)}
        model = LogisticRegression(C=strength, max_iter=_STEPS, class_weight=weight)
        return OneVsRestClassifier(model) if self.labels.target == "labels" else model

    def _of_lines(self, segments: Segments, targets: Floats) -> Any:
        """Return the target of each line of the features."""
        if self.task == "choice":
            counts = self._answers(segments)
            return np.concatenate([np.arange(n) == target for n, target in zip(counts, targets, strict=True)])
        return targets if self.labels.target == "score" else targets.astype(np.int64)

    def _decided(self, found: Any, segments: Segments) -> Floats:
        if self.task == "choice":  # the answer that is most probably right; ties go to the first
            parts = np.split(found, np.cumsum(self._answers(segments))[:-1])
            return np.array([part.argmax() for part in parts], dtype=np.float64)
        return np.asarray(found, dtype=np.float64)

    def _answers(self, segments: Segments) -> list[int]:
        """Return the lines of features of each row: one, or one for each answer."""
        return [len(row) - 2 if self.task == "choice" else 1 for row in segments]

    def _features(self, segments: Segments, sets: Sequence[tuple[str, ...]]) -> list[Any]:
        """Return (rows or answers, features) of each set, sparse; see FEATURE_SETS."""
        from scipy.sparse import csr_matrix, hstack

        if self.task == "choice":
            pairs = [(f"{row[0]} {row[1]}", answer) for row in segments for answer in row[2:]]
        else:
            pairs = [(row[0], row[-1]) for row in segments]
        none = csr_matrix((len(pairs), 1), dtype=np.float32)  # a column for texts without n-grams
        one = self._transformed([first for first, _ in pairs])
        blocks = {"characters": one[:1], "words": one[1:]}
        if self.task != "classify":
            two = self._transformed([second for _, second in pairs])
            # TF-IDF vectors have length 1, so their product is the cosine.
            cosines = [csr_matrix(a.multiply(b).sum(axis=1)) for a, b in zip(one, two, strict=True)]
            blocks |= {
                "cosine": cosines[:1],  # of character n-grams
                "overlap": [*cosines, csr_matrix(_shared_words(pairs))],
                "texts": [*one, *two],
                "second": two,
            }
        return [hstack([none, *(block for name in names for block in blocks[name])]).tocsr() for names in sets]

    def _transformed(self, texts: Sequence[str]) -> list[Any]:
        return [vectors.transform([_cut(text) for text in texts]) for vectors in self._vectors]

    def _described(self, candidate: _Candidate) -> str:
        if candidate.constant is None:
            return FEATURE_SETS[self.task][candidate.features]
        answer = int(candidate.constant)
        return f"always {self.labels.names[answer] if self.labels.names else self.labels.first_answer + answer}"


def _fitted(vectors: Any, texts: Sequence[str]) -> bool:
    """Fit TF-IDF vectors to texts; return False if they contain no n-gram."""
    try:
        vectors.fit(texts)
    except ValueError:
        return False
    return True


def _shared_words(pairs: Sequence[tuple[str, str]]) -> Floats:
    """Return (pairs, 3): the shared words' share of the first text's, the second text's and all words."""
    shares = []
    for first, second in pairs:
        one, two = set(_WORD.findall(_cut(first).lower())), set(_WORD.findall(_cut(second).lower()))
        shares.append([len(one & two) / max(1, size) for size in (len(one), len(two), len(one | two))])
    return np.array(shares, dtype=np.float64).reshape(-1, 3)


def _cut(text: str) -> str:
    return text[:CHARACTERS]
