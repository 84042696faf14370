"""A tiny base model with its tokenizer, and a small table of texts whose class is easy to tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer

WORDS = {"good": ("wonderful", "lovely", "great"), "bad": ("awful", "dull", "poor")}


def make_sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts and labels: one telling word among others decides."""
    chosen = random.Random(seed)
    labels = [chosen.choice(["good", "bad"]) for _ in range(count)]
    texts = []
    for label in labels:
        words = chosen.choices(["the", "film", "was", "a", "story", "and", "plot"], k=chosen.randint(2, 9))
        words.insert(chosen.randrange(len(words)), chosen.choice(WORDS[label]))
        texts.append(" ".join(words))
    return texts, labels


@pytest.fixture(scope="session")
def sentences() -> Callable[..., tuple[list[str], list[str]]]:
    """`sentences(count, seed=0)` gives texts and their labels."""
    return make_sentences


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    texts, _ = make_sentences(200, seed=9)
    return Tokenizer.train([" ".join(texts)], kind="gpt2", vocab_size=320)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A model folder: two layers, 32 wide, context 48, random weights."""
    folder = tmp_path_factory.mktemp("base") / "model"
    folder.mkdir()
    config = preset(
        "gpt2-pico", vocabulary=tokenizer.vocabulary_size, width=32, heads=2, context=48, position_deviation=0.02
    )
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder
