"""The default: a mixture of TF-IDF, the base's features and the tuned base, weighed on held-out rows."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from tests.finetuning.test_finetune_resume import Stop, content_of

import headwater as hw
from headwater.cli.main import main
from headwater.errors import DataError, FolderError, StorageError, UsageError
from headwater.finetuning import (
    FinetuneConfig,
    FineTuned,
    Labels,
    Raw,
    TaskModel,
    arrange_rows,
    finetune,
    measure_decisions,
    predict_file,
)
from headwater.finetuning.learning import fit as fit_module
from headwater.finetuning.learning import members as members_module
from headwater.finetuning.learning.bases import _available_bases, base_notes, open_base
from headwater.finetuning.learning.config import POLICY, Policy
from headwater.finetuning.learning.examples import encode
from headwater.finetuning.learning.fit import fit
from headwater.finetuning.learning.linear import choose_linear, fit_path
from headwater.finetuning.model.mixture import best_temperature, best_weights, losses, pool
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.results.analyses import Figures, _warnings, doubts
from headwater.finetuning.results.metrics import paired_difference, reliability
from headwater.finetuning.rows.split import folds
from headwater.inference import load
from headwater.model import preset
from headwater.storage import Progress
from headwater.training import Trainer

ABC = Labels(target="class", names=["a", "b", "c"])
SUBJECTS = ["film", "plot", "scene", "music", "story", "actor", "ending", "camera", "dialogue", "set"]
WORDS = {"good": ["lovely", "great", "fine", "superb"], "bad": ["awful", "dull", "poor", "weak"]}


def reviews(count: int, wrong: int = 0) -> tuple[list[Raw], set[int]]:
    """Return rows that words decide, and the numbers of those whose label is wrong."""
    random, rows = np.random.default_rng(0), []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        first, second = random.choice(WORDS[label], 2, replace=False)
        text = f"the {random.choice(SUBJECTS)} was {first} and {second}, {random.choice(SUBJECTS)} {number}"
        rows.append(Raw((text,), label, number + 1))
    planted = {int(n) for n in random.permutation(count)[:wrong]}
    other = {"good": "bad", "bad": "good"}
    changed = [Raw(r.segments, other[str(r.label)], r.row) if n in planted else r for n, r in enumerate(rows)]
    return changed, {n + 1 for n in planted}


def table(path: Path, rows: list[Raw]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("text", "label"), *((row.segments[0], row.label) for row in rows)])
    return path


def test_weights_are_those_of_least_loss_and_a_useless_member_has_none() -> None:
    random = np.random.default_rng(1)
    targets = random.integers(0, 3, 2_000).astype(float)
    right = np.eye(3)[targets.astype(int)]
    one, other = (0.5 * right + 0.5 * random.dirichlet([1, 1, 1], 2_000) for _ in range(2))
    noise = random.dirichlet([1, 1, 1], 2_000)
    members = [part.astype(np.float32) for part in (one, other, noise)]
    weights = best_weights(members, targets, np.ones(2_000, np.float32), ABC, prior=5)
    assert sum(weights) == pytest.approx(1, abs=1e-3)
    assert weights[2] < 0.02 < min(weights[:2])
    mixed = losses(pool(members, weights, ABC), targets, ABC).mean()
    assert mixed < min(losses(member, targets, ABC).mean() for member in members)
    few = best_weights([part[:4] for part in members], targets[:4], np.ones(4, np.float32), ABC, prior=50)
    assert max(few) < 0.5  # four rows do not decide alone


def test_a_member_that_knows_nothing_changes_no_decision() -> None:
    random = np.random.default_rng(2)
    sure = random.dirichlet([1, 1, 1], 50).astype(np.float32)
    mixed = pool([sure, np.full_like(sure, 1 / 3)], [0.3, 0.7], ABC)
    assert (mixed.argmax(axis=1) == sure.argmax(axis=1)).all()
    answers = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3]], np.float32)
    assert pool([answers, answers], [0.5, 0.5], Labels(target="answer"), 2.0)[0, 2] == 0
    scores = Labels(target="score", levels=[0.0, 1.0, 2.0])
    low, high = np.eye(3, dtype=np.float32)[[0]], np.eye(3, dtype=np.float32)[[2]]
    assert pool([low, high], [0.25, 0.75], scores) @ scores.levels == pytest.approx([1.5])


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_a_temperature_is_kept_where_its_gain_is_clear(factor: float) -> None:
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(3_000, 3))
    right = pool([np.exp(logits).astype(np.float32)], [1.0], ABC, 1.0000001)
    targets = (random.random(3_000)[:, None] > right.cumsum(axis=1)).sum(axis=1).astype(float)
    shares = pool([right], [1.0], ABC, 1 / factor)
    temperature = best_temperature(shares, targets, ABC, 40)
    assert temperature == pytest.approx(factor, rel=0.1)
    if factor == 1.0:
        assert temperature == 1.0  # no gain that is clear
    assert reliability("class", targets, pool([shares], [1.0], ABC, temperature)).ece < 0.03
    assert best_temperature(shares[:39], targets[:39], ABC, 40) == 1.0
    certain = np.tile(np.array([[0.9, 0.05, 0.05]], np.float32), (60, 1))
    scaled = pool([certain], [1.0], ABC, best_temperature(certain, np.zeros(60), ABC, 40))
    assert scaled[0, 0] < 0.995  # sixty right rows are no proof


def test_regression_in_the_span_of_the_rows_is_the_same() -> None:
    random = np.random.default_rng(3)
    features = random.random((40, 300)) * (random.random((40, 300)) < 0.1)
    targets = np.eye(2, dtype=np.float32)[random.integers(0, 2, 40)]
    found = fit_path(csr_matrix(features), targets, np.ones(40, np.float32), [1.0], False)[0]
    theirs = LogisticRegression(C=1.0, max_iter=1_000, tol=1e-8).fit(features, targets[:, 1])
    margins = found.logits(features)
    np.testing.assert_allclose(margins[:, 1] - margins[:, 0], theirs.decision_function(features), atol=2e-2)


def test_rows_of_classes_that_a_split_lacks_choose_nothing() -> None:
    random, classes = np.random.default_rng(6), 12
    labels = np.repeat(np.arange(2), 40)
    features = (random.normal(size=(80, 20)) + labels[:, None]).astype(np.float32)
    weights, fold = np.ones(90, np.float32), np.arange(90) % 3
    targets = np.eye(classes, dtype=np.float32)[[*labels, *range(2, 12)]]  # ten classes of one row each
    rare = np.vstack([features, random.normal(size=(10, 20)).astype(np.float32)])
    splits = [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in range(3)]
    names = Labels(target="class", names=[*map(str, range(classes))])
    choice, _ = choose_linear({"f": rare}, targets, weights, names, splits, [0.3])
    judged = [(learn, held[held < 80]) for learn, held in splits]
    alone, _ = choose_linear({"f": rare}, targets, weights, names, judged, [0.3])
    assert (choice.scale, choice.loss) == (alone.scale, pytest.approx(alone.loss))


def test_rare_classes_are_not_doubted_and_a_single_member_says_what_chose_it(base: Path, tmp_path: Path) -> None:
    rows, planted = reviews(120, wrong=6)
    rows += [Raw((f"the {SUBJECTS[n]} was {WORDS['good'][n % 4]}",), "odd", 121 + n) for n in range(6)]
    metrics = finetune(
        FinetuneConfig.build({"recipe": "tfidf"}),
        tmp_path / "m",
        model=base,
        train=table(tmp_path / "t.csv", rows),
    )
    listed = [one["row"] for one in metrics["doubtful"]["rows"]]
    assert planted & {*listed}
    assert max(listed) <= 120
    assert any(line.endswith("; the same rows chose its settings") for line in metrics["summary"])


@pytest.mark.parametrize(("right", "warned"), [(4, True), (8, False)])
def test_few_rows_at_chance_are_said_to_be(right: int, warned: bool) -> None:
    truth = np.tile([0.0, 1.0], 4)
    decided = np.where(np.arange(8) < right, truth, 1 - truth)
    scores = measure_decisions("class", truth, decided, 2)
    labels = Labels(target="class", names=["a", "b"])
    warnings = _warnings(labels, Figures(8, 8, scores), decided, truth, 0.5)
    assert any("not clearly above chance" in warning for warning in warnings) == warned


def test_a_large_validation_table_chooses_by_a_sample(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.finetuning.learning.examples.POLICY", Policy(most_validation=7))
    rows, _ = reviews(60)
    config = FinetuneConfig.build({"recipe": "auto", "steps": 1, "validation_share": None})
    monkeypatch.setattr("headwater.finetuning.learning.parts.POLICY", Policy(few_rows=1, few_per_output=1))
    train, validation = table(tmp_path / "t.csv", rows[:40]), table(tmp_path / "v.csv", rows[40:])
    metrics = finetune(config, tmp_path / "m", model=base, train=train, validation=validation)
    assert metrics["counts"] == {"train": 40, "validation": 7}
    assert "7 of 20 validation rows are used, drawn at random" in metrics["notes"]


def test_an_output_that_cannot_be_written_is_refused_before_bases_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwater.finetuning.stage.choose_base", lambda *_: pytest.fail("compared"))
    (tmp_path / "out").write_text("")
    train = table(tmp_path / "t.csv", reviews(20)[0])
    assert main(["finetune", "--task", "classify", "--train", str(train), "--out", str(tmp_path / "out")]) == 1
    assert "is a file" in capsys.readouterr().err


def test_all_rows_without_a_score_are_named(tmp_path: Path) -> None:
    rows = [Raw((f"a {n}",), f"{n} euros" if n % 20 == 3 else str(n), n) for n in range(1, 61)]
    config = FinetuneConfig.build({"recipe": "tfidf", "target": "score"})
    with pytest.raises(DataError, match=r"3 rows of 60 without a score: 3 \('3 euros'\), 23 \(.*, 43 \("):
        arrange_rows(config, {"train": ("rows", rows)})


def test_tfidf_has_scikit_learns_features_and_comes_back_from_its_folder(tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [row.segments for row in reviews(30)[0]]
    model = Tfidf.learn(texts, "classify", terms=300, characters=1_000)
    theirs = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=300)
    expected = theirs.fit_transform([text for (text,) in texts])
    np.testing.assert_allclose(model.features(texts).toarray()[:, -300:], expected.toarray(), atol=1e-6)
    width = model.features(texts).shape[1]
    model.weight, model.bias = np.ones((width, 2), np.float32).T, np.zeros(2, np.float32)  # not in C's order
    model.weight = model.weight * np.arange(width, dtype=np.float32)
    model.save(tmp_path)
    again = Tfidf.load(tmp_path, "classify")
    np.testing.assert_array_equal(again.logits(again.features(texts)), model.logits(model.features(texts)))
    assert not [path for path in tmp_path.iterdir() if path.suffix in {".pkl", ".pickle", ".joblib"}]
    (tmp_path / "tfidf.json").write_text('{"characters": 9, "terms": {"words": ["a"]}}')
    with pytest.raises(FolderError, match="is damaged"):
        Tfidf.load(tmp_path, "classify")


def test_one_text_of_a_pair_or_an_answer_alone_can_decide(base: Path) -> None:
    """As in natural language inference and Story Cloze, where the overlap of the texts tells little."""
    pairs = [(f"a man has {n} dogs", "nobody sleeps" if n % 2 else "somebody walks") for n in range(40)]
    labels = ["no" if n % 2 else "yes" for n in range(40)]
    entail = hw.Entailment(base, recipe="tfidf").fit(pairs, labels)
    assert entail.predict([("a girl ran", "nobody sleeps"), ("a girl ran", "somebody walks")]).tolist() == [
        "no",
        "yes",
    ]
    endings = ("He was very happy.", "He hated every minute.")
    choices = [(f"Tom went to town {n}.", "", [*endings] if n % 2 == 0 else [*endings[::-1]]) for n in range(40)]
    choice = hw.MultipleChoice(base, recipe="tfidf").fit(choices, [n % 2 for n in range(40)])
    assert choice.predict([("Ann ran.", "", ["She hated it.", "She was happy."])]).tolist() == [1]
    same = hw.Similarity(base, recipe="tfidf").fit(pairs, [float(n % 2) * 4 for n in range(40)])
    swapped = same.predict([(second, first) for first, second in pairs])
    np.testing.assert_allclose(same.predict(pairs), swapped, atol=1e-5)


def test_the_mixture_is_saved_served_and_pickled_as_one_model(base: Path, tmp_path: Path) -> None:
    rows, _ = reviews(60, wrong=6)
    texts, labels = [row.segments[0] for row in rows], [row.label for row in rows]
    classifier = hw.Classifier(load(base), epochs=2).fit(texts, labels)
    assert sum(classifier.weights_.values()) == pytest.approx(1, abs=1e-2)
    assert {*classifier.weights_} <= {"tfidf", "probe", "lp-ft"}
    expected = classifier.predict_proba(texts)
    classifier.save(tmp_path / "m")
    for again in (hw.Classifier.load(tmp_path / "m"), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(again.predict_proba(texts), expected)
    twice = hw.Classifier(load(base), epochs=2).fit(texts, labels)
    np.testing.assert_array_equal(twice.predict_proba(texts), expected)  # rows, seed and settings alone decide


def test_every_part_of_a_line_is_one_call(base: Path, tmp_path: Path) -> None:
    """The estimators and the command call the same `arrange_rows`, `encode` and `fit`."""
    rows, _ = reviews(40)
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1})
    fitted = fit(encode(arrange_rows(config, {"train": ("rows", rows)}), open_base(config, base), config), config)
    metrics = finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    assert FineTuned.load(tmp_path / "m").description.weights == fitted.weights
    assert metrics["members"][0]["weight"] == fitted.weights.get("tfidf", 0.0)
    assert metrics["summary"][0].startswith("The model: ")
    classifier = hw.Classifier(base, epochs=1).fit([r.segments[0] for r in rows], [r.label for r in rows])
    assert classifier.weights_ == fitted.weights


@pytest.mark.parametrize("recipe", ["tfidf", "probe", "lp-ft", "gpt1"])
def test_a_recipe_names_one_member(base: Path, tmp_path: Path, recipe: str) -> None:
    rows, _ = reviews(40)
    config = FinetuneConfig.build({"recipe": recipe, "epochs": 1})
    metrics = finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    assert (metrics["recipe"], FineTuned.load(tmp_path / "m").description.weights) == (recipe, {recipe: 1.0})
    page = (tmp_path / "m" / "report.html").read_text()
    assert ("<p>There are none.</p>" in page) == (metrics["mistakes"] == [])
    assert metrics["mistakes"] == [] or recipe != "tfidf"
    assert predict_file(tmp_path / "m", tmp_path / "t.csv", tmp_path / "p.csv")["labelled"] == 40


def test_the_members_follow_from_the_task_and_the_keys() -> None:
    shape = preset("gpt2-pico")

    def members(**keys: Any) -> tuple[str, ...]:
        return FinetuneConfig.build({"recipe": "auto", **keys}).members(shape)

    assert members() == ("tfidf", "probe", "lp-ft")
    assert members(task="choice") == ("tfidf", "gpt1")
    for keys in ({"from_scratch": True}, {"transfer_layers": 1}, {"lambda_lm": 0.0}):
        assert members(**keys) == ("gpt1",)
    assert FinetuneConfig().members(shape) == ("gpt1",)  # the papers' experiments
    with pytest.raises(UsageError, match="does not fit choices"):
        FinetuneConfig.build({"recipe": "lp-ft", "task": "choice"})
    few = [POLICY.is_few(rows, outputs) for rows, outputs in ((500, 2), (501, 2), (505, 101), (3_001, 900))]
    assert few == [True, False, True, False]


def test_a_share_that_is_asked_for_is_held_out(base: Path) -> None:
    rows, _ = reviews(60)

    def parts(**keys: Any) -> Any:
        config = FinetuneConfig.build({"recipe": "auto", **keys})
        return arrange_rows(config, {"train": ("rows", rows)}).divided(config, crossed=True)

    assert parts().validation is None
    assert len(parts(validation_share=0.1).validation.rows) == 6
    assert parts(validation_share=0.1).fold is not None  # the others choose, the held-out rows measure


def test_copies_stay_on_one_side(base: Path, tmp_path: Path) -> None:
    """Random labels of texts that occur twice, once in capitals or with a space, cannot be learned."""
    random = np.random.default_rng(4)
    texts = [" ".join(random.choice(SUBJECTS + WORDS["good"] + WORDS["bad"], 6)) for _ in range(100)]
    labels = ["a" if one else "b" for one in random.integers(0, 2, 100)]
    copies = [text.upper() if n % 2 else f"{text}. " for n, text in enumerate(texts)]
    rows = [
        Raw((text,), label, n)
        for n, (text, label) in enumerate(zip([*texts, *copies], labels * 2, strict=True), 1)
    ]
    fold = folds(rows, np.array([float(row.label == "a") for row in rows]), 1, 3)
    assert fold is not None
    assert (fold[:100] == fold[100:]).all()
    metrics = finetune(
        FinetuneConfig.build({"recipe": "tfidf"}),
        tmp_path / "m",
        model=base,
        train=table(tmp_path / "t.csv", rows),
    )
    assert abs(metrics["value"] - 0.5) < 0.15  # it was 1 with a copy on the other side
    assert any(note.startswith("100 training rows repeat the text of another") for note in metrics["notes"])


def test_a_comparison_needs_an_interval_without_zero() -> None:
    truth = np.tile([0.0, 1.0], 50)
    almost = np.where(np.arange(100) < 3, 1 - truth, truth)
    low, high = paired_difference("accuracy", "class", truth, almost, truth, 2)
    assert low < 0.03 < high
    worse = np.where(np.arange(100) < 30, 1 - truth, truth)
    for metric in ("accuracy", "macro_f1"):
        assert paired_difference(metric, "class", truth, worse, truth, 2)[0] > 0.1  # type: ignore[arg-type]


def test_planted_errors_are_listed_first_and_not_by_bad_models(base: Path, tmp_path: Path) -> None:
    rows, planted = reviews(300, wrong=20)
    config = FinetuneConfig.build({"recipe": "tfidf", "doubtful": 25})
    finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    listed = [json.loads(line) for line in (tmp_path / "m" / "doubtful-labels.jsonl").read_text().splitlines()]
    assert len(listed) <= 25
    assert len({one["row"] for one in listed} & planted) >= 15
    assert "Labels that look wrong" in (tmp_path / "m" / "report.html").read_text()
    random = np.random.default_rng(5)
    noise = [Raw(row.segments, str(random.integers(0, 2)), row.row) for row in rows]
    examples = encode(arrange_rows(config, {"train": ("rows", noise)}), open_base(config, base), config)
    nothing = doubts(fit(examples, config), examples, config)
    assert (nothing.rows, "not good enough" in nothing.reason) == ([], True)
    assert not doubts(fit(examples, config), examples, config.model_copy(update={"doubtful": 0})).reason


def test_a_stopped_cross_validation_resumes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = Policy(least_weight=-1.0, least_gain=-1e9)  # no member is dropped
    for module in (fit_module, members_module):
        monkeypatch.setattr(module, "POLICY", everything)
    rows, _ = reviews(36, wrong=9)
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 3, "checkpoint_every": 1})
    train = table(tmp_path / "t.csv", rows)
    whole = finetune(config, tmp_path / "whole", model=base, train=train)
    assert {one["name"] for one in whole["members"]} == {"tfidf", "probe", "lp-ft"}
    updates: list[int] = []
    update = Trainer.update

    def stopping(*given: Any) -> Any:
        if len(updates) == 3 + 1:
            raise Stop
        updates.append(1)
        return update(*given)

    with monkeypatch.context() as patched, pytest.raises(Stop):
        patched.setattr(Trainer, "update", stopping)
        finetune(config, tmp_path / "stopped", model=base, train=train)
    updates.clear()
    monkeypatch.setattr(Trainer, "update", lambda *given: [updates.append(1), update(*given)][1])
    assert finetune(config, tmp_path / "stopped", model=base, train=train) == whole
    assert len(updates) == 2 + 3  # of the second and the third fold
    assert content_of(tmp_path / "stopped") == content_of(tmp_path / "whole")
    assert not (tmp_path / "stopped" / "folds").exists()


def test_warnings_and_curves_of_a_cross_validation_are_kept(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tracker(name: str, out: Path, *_: Any) -> Any:
        (out / "tensorboard").mkdir(exist_ok=True)
        (out / "tensorboard" / "events").write_text(out.name)
        return (lambda line: None), (lambda: None)

    def full(*_: Any) -> None:
        raise StorageError("no space is left")

    class Notes(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    monkeypatch.setattr("headwater.training.loop.open_tracker", tracker)
    rows, _ = reviews(36)
    config = FinetuneConfig.build({"recipe": "lp-ft", "epochs": 1, "track": ["tensorboard"]})
    train = table(tmp_path / "t.csv", rows)
    with monkeypatch.context() as patched:
        patched.setattr("headwater.training.checkpoint.save_file", full)
        with pytest.raises(StorageError, match="was not written: the warning above says why"):
            finetune(config, tmp_path / "m", model=base, train=train, progress=Notes())
    assert any("no space is left" in note for note in notes)
    finetune(config, tmp_path / "m", model=base, train=train)
    curves = sorted(path.read_text() for path in (tmp_path / "m" / "tensorboard").glob("*/events"))
    assert curves == ["m-0", "m-1", "m-2"]


def test_tuning_of_few_rows_is_the_mean_of_its_folds(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    original = members_module.train_task

    def keeping(*given: Any, **more: Any) -> Any:
        training = original(*given, **more)
        trained.append({name: value.clone() for name, value in given[1].model.state_dict().items()})
        return training

    monkeypatch.setattr(members_module, "train_task", keeping)
    config = FinetuneConfig.build({"recipe": "lp-ft", "epochs": 1})
    rows, _ = reviews(36)
    opened = open_base(config, base)
    examples = encode(arrange_rows(config, {"train": ("rows", rows)}), opened, config)
    tuned, before = fit(examples, config).model.base.state_dict(), opened.model.state_dict()
    assert len(trained) == 3
    for name, value in tuned.items():
        torch.testing.assert_close(value, torch.stack([fold[name] for fold in trained]).mean(dim=0))
        assert torch.equal(value, before[name]) == (name == "tokens.weight"), name


@pytest.mark.parametrize(("count", "skipped"), [(126, True), (60, False)])
def test_tuning_is_skipped_where_the_first_fold_shows_no_weight(
    base: Path, monkeypatch: pytest.MonkeyPatch, *, count: int, skipped: bool
) -> None:
    """A fold of few rows decides nothing."""
    trained: list[int] = []
    original = members_module.train_task
    monkeypatch.setattr(members_module, "train_task", lambda *a, **k: [trained.append(1), original(*a, **k)][1])
    rows, _ = reviews(count)  # words decide, and the base is untrained
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1})
    fitted = fit(encode(arrange_rows(config, {"train": ("rows", rows)}), open_base(config, base), config), config)
    assert ("lp-ft" not in fitted.members, len(trained) == 1) == (skipped, skipped)
    assert "tfidf" in fitted.weights


def test_many_rows_choose_on_validation_rows_and_linear_models_are_bounded(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Policy(few_rows=10, few_per_output=1, linear_rows=40)
    for module in ("fit", "examples", "members", "parts"):
        monkeypatch.setattr(f"headwater.finetuning.learning.{module}.POLICY", small)
    rows, _ = reviews(120, wrong=12)
    rows = [Raw((f"{row.segments[0]} {'and a plot ' * 30}",), row.label, row.row) for row in rows]  # shortened
    config = FinetuneConfig.build({"recipe": "auto", "epochs": 1})
    metrics = finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    assert metrics["counts"] == {"train": 108, "validation": 12}
    assert not metrics["cross_validated"]
    for part, count in metrics["counts"].items():
        part = part.replace("train", "training")
        assert any(note.startswith(f"{part}: {count} of {count} rows are longer") for note in metrics["notes"])
    assert any(line.endswith("without 68 of the others") for line in metrics["summary"])
    assert predict_file(tmp_path / "m", tmp_path / "t.csv", tmp_path / "p.csv")["accuracy"] > 0.6


def test_a_base_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    korean, english = "강물이 바다로 흘러간다", "the river runs to the sea and it is in the valley of the king"
    monkeypatch.setattr("headwater.finetuning.learning.bases._has_encoder", lambda: True)
    assert _available_bases(korean) == ["gpt2-mini-ko"]
    assert _available_bases(english) == ["gpt2-mini", "minilm"]
    assert _available_bases("Река течёт в море") == ["gpt2-mini"]
    assert _available_bases(f"{korean * 4} {english}")[:2] == ["gpt2-mini-ko", "gpt2-mini"]
    monkeypatch.setattr("headwater.finetuning.learning.bases._has_encoder", lambda: False)
    rows = [Raw((f"{korean} {n} {'좋다' if n % 2 else '나쁘다'}",), "ab"[n % 2], n) for n in range(12)]
    config = FinetuneConfig.build({"recipe": "probe"})
    classifier = hw.Classifier(recipe="probe").fit([r.segments[0] for r in rows], [r.label for r in rows])
    assert classifier.base_ == "gpt2-mini-ko"
    parts = arrange_rows(config, {"train": ("rows", [Raw((f"{english} {n}",), "ab"[n % 2], n) for n in range(9)])})
    (advice,) = base_notes(open_base(config, "gpt2-mini"), parts)
    assert "--model minilm --download" in advice
    both = [Raw((f"{korean if n % 2 else english} {n}",), "ab"[n % 3 == 0], n) for n in range(9)]
    mixed = base_notes(open_base(config, "gpt2-mini"), arrange_rows(config, {"train": ("rows", both)}))
    assert not any("minilm" in note for note in mixed)
    other = arrange_rows(config, {"train": ("rows", rows)})
    assert any(
        "gpt2-mini was not made for the script" in note
        for note in base_notes(open_base(config, "gpt2-mini"), other)
    )


def test_a_fine_tuned_folder_is_no_base(base: Path, tmp_path: Path) -> None:
    rows, _ = reviews(20)
    config = FinetuneConfig.build({"recipe": "tfidf"})
    finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    with pytest.raises(UsageError, match=r"is fine-tuned already.*Start from its base: --model .*model"):
        finetune(config, tmp_path / "n", model=tmp_path / "m", train=tmp_path / "t.csv")
    with pytest.raises(UsageError, match="is fine-tuned already"):
        hw.Classifier(tmp_path / "m").fit(["a", "b", "c", "d"], [0, 1, 0, 1])


def test_weights_that_overflow_are_refused(base: Path, tmp_path: Path) -> None:
    rows, _ = reviews(20)
    config = FinetuneConfig.build({"recipe": "gpt1", "steps": 1})
    finetune(config, tmp_path / "m", model=base, train=table(tmp_path / "t.csv", rows))
    tuned = FineTuned.load(tmp_path / "m")
    member = tuned.members["gpt1"]
    assert isinstance(member, TaskModel)
    with torch.no_grad():
        for parameter in member.parameters():
            parameter *= 1e30
    with pytest.raises(FolderError, match="not finite"):
        list(tuned.predict(rows))


@pytest.mark.parametrize(
    ("name", "content", "noted", "classes"),
    [
        (
            "lists.jsonl",
            "".join(
                json.dumps({"text": f"room {n}", "label": [["good"], ["bad"]][n % 2]}) + "\n" for n in range(12)
            ),
            "12 training rows with a list of one label: read as one label a row",
            ["bad", "good"],
        ),
        (
            "joined.csv",
            "text,label\n" + "".join(f"a {n},good\nb {n},bad\n" for n in range(6)) + "\ufefftext,label\nc,good\n",
            "row 13 repeats the names of the columns",
            ["bad", "good"],
        ),
        (
            "errors.csv",
            "text,label\n" + "".join(f"a {n},good\nb {n},bad\n" for n in range(6)) + "c,#N/A\nd,#REF!\n",
            "2 rows that cannot be read; the first",
            ["bad", "good"],
        ),
    ],
)
def test_cells_of_exports_are_no_classes(
    base: Path, tmp_path: Path, name: str, content: str, noted: str, classes: list[str]
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    config = FinetuneConfig.build({"recipe": "tfidf"})
    metrics = finetune(config, tmp_path / "m", model=base, train=tmp_path / name)
    assert any(noted in note for note in metrics["notes"]), metrics["notes"]
    assert [one["name"] for one in metrics["classes"]] == classes


def test_the_questions_of_a_form_are_its_header(base: Path, tmp_path: Path) -> None:
    (tmp_path / "form.csv").write_text(
        'Timestamp,"How was your room?\n(one sentence)",Come again?\n'
        + "".join(f'2026/03/0{n} 09:00:00,"A room, {n}.",{"yes" if n % 2 else "no"}\n' for n in range(1, 9)),
        encoding="utf-8",
    )
    config = FinetuneConfig.build({"recipe": "tfidf"})
    with pytest.raises(DataError, match=r"no column for the text.*'Timestamp', .*Name it: --text COLUMN"):
        finetune(config, tmp_path / "m", model=base, train=tmp_path / "form.csv")
    scores = tmp_path / "scores.csv"
    scores.write_text(
        "text,label\n" + "".join(f"room {n},{n}\n" for n in range(12)) + "hall,N/A\n", encoding="utf-8"
    )
    metrics = finetune(
        FinetuneConfig.build({"recipe": "tfidf", "target": "score"}), tmp_path / "s", model=base, train=scores
    )
    assert any("1 without a label" in note for note in metrics["notes"])
