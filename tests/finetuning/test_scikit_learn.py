"""scikit-learn's own checks of an estimator, on tables of numbers that are written as texts.

Its checks make tables of numbers and skip estimators of text, so each one gets a subclass that reads a row of
numbers as its texts. A few updates of a tiny base are enough: no check here needs good predictions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_array

import headwater as hw
from headwater.model import build_model, preset
from headwater.tokenizer import Tokenizer

FAST = {"epochs": 0.1, "lambda_lm": 0, "dropout": 0, "precision": "fp32", "learning_rate": 1e-3}
# Checks that an estimator of texts does not pass, and why.
NOT_OF_TEXTS = {
    "check_n_features_in": "a text has no number of features to compare",
    "check_n_features_in_after_fitting": "a text has no number of features to compare",
    "check_classifiers_train": "a text has no number of features to compare",
    "check_dtype_object": "a row is text, not an object that must be a number",
    "check_complex_data": "a row is text, not a complex number",
    "check_class_weight_classifiers": "classes are balanced, or weighed by row",
    "check_sample_weight_equivalence_on_dense_data": "removed rows change the order of rows and the held-out part",
    "check_regressors_no_decision_function": "a regressor has the probabilities of its levels",
}


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c 0 1 2 3 4 5 6 7 8 9 . -" * 40], kind="gpt2", vocab_size=280)


def _text(values: Any) -> str:
    return " ".join(f"{value:.1f}" if isinstance(value, float) else str(value) for value in values)


class Tiny:
    """What an estimator reads of a loaded language model."""

    def __init__(self) -> None:
        shape = {"vocabulary": _tokenizer().vocabulary_size, "width": 8, "layers": 1, "heads": 1, "context": 64}
        self.model, self.tokenizer = build_model(preset("gpt2-pico", **shape), seed=1), _tokenizer()

    def __repr__(self) -> str:
        return "Tiny()"

    def __reduce__(self) -> Any:
        return Tiny, ()


TINY = Tiny()


class OfNumbers:
    """Reads each row of a table of numbers as the texts of a row."""

    def _rows(self, X: Any) -> Any:
        rows = check_array(X, dtype=None).tolist()
        return super()._rows([self.texts_of(row) for row in rows])  # type: ignore[misc]

    def texts_of(self, row: list[Any]) -> Any:
        return _text(row)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True
        return tags


class Classifier(OfNumbers, hw.Classifier):
    pass


class Regressor(OfNumbers, hw.Regressor):
    pass


class OfTexts(Classifier):
    _rows = hw.Classifier._rows


class Pairs(OfNumbers):
    def texts_of(self, row: list[Any]) -> Any:
        return _text(row[:1]), _text(row[1:]) or "0"


class Entailment(Pairs, hw.Entailment):
    pass


class Similarity(Pairs, hw.Similarity):
    pass


ESTIMATORS = [cls(TINY, **FAST) for cls in (Classifier, Regressor)]
OF_PAIRS = [cls(TINY, **FAST) for cls in (Entailment, Similarity)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: NOT_OF_TEXTS)
def test_scikit_learn_accepts(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow  # those of one text, with another form of input
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(OF_PAIRS, expected_failed_checks=lambda estimator: NOT_OF_TEXTS)
def test_scikit_learn_accepts_estimators_of_pairs(estimator: Any, check: Any) -> None:
    check(estimator)


def test_weights_count_rows_in_the_score() -> None:
    classifier = OfTexts(TINY, **FAST).fit(["a", "b", "c", "a a"] * 4, [0, 1, 0, 1] * 4)
    predicted = classifier.predict(["a", "b"])
    truth = [predicted[0], 1 - predicted[1]]
    assert classifier.score(["a", "b"], truth) == 0.5
    assert classifier.score(["a", "b"], truth, sample_weight=[3, 1]) == 0.75


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_classifiers_multilabel_representation_invariance,
        estimator_checks.check_classifiers_multilabel_output_format_predict,
        estimator_checks.check_classifiers_multilabel_output_format_predict_proba,
    ],
)
def test_scikit_learn_accepts_several_labels(check: Any) -> None:
    check("Classifier", Classifier(TINY, multi_label=True, **FAST))
