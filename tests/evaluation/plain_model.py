"""A model of random weights with its tokenizer, the folders that Headwater's own tasks read, and the model asked
one forward pass at a time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from headwater.corpus import Document, write_documents
from headwater.evaluation import evaluate, read_examples
from headwater.model import ModelConfig, build_model, load_model, save_model
from headwater.pretraining import pack
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

WORDS = ["river", "stream", "lake", "the", "a", "of", "flows", "slowly", "north", "Ärmel", "강물", "very", "to"]

# A line of hellaswag_val.jsonl.
HELLASWAG = """{"activity_label": "Water", "ctx_a": "the river", "ctx_b": "of", "label": 1, \
"endings": ["the lake", "a stream", "to", "north"]}
"""

# A task of a user's own.
CONTINUATION = """
kind = "choice"
benchmark = "continuation.four"
summary = "which of four texts continues a context"
files = ["continuation.jsonl"]
where = "Write it"
context = "{context}{question}"
separator = ""
readings = ["mean", "gain"]
"""


class World(NamedTuple):
    root: Path
    model: Path
    tokens: Path
    labels: Path
    wide: Path  # another model, with room for a prompt of several examples


def sentences(random: np.random.Generator, count: int) -> str:
    return " ".join(" ".join(random.choice(WORDS, random.integers(3, 9))).capitalize() + "." for _ in range(count))


def make_world(root: Path) -> World:
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
    (root / "labels").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (root / "labels" / "continuation.jsonl").write_text(text, encoding="utf-8")
    (root / "continuation.toml").write_text(CONTINUATION, encoding="utf-8")
    wide = save_random(root / "wide", tokenizer, context=640)
    return World(root, save_random(root / "model", tokenizer), root / "tokens", root / "labels", wide)


def save_random(folder: Path, tokenizer: Tokenizer, **changes: Any) -> Path:
    """A small GPT-2 whose weights are large enough that its probabilities differ."""
    shape: dict[str, Any] = {"context": 48, "layers": 2, "width": 32, "heads": 2, "init_deviation": 0.2}
    config = ModelConfig.build({"vocabulary": tokenizer.vocabulary_size}, shape, changes)
    with Stage(folder, kind="model", config=config.to_dict(), inputs={}).write() as work:
        save_model(build_model(config, seed=3), work, tokenizer=tokenizer)
    return folder


class Plain:
    """The model asked one forward pass at a time."""

    def __init__(self, folder: Path) -> None:
        self.model, self.tokenizer = load_model(folder), Tokenizer.load(folder)
        self.context = self.model.config.context

    def tokens(self, context: str, continuation: str) -> list[float]:
        """Log-probability of each token of the continuation."""
        head = self.tokenizer.encode(context) or [self.tokenizer.end_of_text]
        whole = self.tokenizer.encode(context + continuation)
        tail = whole[len(head) :] if context else whole
        assert not context or whole[: len(head)] == head
        ids = [*head, *tail][-self.context - 1 :]
        with torch.no_grad():
            rows = self.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        return [float(rows[i - len(tail), t]) for i, t in enumerate(tail)]


def run(world: Any, tmp_path: Path, protocol: str, files: dict[str, str]) -> tuple[Any, list[dict[str, Any]]]:
    data = tmp_path / "data"
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text, encoding="utf-8")
    results = evaluate(world.model, [protocol], data, tmp_path / "out")
    assert not [entry for entry in results.skipped if entry.examples is None], results.skipped
    return results, list(read_examples(tmp_path / "out", protocol))
