"""The task model over ELMo's features: it compares two texts, ignores padding, and is saved and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headwater import Classifier, Entailment
from headwater.errors import UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, Raw, finetune
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer
from headwater_papers.relatives.esim import RecurrentReader

WORDS = ["film", "story", "plot", "dull", "great"]
PAIRS = [(a, b) for a in WORDS for b in WORDS] * 4
SAME = ["yes" if a == b else "no" for a, b in PAIRS]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 9, vocab_size=270)
    (tmp_path / "base").mkdir()
    shape = {"vocabulary": tokenizer.vocabulary_size, "width": 32, "heads": 2, "layers": 2, "context": 48}
    save_model(build_model(preset("gpt2-pico", **shape), seed=1), tmp_path / "base", tokenizer=tokenizer)
    return tmp_path / "base"


def test_the_recurrent_task_model_learns_to_compare_two_texts(base: Path, tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    rows = [f"{a},{b},{label}\n" for (a, b), label in zip(PAIRS, SAME, strict=True)]
    table.write_text("premise,hypothesis,label\n" + "".join(rows), encoding="utf-8")
    keys = {
        "task": "entail",
        "freeze": True,
        "task_model": "lstm",
        "class_weight": "balanced",
        "precision": "bf16",
    }
    config = FinetuneConfig.build(keys | {"learning_rate": 1e-2, "epochs": 10})
    finetune(config, tmp_path / "tuned", model=base, train=table, validation=table)
    tuned = FineTuned.load(tmp_path / "tuned")
    assert isinstance(tuned.model.head.reader, RecurrentReader)
    found = tuned.predict(Raw(pair, None, row) for row, pair in enumerate(PAIRS))
    right = [one.label == label for one, label in zip(found, SAME, strict=True)]
    assert sum(right) > 0.9 * len(right)


def test_an_estimator_saves_and_loads_its_task_model(base: Path, tmp_path: Path) -> None:
    estimator = Entailment(base, freeze=True, task_model="lstm", epochs=1).fit(PAIRS[:25], SAME[:25])
    estimator.save(tmp_path / "saved")
    again = Entailment.load(tmp_path / "saved")
    assert again.get_params()["task_model"] == "lstm"
    np.testing.assert_array_equal(again.predict_proba(PAIRS), estimator.predict_proba(PAIRS))


def test_one_text_is_read_by_the_bi_lstm_alone(base: Path) -> None:
    texts = [f"{a} {b}" for a, b in PAIRS]
    classifier = Classifier(base, freeze=True, task_model="lstm", epochs=20, learning_rate=1e-2)
    assert (
        classifier.fit(texts, [b == "dull" for _, b in PAIRS]).score(texts, [b == "dull" for _, b in PAIRS]) > 0.9
    )


def test_a_recurrent_task_model_needs_a_frozen_base() -> None:
    with pytest.raises(UsageError, match="needs freeze"):
        FinetuneConfig.build({"task_model": "lstm"}, source="test")


@pytest.mark.parametrize("texts", [1, 2])
def test_padding_changes_nothing(texts: int) -> None:
    generator = torch.Generator().manual_seed(1)
    reader = RecurrentReader(16, texts, generator)
    rows = [(torch.randn(2, 7, 16, generator=generator), torch.arange(7) < torch.tensor([[7], [3]]))] * texts
    extract = torch.zeros(2, 16)
    alone = reader([(x[1:, :3], inside[1:, :3]) for x, inside in rows], extract[1:])
    torch.testing.assert_close(reader(rows, extract)[1:], alone)
