"""The task model over ELMo's features: it compares two texts, ignores padding, and leaves the base unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.finetuning import FinetuneConfig, Raw, TaskName, arrange_rows, run_stage
from headwater.model import build_model, load_model, preset, save_model
from headwater.tokenizer import Tokenizer
from headwater_papers.relatives.esim import RecurrentReader
from headwater_papers.relatives.frozen import build_frozen

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


@pytest.mark.parametrize("task", ["entail", "classify"])
def test_the_task_model_learns_over_a_frozen_base(base: Path, tmp_path: Path, task: TaskName) -> None:
    rows = [
        Raw(pair, label, n) if task == "entail" else Raw((" ".join(pair),), pair[1] == "dull", n)
        for n, (pair, label) in enumerate(zip(PAIRS, SAME, strict=True), 1)
    ]
    keys = {"learning_rate": 1e-2, "epochs": 10, "lambda_lm": 0.0, "precision": "fp32", "baseline": False}
    config = FinetuneConfig.build({"task": task, "class_weight": "balanced", **keys})
    tables = dict.fromkeys(("train", "validation"), ("rows", rows))
    metrics = run_stage(
        config,
        tmp_path / "tuned",
        lambda: arrange_rows(config, tables),
        model=base,
        inputs={},
        build=build_frozen,
    )
    assert metrics["value"] > 0.9
    unchanged = load_model(base).state_dict()
    tuned = load_model(tmp_path / "tuned").state_dict()
    assert all((tuned[name][: len(value)] == value).all() for name, value in unchanged.items())


@pytest.mark.parametrize("texts", [1, 2])
def test_padding_changes_nothing(texts: int) -> None:
    generator = torch.Generator().manual_seed(1)
    reader = RecurrentReader(16, texts, generator)
    rows = [(torch.randn(2, 7, 16, generator=generator), torch.arange(7) < torch.tensor([[7], [3]]))] * texts
    extract = torch.zeros(2, 16)
    alone = reader([(x[1:, :3], inside[1:, :3]) for x, inside in rows], extract[1:])
    torch.testing.assert_close(reader(rows, extract)[1:], alone)
