"""The recipe lp-ft: logistic regression on the base's features, then all weights, if that is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.finetuning.test_finetune_resume import Stop, StopAfter, content_of

import headwater as hw
from headwater.errors import MismatchError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, export_classifier, finetune
from headwater.finetuning.learning.start import _fit, fit_probe
from headwater.finetuning.model.fine_tuned import build_task_model
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.model.pooled import PooledModel, sequences_of
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.row import Raw
from headwater.model import build_model, preset, save_model
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "fine", "poor", "film", "plot", "a", "the"]
GOOD, BAD = (
    ["a good film", "the fine plot", "good good plot", "fine film"],
    ["a bad film", "poor plot", "the bad bad plot"],
)
ROWS = [
    (f"{text} {more}", label)
    for label, texts in (("yes", GOOD), ("no", BAD))
    for text in texts
    for more in WORDS[9:]
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    shape: dict[str, Any] = {
        "vocabulary": len(WORDS),
        "context": 24,
        "layers": 1,
        "width": 32,
        "heads": 2,
        "init_deviation": 0.3,
    }
    save_model(build_model(preset("bert-base", **shape), seed=1), folder, tokenizer=Tokenizer.load(folder))
    return folder


def small(**more: Any) -> dict[str, Any]:
    return {"recipe": "lp-ft", "epochs": 2, "batch_size": 16, "validation_share": 0.2, **more}


def test_the_head_begins_as_logistic_regression_on_the_mean(encoder: Path) -> None:
    lm = hw.load(encoder)
    rows = [Raw(segments=(text,), label=label, row=n) for n, (text, label) in enumerate(ROWS, 1)]
    labels = learn_labels(rows, "classify", None, "rows")
    targets = labels.targets(rows, "rows")
    reading = sequences_of("lp-ft", lm.tokenizer, lm.config)
    encoded = encode(rows, "classify", lm.tokenizer, lm.config.context, targets=targets, **reading)
    model = build_task_model(lm.model, lm.tokenizer, "classify", labels.outputs, dropout=0.1, pooled=True)
    assert isinstance(model, PooledModel)
    start = fit_probe(model, encoded, labels, np.ones(len(rows), np.float32), seed=1)
    features = lm.embed([text for text, _ in ROWS])
    np.testing.assert_allclose(model.all_features(encoded), features, atol=1e-5)
    scaled = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    strength = start.strength
    theirs = LogisticRegression(C=strength, max_iter=300).fit(scaled, targets).predict_proba(scaled)
    np.testing.assert_allclose(model.predict(encoded, labels)[0], theirs, atol=2e-3)


def test_several_labels_are_a_regression_each() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(60, 5)).astype(np.float32)
    has = np.stack([features[:, 0] > 0, features[:, 1] + features[:, 2] > 0], axis=1)
    targets = np.hstack([has, ~has]).astype(np.float32)
    found = _fit(features, targets, np.ones(60, np.float32), 3.0, True)
    assert ((features @ found.weight.T + found.bias > 0) == has).mean() > 0.95


@pytest.mark.parametrize("kind", ["classes", "labels", "pairs", "scores"])
def test_every_kind_of_label_is_learned_saved_and_opened(encoder: Path, tmp_path: Path, kind: str) -> None:
    texts, names = [text for text, _ in ROWS], [label for _, label in ROWS]
    other = texts[::-1]
    X: Any = texts
    model: Any
    y: Any
    if kind == "classes":
        model, y = hw.Classifier(base=encoder, **small()), names
    elif kind == "labels":
        model = hw.Classifier(base=encoder, multi_label=True, **small())
        y = [[name, *(["film"] if "film" in text else [])] for text, name in ROWS]
    elif kind == "pairs":
        model, X = hw.Entailment(base=encoder, **small()), list(zip(texts, other, strict=True))
        y = ["same" if (n < 16) == (n >= len(texts) - 16) else "differs" for n in range(len(texts))]
    else:
        model, X = hw.Similarity(base=encoder, **small()), list(zip(texts, other, strict=True))
        y = [float(n % 5) for n in range(len(texts))]
    model.fit(X, y)
    assert model.curve_[0]["step"] == 0
    expected = model.predict_proba(X)
    model.save(tmp_path / "m")
    opened = type(model).load(tmp_path / "m")
    np.testing.assert_allclose(opened.predict_proba(X), expected, atol=1e-6)
    assert opened.recipe == "lp-ft"
    np.testing.assert_allclose(opened.predict_proba(X[3:4]), expected[3:4], atol=1e-5)  # no effect of padding
    with pytest.raises(UsageError, match="lp-ft"):
        export_classifier(tmp_path / "m", tmp_path / "exported")


def test_it_resumes_bit_for_bit_and_can_be_continued(encoder: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "lp-ft", "steps": 8, "batch_size": 8, "checkpoint_every": 2})

    def train(name: str, progress: Progress = SILENT) -> Any:
        return finetune(config, tmp_path / name, model=encoder, train=table, progress=progress)

    whole = train("whole")
    assert whole["start"]["pooled"] == "mean"
    assert whole["curve"][0]["step"] == 0
    best = max((entry["accuracy"]["value"], -entry["validation_loss"]) for entry in whole["curve"])
    assert (whole["value"], whole["start"]["kept"]) == (best[0], whole["best_step"] == 0)
    with pytest.raises(Stop):
        train("stopped", StopAfter(5))
    assert train("stopped") == whole
    assert content_of(tmp_path / "stopped") == content_of(tmp_path / "whole")
    keys = FineTuned.keys_of(tmp_path / "whole")
    assert keys["recipe"] == "lp-ft"
    further = FinetuneConfig.build({**keys, "steps": 2})
    finetune(further, tmp_path / "further", model=tmp_path / "whole", train=table)
    with pytest.raises(MismatchError, match="recipe"):
        finetune(
            FinetuneConfig.build({**keys, "recipe": "gpt1", "steps": 2}),
            tmp_path / "other",
            model=tmp_path / "whole",
            train=table,
        )


def test_a_causal_base_may_read_the_last_token(tmp_path: Path) -> None:
    model = hw.Classifier(base="gpt2-mini", **small(epochs=1)).fit([t for t, _ in ROWS], [one for _, one in ROWS])
    task_model = model.fine_tuned_.model
    assert isinstance(task_model, PooledModel)
    assert task_model.pooled in ("mean", "last")
    task_model.pooled = "last"
    model.save(tmp_path / "m")
    assert FineTuned.load(tmp_path / "m").model.pooled == "last"


def test_what_does_not_fit_is_named() -> None:
    for keys in ({"task": "choice"}, {"freeze": True}, {"from_scratch": True}):
        with pytest.raises(UsageError, match="lp-ft does not fit"):
            FinetuneConfig.build({"recipe": "lp-ft", **keys})


def test_the_rows_of_a_class_choose_the_recipe() -> None:
    shape = preset("gpt2-pico")

    def chosen(rows: int, **keys: Any) -> str:
        return FinetuneConfig.build({"recipe": "auto", **keys}).chosen(rows, 2, shape).recipe

    assert [chosen(rows) for rows in (2, 500, 501)] == ["lp-ft", "lp-ft", "gpt1"]
    for keys in (
        {"task": "choice"},
        {"freeze": True},
        {"from_scratch": True},
        {"transfer_layers": 1},
        {"lambda_lm": 0.0},
    ):
        assert chosen(20, **keys) == "gpt1"
    assert FinetuneConfig().chosen(2, 2, shape).recipe == "gpt1"  # the papers' experiments


def test_a_few_rows_begin_with_the_probe_by_default(encoder: Path) -> None:
    texts, labels = zip(*ROWS, strict=True)
    classifier = hw.Classifier(encoder, device="cpu").fit(texts, labels)
    assert classifier.recipe_ == "lp-ft"
    assert classifier.score(texts, labels) > 0.9
    again = classifier.set_params(warm_start=True).fit(texts, labels)  # the head stays
    assert again.recipe_ == "lp-ft"


def test_the_order_of_a_similar_pair_means_nothing(encoder: Path) -> None:
    texts = [text for text, _ in ROWS]
    pairs = list(zip(texts, reversed(texts), strict=True))
    scores = [float(len(first)) for first, _ in pairs]
    model = hw.Similarity(encoder, device="cpu", epochs=1).fit(pairs, scores)
    assert model.recipe_ == "lp-ft"
    swapped = model.predict([(second, first) for first, second in pairs])
    np.testing.assert_allclose(model.predict(pairs), swapped, atol=1e-4)
