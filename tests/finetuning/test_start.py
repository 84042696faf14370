"""The recipe lp-ft: logistic regression on the base's features, then all weights, if that is better."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.finetuning.test_finetune_resume import Stop, StopAfter, content_of

import headwater as hw
from headwater.errors import DataError, StorageError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, Raw, export_classifier, finetune
from headwater.finetuning.learning import choose
from headwater.finetuning.learning import config as config_module
from headwater.finetuning.learning.probe import _fit, choose_probe, fit_probe
from headwater.finetuning.learning.train import is_better
from headwater.finetuning.model.fine_tuned import build_task_model
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.model.pooled import PooledModel, sequences_of
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.split import folds
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


class Notes(Progress):
    """Keeps what is said."""

    text = ""

    def note(self, text: str) -> None:
        self.text += f"{text}\n"


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
    encoded, weights = model.with_features(encoded), np.ones(len(rows), np.float32)
    start = choose_probe(encoded, labels, weights, folds(rows, targets, seed=1))
    fit_probe(model, [encoded], labels, weights, start)
    features = lm.embed([text for text, _ in ROWS])
    assert encoded.features is not None
    np.testing.assert_allclose(encoded.features["mean"], features, atol=1e-5)
    scaled = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    strength = start.strength
    theirs = LogisticRegression(C=strength, max_iter=300).fit(scaled, targets).decision_function(scaled)
    second = 1 / (1 + np.exp(-start.scale * theirs))
    np.testing.assert_allclose(model.predict(encoded, labels)[0][:, 1], second, atol=2e-3)


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
    reason = r"\(a probe or LP-FT\); expected a GPT-1.*\. Train it with --set recipe=gpt1 for that\. Predict"
    with pytest.raises(UsageError, match=reason):
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
    with pytest.raises(UsageError, match="recipe"):
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


def test_the_rows_decide_which_recipes_are_compared() -> None:
    shape = preset("gpt2-pico")

    def chosen(rows: int, **keys: Any) -> str:
        return " ".join(FinetuneConfig.build({"recipe": "auto", **keys}).candidates(rows, 2, shape))

    expected = ["lp-ft", "lp-ft", "lp-ft gpt1", "lp-ft gpt1", "probe gpt1"]
    assert [chosen(rows) for rows in (2, 500, 501, 5_000, 5_001)] == expected
    assert chosen(501, learning_rate="search") == "gpt1"
    auto = FinetuneConfig.build({"recipe": "auto"})
    assert auto.candidates(20_000, 10_000, shape) == ("gpt1",)  # a regression with so many outputs takes hours
    crossed = [auto.cross_validates(rows, outputs, shape) for rows, outputs in ((500, 2), (501, 2), (505, 101))]
    assert crossed == [True, False, True]
    assert not auto.cross_validates(3_001, 900, shape)
    for keys in (
        {"task": "choice"},
        {"freeze": True},
        {"from_scratch": True},
        {"transfer_layers": 1},
        {"lambda_lm": 0.0},
    ):
        assert chosen(20, **keys) == "gpt1"
    assert FinetuneConfig().candidates(2, 2, shape) == ("gpt1",)  # the papers' experiments


def test_few_rows_are_cross_validated_and_all_trained_on(encoder: Path, tmp_path: Path) -> None:
    rows = [*ROWS, ("the fine a", "rare"), ("plot a the", "rare")]
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    notes = Notes()
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 2})
    found = finetune(config, tmp_path / "out", model=encoder, train=table, progress=notes)
    assert found["counts"] == {"train": len(rows), "validation": len(rows)}
    assert found["classes"][0]["count"] + found["classes"][1]["count"] + found["classes"][2]["count"] == len(rows)
    assert (found["cross_validated"], found["recipe"]) == (True, "lp-ft" if found["best_step"] else "probe")
    assert found["value"] == found["recipes"][found["recipe"]]["value"]
    assert f"{found['recipe']} is used: accuracy" in notes.text
    assert "by cross-validation in 3 folds" in notes.text
    assert "the probe is logistic regression on the mean over the tokens (C = " in notes.text
    tuned = FineTuned.load(tmp_path / "out")
    assert tuned.seen is not None
    assert len(tuned.seen.train) == len(rows)  # none is held out
    lines = (tmp_path / "out" / "predictions-validation.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(rows)
    # The figures are not those of rows that were learned from.
    decided = [one.label for one in tuned.predict(Raw((text,), row=n) for n, (text, _) in enumerate(rows, 1))]
    assert [json.loads(line)["prediction"] for line in lines] != decided or found["value"] == 1
    # A baseline that had learned from the rows would know random labels.
    held = FinetuneConfig.build({"recipe": "auto", "epochs": 1, "validation_share": 0.2, "baseline": False})
    assert not finetune(held, tmp_path / "held", model=encoder, train=table)["cross_validated"]


def test_a_stopped_cross_validation_resumes(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 2, "baseline": False})
    whole = finetune(config, tmp_path / "whole", model=encoder, train=table)
    trained: list[int] = []
    original = choose.train_task

    def train(*given: Any, **more: Any) -> Any:
        if len(trained) == 2:
            trained.append(0)
            raise Stop
        trained.append(0)
        return original(*given, **more)

    monkeypatch.setattr(choose, "train_task", train)
    with pytest.raises(Stop):
        finetune(config, tmp_path / "stopped", model=encoder, train=table)
    assert finetune(config, tmp_path / "stopped", model=encoder, train=table) == whole
    assert len(trained) == 2 + 1 + 1 + 1  # done, stopped, the other fold, all rows
    assert content_of(tmp_path / "stopped") == content_of(tmp_path / "whole")
    assert not (tmp_path / "stopped" / "rates").exists()


def test_a_folder_removed_meanwhile_is_not_made_again(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = tmp_path / "rows.csv", tmp_path / "out"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1, "baseline": False})
    original = choose.train_task

    def train(*given: Any, **more: Any) -> Any:
        outcome = original(*given, **more)
        shutil.rmtree(out)
        return outcome

    with monkeypatch.context() as removing, pytest.raises(StorageError, match="out cannot be written"):
        removing.setattr(choose, "train_task", train)
        finetune(config, out, model=encoder, train=table)
    assert not out.exists()
    finetune(config, out, model=encoder, train=table)  # the same call begins again


def test_the_baselines_of_few_rows_have_not_learned_from_them(encoder: Path, tmp_path: Path) -> None:
    table, random = tmp_path / "rows.csv", np.random.default_rng(1)
    texts = {" ".join(random.choice(WORDS[5:], 5)) for _ in range(80)}
    rows = [f"{text},{label}" for text, label in zip(sorted(texts), random.integers(2, size=80), strict=False)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1})
    found = finetune(config, tmp_path / "out", model=encoder, train=table)
    assert found["baseline"]["value"] < 0.75
    assert found["recipes"]["probe"]["value"] < 0.75


def test_more_rows_compare_the_recipes_on_the_validation_rows(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "FEW_OF_A_CLASS", 5)
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1, "batch_size": 8, "baseline": False})
    found = finetune(config, tmp_path / "out", model=encoder, train=table)
    assert [*found["recipes"]] == ["probe", "lp-ft", "gpt1"]
    assert found["value"] == max(one["value"] for one in found["recipes"].values())
    assert not (tmp_path / "out" / "rates").exists()
    with pytest.raises(Stop):
        finetune(config, tmp_path / "stopped", model=encoder, train=table, progress=StopAfter(3))
    assert finetune(config, tmp_path / "stopped", model=encoder, train=table) == found
    monkeypatch.setattr(config_module, "MANY_ROWS", 10)  # lp-ft would double the time
    assert [*finetune(config, tmp_path / "many", model=encoder, train=table)["recipes"]] == ["probe", "gpt1"]


def test_a_probe_learns_from_the_rows_that_were_split_off_too(encoder: Path, tmp_path: Path) -> None:
    rows = [(f"{text} {word}", label) for text, label in ROWS for word in WORDS[5:9]]
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    notes = Notes()
    config = FinetuneConfig.build({"recipe": "probe", "validation_share": 0.5, "baseline": False})
    found = finetune(config, tmp_path / "out", model=encoder, train=table, progress=notes)
    assert found["counts"]["train"] < 0.6 * len(rows)
    assert f"the head is fitted again on all {len(rows):,} rows" in notes.text
    features, names = hw.load(encoder).embed([text for text, _ in rows]), [label for _, label in rows]
    deviation = features.std(axis=0) + 1e-6
    scaled = (features - features.mean(axis=0)) / deviation
    theirs = LogisticRegression(C=found["start"]["strength"], max_iter=300).fit(scaled, names).coef_[0]
    weight = FineTuned.load(tmp_path / "out").model.head.weight.detach().numpy()
    ours = (weight[1] - weight[0]) * deviation  # times the scale and the temperature
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.9999


def test_a_class_that_a_fold_lacks_has_a_direction(encoder: Path) -> None:
    lm = hw.load(encoder)
    rows = [
        Raw(segments=(text,), label=label, row=n) for n, (text, label) in enumerate([*ROWS, ("the a", "x")], 1)
    ]
    labels = learn_labels(rows, "classify", None, "rows")
    reading = sequences_of("lp-ft", lm.tokenizer, lm.config)
    targets = labels.targets(rows, "rows")
    encoded = encode(rows, "classify", lm.tokenizer, lm.config.context, targets=targets, **reading)
    model = build_task_model(lm.model, lm.tokenizer, "classify", labels.outputs, dropout=0.1, pooled=True)
    assert isinstance(model, PooledModel)
    others = model.with_features(encoded).take(np.arange(len(ROWS)))
    model.set_directions(others, labels)
    norms = model.head.weight.detach().norm(dim=1).numpy()
    np.testing.assert_allclose(norms, 1, atol=1e-5)


def test_the_head_is_fitted_again_on_tuned_features(encoder: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS), encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "lp-ft", "epochs": 8, "learning_rate": 1e-3, "baseline": False})
    found = finetune(config, tmp_path / "out", model=encoder, train=table, validation=table)
    assert found["best_step"] > 0
    kept = {0, found["best_step"]}  # measured with a regression; the others with the cosines of tuning
    assert {entry["step"] for entry in found["curve"] if entry["head"] == "regression"} == kept
    assert {entry["step"] for entry in found["curve"] if entry["head"] == "cosines"}.isdisjoint(kept)
    texts, names = zip(*ROWS, strict=True)
    before, after = (hw.load(folder).embed(texts) for folder in (encoder, tmp_path / "out"))

    def within(vectors: np.ndarray[Any, Any]) -> float:
        directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        same = np.equal.outer(names, names)
        cosines = directions @ directions.T
        return float(cosines[same].mean() - cosines[~same].mean())

    assert within(after) > 2 * within(before)  # texts of a class have come together
    deviation = after.std(axis=0) + 1e-6
    scaled = (after - after.mean(axis=0)) / deviation
    theirs = LogisticRegression(C=found["start"]["strength"], max_iter=300).fit(scaled, names).coef_[0]
    weight = FineTuned.load(tmp_path / "out").model.head.weight.detach().numpy()
    ours = (weight[1] - weight[0]) * deviation
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.999


def test_the_probe_is_kept_if_it_is_better_by_more_than_chance() -> None:
    tuned = {"accuracy": {"value": 0.90, "interval": [0.86, 0.94]}}
    probes = [{"accuracy": {"value": value}} for value in (0.89, 0.905, 0.92)]
    assert [is_better(probe, tuned, "accuracy") for probe in probes] == [False, False, True]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a good film", "fine plot"] * 4, ["yes"] * 8, "only one class"),
        ([f"film {n}" for n in range(8)], list("abcdefgh"), "one text of each class"),
        (["a good film"] * 8, ["yes", "no"] * 4, "the same text in all 8"),
    ],
)
def test_rows_that_teach_nothing_are_named(
    encoder: Path, texts: list[str], labels: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        hw.Classifier(encoder, device="cpu").fit(texts, labels)


def test_a_few_rows_begin_with_the_probe_by_default(encoder: Path) -> None:
    texts, labels = zip(*ROWS, strict=True)
    classifier = hw.Classifier(encoder, device="cpu").fit(texts, labels)
    assert classifier.recipe_ in ("probe", "lp-ft")
    assert classifier.score(texts, labels) > 0.9
    again = classifier.set_params(warm_start=True).fit(texts, labels)  # the head stays
    assert again.recipe_ == "lp-ft"


def test_the_order_of_a_similar_pair_means_nothing(encoder: Path) -> None:
    texts = [text for text, _ in ROWS]
    pairs = list(zip(texts, reversed(texts), strict=True))
    scores = [float(len(first)) for first, _ in pairs]
    model = hw.Similarity(encoder, device="cpu", epochs=1).fit(pairs, scores)
    assert model.recipe_ in ("probe", "lp-ft")
    swapped = model.predict([(second, first) for first, second in pairs])
    np.testing.assert_allclose(model.predict(pairs), swapped, atol=1e-4)


def test_a_long_row_among_few_is_shortened(encoder: Path, tmp_path: Path) -> None:
    """All rows are trained on, so there are no validation rows to speak of."""
    table = tmp_path / "long.csv"
    rows = [(f"{'film ' * 3_000}{ROWS[0][0]}", "yes"), *ROWS[1:]]
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    notes = Notes()
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 2})
    found = finetune(config, tmp_path / "m", model=encoder, train=table, progress=notes)
    assert found["cross_validated"]
    assert "training: 1 of" in notes.text
    assert "validation: " not in notes.text
    if found["recipe"] == "lp-ft":
        assert "validation_" not in (tmp_path / "m" / "metrics.jsonl").read_text(encoding="utf-8")
