"""The estimators behave as scikit-learn's do, and come back from a folder as they were."""

from __future__ import annotations

import json
import pickle
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from headwater import shipped
from headwater.errors import DataError, FolderError, MismatchError, UsageError
from headwater.finetuning import (
    Classifier,
    Entailment,
    FinetuneConfig,
    MultipleChoice,
    Regressor,
    Similarity,
    finetune,
)
from headwater.finetuning.rows.arrays import as_list
from headwater.inference import load

FAST: dict[str, Any] = {"epochs": 4, "learning_rate": 5e-3, "lambda_lm": 0.0, "dropout": 0.0, "precision": "fp32"}


def test_a_classifier_learns_and_comes_back_from_its_folder(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(200)
    fresh, truth = sentences(60, seed=1)
    classifier = Classifier(base, **FAST).set_params(epochs=10).fit(texts, labels)
    assert classifier.score(fresh, truth) > 0.9
    assert classifier.classes_.tolist() == ["bad", "good"]
    probabilities = classifier.predict_proba(np.array(fresh))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classifier.save(tmp_path / "saved")
    with pytest.raises(FolderError, match="saved exists"):
        classifier.save(tmp_path / "saved")
    loaded = Classifier.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.predict_proba(fresh), probabilities, atol=1e-6)
    assert loaded.get_params()["learning_rate"] == 5e-3
    assert clone(loaded).base.resolve() == base.resolve()  # weights that saw no row
    assert hasattr(loaded, "fine_tuned_")
    with pytest.raises(MismatchError, match="classify"):
        Entailment.load(tmp_path / "saved")


def test_clone_cross_validation_search_and_pipelines_work(base: Path, sentences: Any) -> None:
    texts, labels = sentences(45)
    classifier = Classifier(base, **FAST).set_params(epochs=1)
    copied = clone(classifier)
    assert copied.get_params() == classifier.get_params()
    loaded = load(base)
    assert clone(Classifier(loaded)).base is loaded
    assert is_classifier(classifier)
    assert is_regressor(Similarity(base))
    assert not is_regressor(Similarity(base, target="class"))
    assert cross_val_score(classifier, texts, labels, cv=3).shape == (3,)
    lower = FunctionTransformer(lambda column: [text.lower() for text in column])
    pipeline = Pipeline([("lower", lower), ("model", classifier)]).fit(texts, labels)
    assert len(pipeline.predict(texts[:5])) == 5
    search = GridSearchCV(pipeline, {"model__learning_rate": [1e-3, 1e-4]}, cv=2).fit(texts, labels)
    by_hand = {
        rate: clone(pipeline).set_params(model__learning_rate=rate).fit(texts, labels).predict_proba(texts)
        for rate in (1e-3, 1e-4)
    }
    assert not np.array_equal(by_hand[1e-3], by_hand[1e-4])
    np.testing.assert_array_equal(
        search.predict_proba(texts), by_hand[search.best_params_["model__learning_rate"]]
    )


def test_an_estimator_on_a_model_that_ships_is_saved(base: Path, sentences: Any, tmp_path: Path) -> None:
    classifier = Classifier(base, **FAST).set_params(epochs=1).fit(*sentences(12))
    classifier.set_params(base=shipped.DEFAULT).save(tmp_path / "saved")
    assert Classifier.load(tmp_path / "saved").classes_.tolist() == ["bad", "good"]


