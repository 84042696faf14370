"""A model of random weights with its tokenizer, and the folders that Headwater's own tasks read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from headwater.corpus import Document, write_documents
from headwater.model import ModelConfig, build_model, save_model
from headwater.pretraining import pack
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

WORDS = ["river", "stream", "lake", "the", "a", "of", "flows", "slowly", "north", "Ärmel", "강물", "very", "to"]


class World(NamedTuple):
    root: Path
    model: Path
    tokens: Path
    labels: Path
    wide: Path  # another model, with room for a prompt of several examples


def sentences(random: np.random.Generator, count: int) -> str:
    return " ".join(" ".join(random.choice(WORDS, random.integers(3, 9))).capitalize() + "." for _ in range(count))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    random = np.random.default_rng(7)
    texts = [sentences(random, int(random.integers(1, 30))) for _ in range(60)]
    with Stage(root / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id=f"{i:032x}", text=text) for i, text in enumerate(texts)], work)
    tokenizer = Tokenizer.train([root / "corpus"], vocab_size=400, special_tokens=["<|endoftext|>"])
    with Stage(root / "tokenizer", kind="tokenizer", config={}, inputs={}).write() as work:
        tokenizer.save(work)
    pack(root / "corpus", root / "tokenizer", root / "tokens", 0.2)
    rows = []
    for label in (0, 3, 2, 1, 0):
        answers = [sentences(random, 2) for _ in range(4)]
        rows.append({"context": sentences(random, 1) + "\n\n", "question": "", "answers": answers, "label": label})
    with Stage(root / "labels", kind="labels", config={"task": "continuation"}, inputs={}).write() as work:
        (work / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    wide = save_random(root / "wide", tokenizer, context=640)
    return World(root, save_random(root / "model", tokenizer), root / "tokens", root / "labels", wide)


def save_random(folder: Path, tokenizer: Tokenizer, **changes: Any) -> Path:
    """A small GPT-2 whose weights are large enough that its probabilities differ."""
    shape: dict[str, Any] = {"context": 48, "layers": 2, "width": 32, "heads": 2, "init_deviation": 0.2}
    config = ModelConfig.build({"vocabulary": tokenizer.vocabulary_size}, shape, changes)
    with Stage(folder, kind="model", config=config.to_dict(), inputs={}).write() as work:
        save_model(build_model(config, seed=3), work, tokenizer=tokenizer)
    return folder
