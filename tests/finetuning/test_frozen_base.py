"""A frozen base: it stays as it is, computes each text once, and its folder predicts what training measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwater import Classifier
from headwater.errors import ResourceError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, FrozenTaskModel, Raw, TaskName, finetune
from headwater.model import build_model, load_model, preset, save_model
from headwater.storage import Progress
from headwater.tokenizer import Tokenizer

Sentences = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(params=["gpt2-pico", "bert-nano", "lstm-nano", "bilstm-nano"])
def any_base(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A model folder of each architecture, with random weights."""
    folder = tmp_path / "any-base"
    folder.mkdir()
    shape: dict[str, Any] = {"vocabulary": tokenizer.vocabulary_size, "width": 32, "context": 48}
    shape |= {"units": 40} if "lstm" in request.param else {"heads": 2, "layers": 2}
    save_model(build_model(preset(request.param, **shape), seed=1), folder, tokenizer=tokenizer)
    return folder


@pytest.fixture
def base_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each pass through the base."""
    passes: list[int] = []
    original = FrozenTaskModel.base_outputs

    def counted(self: FrozenTaskModel, batch: Any) -> torch.Tensor:
        passes.append(int((batch.extract + 1).sum()))
        return original(self, batch)

    monkeypatch.setattr(FrozenTaskModel, "base_outputs", counted)
    return passes


def test_each_text_passes_through_the_frozen_base_once(
    any_base: Path, sentences: Sentences, tmp_path: Path, base_passes: list[int]
) -> None:
    texts, labels = sentences(400)
    Classifier(any_base, freeze=True, epochs=1).fit(texts, labels)
    once = list(base_passes)
    base_passes.clear()
    classifier = Classifier(any_base, freeze=True, epochs=20, learning_rate=1e-2).fit(texts, labels)
    assert base_passes == once
    fresh, truth = sentences(60, seed=1)
    assert classifier.score(fresh, truth) > 0.85
    before, after = load_model(any_base).state_dict(), classifier.fine_tuned_.model.model.state_dict()
    assert all(torch.equal(after[name][: len(weight)], weight) for name, weight in before.items())
    classifier.save(tmp_path / "saved")
    again = Classifier.load(tmp_path / "saved")
    assert again.get_params()["freeze"]
    np.testing.assert_array_equal(again.predict_proba(fresh), classifier.predict_proba(fresh))


def test_a_frozen_base_distinguishes_two_texts(base: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = ["film", "story", "plot", "dull", "great"]
    pairs = [(a, b) for a in words for b in words] * 4
    same = ["yes" if a == b else "no" for a, b in pairs]
    table = tmp_path / "pairs.csv"
    rows = [f"{a},{b},{y}\n" for (a, b), y in zip(pairs, same, strict=True)]
    table.write_text("premise,hypothesis,label\n" + "".join(rows), encoding="utf-8")
    config = FinetuneConfig(
        task="entail",
        freeze=True,
        epochs=20,
        learning_rate=1e-2,
        class_weight="balanced",
        precision="bf16",
    )
    finetune(config, tmp_path / "tuned", model=base, train=table, validation=table)
    used = FinetuneConfig.load(tmp_path / "tuned" / "config.toml")
    assert (used.precision, used.lambda_lm) == ("fp32", 0)
    tuned = FineTuned.load(tmp_path / "tuned")
    found = list(tuned.predict(Raw(pair, None, row) for row, pair in enumerate(pairs)))
    right = [one.label == label for one, label in zip(found, same, strict=True)]
    assert sum(right) > 0.9 * len(right)


def test_an_unknown_task_model_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no task model 'poling'"):
        FinetuneConfig.build({"freeze": True, "task_model": "poling"}, source="test")


def test_the_papers_task_model_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.plugins._TASK_MODELS", {})
    with pytest.raises(ResourceError, match="pip install headwater-papers"):
        FinetuneConfig.build({"freeze": True, "task_model": "lstm"}, source="test")


@pytest.mark.parametrize("name", ["bert-nano", "bilstm-nano"])
@pytest.mark.parametrize("task", ["classify", "entail", "similarity", "choice"])
def test_padding_changes_nothing(task: TaskName, name: str) -> None:
    from headwater.finetuning import Labels

    from .test_masked_base import one_of
    from .test_objective import random_examples, whole_batch

    counts = [1, 1, 1] if task in {"classify", "entail"} else [2, 2, 2]
    shape = {"units": 6} if name == "bilstm-nano" else {"heads": 2}
    base = build_model(preset(name, vocabulary=40, context=16, layers=2, width=8, **shape), seed=3)
    labels = Labels(target="answer") if task == "choice" else Labels(target="class", names=["a", "b"])
    model = FrozenTaskModel(base, task, labels.outputs, delimiter=7, dropout=0.0, seed=4).eval()
    encoded = random_examples(counts, 5, 2)
    with torch.no_grad():
        together = model(whole_batch(encoded, labels)).logits
        for example in range(len(counts)):
            alone = model(whole_batch(one_of(encoded, example), labels)).logits
            assert torch.allclose(alone[0], together[example], atol=1e-3)


class Stop(Exception):
    """What ends the process in this test."""


class StopAfter(Progress):
    def advance(self, done: float, **figures: float) -> None:
        if done == 5:
            raise Stop


def test_a_stopped_run_resumes_bit_for_bit(base: Path, sentences: Sentences, tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\n" + "".join(f"{t},{y}\n" for t, y in zip(*sentences(60), strict=True)))
    config = FinetuneConfig(
        freeze=True, steps=9, batch_size=8, checkpoint_every=2, precision="fp32", learning_rate=1e-2
    )
    whole = finetune(config, tmp_path / "whole", model=base, train=table)
    with pytest.raises(Stop):
        finetune(config, tmp_path / "halved", model=base, train=table, progress=StopAfter())
    assert finetune(config, tmp_path / "halved", model=base, train=table) == whole
    for name in ("head.safetensors", "model.safetensors", "predictions-validation.jsonl"):
        assert (tmp_path / "halved" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert isinstance(FineTuned.load(tmp_path / "halved").model, FrozenTaskModel)


def test_freezing_a_base_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="freeze"):
        FinetuneConfig.build({"freeze": True, "from_scratch": True}, source="test")


def test_a_frozen_base_with_a_language_model_loss_is_refused() -> None:
    with pytest.raises(UsageError, match="no language-model loss"):
        FinetuneConfig.build({"freeze": True, "lambda_lm": 0.2}, source="test")