def test_labels_keep_their_type(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(20)
    numbers = np.array([10 if label == "good" else 9 for label in labels])
    classifier = Classifier(base, **FAST).fit(texts, numbers)
    classifier.save(tmp_path / "numbers")
    for one in (classifier, Classifier.load(tmp_path / "numbers")):
        assert one.classes_.tolist() == [9, 10]
        assert one.predict(texts).dtype.kind == "i"
    truths = Classifier(base, **FAST).fit(texts, [label == "good" for label in labels])
    truths.save(tmp_path / "truths")
    assert truths.fine_tuned_.labels.names == ["false", "true"]  # as those of a table, which it may label
    for one in (truths, Classifier.load(tmp_path / "truths")):
        assert one.classes_.tolist() == [False, True]
    Classifier(base, **FAST).fit(texts, numbers.astype(float).astype(str)).save(tmp_path / "written")
    written = Classifier.load(tmp_path / "written")
    assert written.classes_.tolist() == ["10.0", "9.0"]
    assert {*written.predict(texts)} <= {"10.0", "9.0"}


def test_scorers_of_scikit_learn_read_the_columns_in_their_order(base: Path, sentences: Any) -> None:
    texts, labels = sentences(20)
    numbers = ["10" if label == "good" else "9" for label in labels]
    classifier = Classifier(base, **FAST).fit(texts, numbers)
    assert classifier.classes_.tolist() == ["10", "9"]
    large = Classifier(base, **FAST).fit(texts, [2**63 if label == "good" else 1 for label in labels])
    assert len(large.predict(texts)) == len(texts)
    right = classifier.predict_proba(texts)[range(20), [int(number == "9") for number in numbers]]
    assert get_scorer("neg_log_loss")(classifier, texts, numbers) == pytest.approx(np.log(right).mean())


def test_parameters_of_a_search_are_saved(base: Path, sentences: Any, tmp_path: Path) -> None:
    found = {
        "epochs": np.int64(1),
        "verbose": np.bool_(False),
        "learning_rate": np.float32(0.5),
        "class_weight": "balanced",
    }
    Classifier(base, **FAST).set_params(**found).fit(*sentences(12)).save(tmp_path / "saved")
    loaded = Classifier.load(tmp_path / "saved")
    parameters = loaded.get_params()
    assert (parameters["epochs"], parameters["learning_rate"], parameters["class_weight"]) == (1, 0.5, "balanced")
    assert "class_weight='balanced'" in repr(loaded)


def test_rows_without_text_are_named_in_a_warning(base: Path, sentences: Any) -> None:
    texts, labels = sentences(20)
    missing: list[Any] = ["", None, float("nan"), pd_na()]
    with pytest.warns(UserWarning, match="4 rows without text: left out"):
        classifier = Classifier(base, **FAST).fit([*texts, *missing], [*labels, *labels[:4]])
    with pytest.warns(UserWarning, match="4 rows without text: predicted as an empty text"):
        predicted = classifier.predict([*missing, texts[0]])
    assert {*predicted} <= {*labels}
    assert classifier.n_without_text_ == 4
    alone = classifier.score(texts, labels)
    assert classifier.score([*texts, *missing], [*labels, *labels[:4]]) == alone
    with pytest.warns(UserWarning, match="2 texts did not fit the base's context and lost their ends"):
        classifier.predict(["a plot " * 80, "x", "a story " * 90])
    assert classifier.n_cut_ == 2


def pd_na() -> Any:
    """What pandas has for a missing text, whose truth is an error."""
    return pytest.importorskip("pandas").NA


def test_labels_of_every_type_come_back(base: Path, sentences: Any) -> None:
    class Mood(StrEnum):
        GOOD = "fine"
        BAD = "awful"

    texts, labels = sentences(20)
    large = np.array([2**63 + 5 if label == "good" else 7 for label in labels], np.uint64)
    for y in (large, [Mood.GOOD if label == "good" else Mood.BAD for label in labels]):
        classifier = Classifier(base, **FAST).fit(texts, y)
        assert {*classifier.predict(texts).tolist()} <= {*np.asarray(y).tolist()}


def test_a_class_whose_rows_have_no_text_is_none_of_the_classes(base: Path, sentences: Any) -> None:
    texts, labels = sentences(20)
    with pytest.warns(UserWarning, match="1 row without text"):
        classifier = Classifier(base, **FAST).fit(["", *texts], ["and", *labels])
    assert classifier.classes_.tolist() == ["bad", "good"]
    assert classifier.predict_proba(texts).shape == (20, 2)


def test_pairs_scores_and_choices(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(40)
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert Entailment(base, **FAST).fit(np.array(pairs), labels).predict(pairs).shape == (40,)
    scores = [len(first) / 20 for first, _ in pairs]
    similarity = Similarity(base, **FAST).fit(pairs, scores)
    predicted = similarity.predict(pairs)
    swapped = similarity.predict([(second, first) for first, second in pairs])
    np.testing.assert_allclose(predicted, swapped, atol=1e-4)  # there is no order in similarity
    assert similarity.score(pairs, scores) == pytest.approx(np.corrcoef(predicted, scores)[0, 1])
    similarity.save(tmp_path / "scores")
    np.testing.assert_allclose(Similarity.load(tmp_path / "scores").predict(pairs), predicted, atol=1e-4)
    choices = [
        {"context": a, "question": "", "answers": [b, a, "plot"][: 2 + n % 2]} for n, (a, b) in enumerate(pairs)
    ]
    choice = MultipleChoice(base, **FAST).fit(choices, [np.int64(n % 2) for n in range(40)])
    shares = choice.predict_proba(choices)
    assert shares.shape == (40, 3)
    assert shares[0, 2] == 0
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert set(choice.predict(choices)) <= {0, 1, 2}
    for fitted, rows, labels, message in (
        (similarity, pairs, [*scores[1:], float("nan")], "y has nan in row 40"),
        (choice, choices, ["A"] * 40, "y has 'A' in row 1; expected the right answer's number, from 0"),
    ):
        with pytest.raises(DataError, match=message):
            fitted.score(rows, labels)


@pytest.mark.parametrize(
    ("estimator", "X", "y", "message"),
    [
        (Classifier, "a lone text", ["a"], "single value"),
        (Classifier, ["a", "b"], 1, "single value"),
        (Classifier, ["a", "b"], ["x", "x"], "only one class"),
        (Classifier, ["a", "b"], ["x", 1], "mixes"),
        (Classifier, ["a", "b"], ["x", None], "row 2"),
        (Classifier, ["a", "b"], np.eye(2), r"y has \[1\.0, 0\.0\] in row 1; expected a class"),
        (MultipleChoice, [("a", "b", 3)], [0], "row 1 has 0 answers"),
        (Classifier, ["a", "b", "c"], ["x", "y"], "3 rows and 2 labels"),
        (Classifier, ["a", 7], ["x", "y"], "int in row 2"),
        (Entailment, ["a", "b"], ["x", "y"], "row 1 is not a pair"),
        (Entailment, [{"premise": "a", "hypothesis": "b"}] * 2, ["x", "y"], "row 1 is not a pair"),
        (MultipleChoice, [("a", "b", ["c", ""])], [0], "missing answer"),
        (Similarity, [("a", "b")] * 2, ["x", "y"], "expected a number"),
        (Classifier, ["a", None], ["x", "y"], "only one class"),
        (Classifier, ["a", "b"], [0.2, 0.7], r"0\.2.*hw\.Regressor"),
        (Classifier, ["a", "b"], [0.0, float("inf")], r"the number inf.*hw\.Regressor"),
        (Regressor, ["a", "b"], ["x", "y"], "expected a number"),
        (Regressor, ["a", "b"], [2.5, 2.5], r"y has only one score: 2\.5"),
    ],
)
def test_mistakes_are_named(base: Path, estimator: Any, X: Any, y: Any, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        estimator(base).fit(X, y)


def test_a_folder_of_finetune_is_scored_by_its_own_labels(base: Path, tmp_path: Path) -> None:
    """Its classes are words, and those of y may be numbers."""
    pairs = [(f"a film {n}", f"a film {n}" if n % 2 else "dull plot") for n in range(24)]
    lines = [json.dumps({"text1": a, "text2": b, "label": n % 2}) for n, (a, b) in enumerate(pairs)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    config = FinetuneConfig(task="similarity", epochs=1, precision="fp32")
    finetune(config, tmp_path / "m", model=base, train=tmp_path / "pairs.jsonl")
    loaded = Similarity.load(tmp_path / "m")
    assert is_classifier(loaded)
    predicted = [int(name) for name in loaded.predict(pairs)]
    assert loaded.score(pairs, predicted) == 1
    assert loaded.score(pairs, [1 - label for label in predicted]) == 0
    for rows, labels, message in ((pairs, [0, 1], "24 rows and 2 labels"), ([], [], "0 rows and 0 labels")):
        with pytest.raises(DataError, match=message):
            loaded.score(rows, labels)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("estimator.json", []),
        ("estimator.json", {"parameters": []}),
        ("estimator.json", {"parameters": {}, "classes": "ab"}),
        ("estimator.json", {"parameters": {"of_a_later_version": 1}}),
        ("task.json", {"task": "classify", "columns": {}, "labels": []}),
    ],
)
def test_a_description_of_the_wrong_type_is_refused(base: Path, tmp_path: Path, file: str, content: Any) -> None:
    Classifier(base, **FAST).set_params(epochs=1).fit(["a", "b", "c", "d"], [0, 1, 0, 1]).save(tmp_path / "m")
    (tmp_path / "m" / "headwater.json").unlink()  # it would name the altered file
    (tmp_path / "m" / file).write_text(json.dumps(content))
    with pytest.raises(FolderError, match=f"{file} is damaged"):
        Classifier.load(tmp_path / "m")


def test_a_failed_second_fit_leaves_the_first_one_unchanged(base: Path, sentences: Any) -> None:
    def stop(line: Any) -> None:
        raise KeyboardInterrupt

    texts, labels = sentences(20)
    classifier = Classifier(base, **FAST).set_params(epochs=1).fit(texts, labels)
    found = classifier.predict(texts).tolist()
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(texts, ["red" if label == "bad" else "blue" for label in labels], on_update=stop)
    assert classifier.predict(texts).tolist() == found


def test_the_first_update_of_a_short_training_has_a_rate(base: Path, sentences: Any) -> None:
    """The last update of GPT-1's schedule has rate 0."""
    lines: list[dict[str, Any]] = []
    Classifier(base, recipe="lp-ft", epochs=1).fit(*sentences(12), on_update=lines.append)
    assert lines[0]["learning_rate"] > 0


def test_an_unknown_parameter_is_refused(base: Path) -> None:
    with pytest.raises(ValueError, match=r"Invalid parameter 'epoch'.*'epochs'"):
        Classifier(base).set_params(epoch=3)
    with pytest.raises(UsageError, match="base is of the type int"):
        Classifier(5).fit(["a", "b", "c", "d"], [0, 0, 1, 1])
    for kind in (UsageError, NotFittedError):
        with pytest.raises(kind, match="not fitted"):
            Classifier(base).predict(["a"])


def test_weights_callbacks_and_the_baseline_reach_an_estimator(
    base: Path, sentences: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, labels = sentences(40)
    names = sorted(set(labels))
    lines: list[dict[str, Any]] = []
    shares = []
    for weight in (None, [20.0 if label == names[0] else 1.0 for label in labels]):
        classifier = Classifier(base, **FAST, verbose=weight is None)
        classifier.fit(texts, labels, sample_weight=weight, on_update=lines.append)
        shares.append(classifier.predict_proba(texts)[:, 0].mean())
    assert shares[1] > shares[0]
    assert "fine-tuning" in capsys.readouterr().err
    assert lines[0]["step"] == 1
    assert {"loss", "learning_rate"} <= lines[0].keys()
    with pytest.raises(DataError, match="3 weights for 40 rows"):
        Classifier(base, **FAST).fit(texts, labels, sample_weight=[1, 2, 3])
    with pytest.raises(DataError, match="or an invalid one"):
        Classifier(base, **FAST).fit(texts, labels, sample_weight=["heavy"] * 40)
    with pytest.raises(UsageError, match="target = 'scores'"):
        Similarity(base, target="scores").fit([("a", "b")] * 4, [0, 1, 2, 3])
    with pytest.raises(DataError, match="every row to train on has the weight 0"):
        Classifier(base, **FAST).fit([*texts, ""], [*labels, "good"], sample_weight=[0] * 40 + [1])
    assert Classifier().base is None


def test_only_a_regressor_opens_a_regressors_folder(base: Path, tmp_path: Path) -> None:
    texts = [f"{'fine' if n % 2 else 'dull'} film {n}" for n in range(40)]
    regressor = Regressor(base, **FAST).fit(texts, [float(n % 2) for n in range(40)])
    predicted = regressor.predict(texts)
    assert predicted.dtype.kind == "f"
    assert ((predicted >= 0) & (predicted <= 1)).all()
    regressor.save(tmp_path / "scores")
    np.testing.assert_allclose(Regressor.load(tmp_path / "scores").predict(texts), predicted, atol=1e-4)
    with pytest.raises(MismatchError, match="fine-tuned for task regress"):
        Classifier.load(tmp_path / "scores")


def test_columns_of_other_libraries_become_lists() -> None:
    for column in (pa.array(["a", "b"]), pa.chunked_array([["a"], ["b"]]), np.array(["a", "b"])):
        assert as_list(column) == ["a", "b"]


def test_a_fitted_classifier_over_an_open_model_can_be_pickled(base: Path, sentences: Any) -> None:
    texts, labels = sentences(45)
    classifier = Classifier(load(base), **FAST).set_params(epochs=1).fit(texts, labels)
    copied = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_allclose(copied.predict_proba(texts[:9]), classifier.predict_proba(texts[:9]), atol=1e-6)
