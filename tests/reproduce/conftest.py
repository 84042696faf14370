"""A scale so small that a whole experiment takes seconds, and generated text for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.reproduce.scale import Scale

_RECIPE = {
    "batch_size": 4,
    "context": 32,
    "steps": 4,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "matmul": "torch",
    "attention": "fused",
    "validate_every": 2,
    "checkpoint_every": 2,
}


def tiny_scale(**changes: object) -> Scale:
    """Two models of some ten thousand parameters, three seeds, four updates."""
    plan = {"text": "books", "snapshots": [2, 4]}
    transformer = {"preset": "gpt1-nano", "model": {"layers": 2, "width": 32, "heads": 2, "context": 32}}
    recurrent = {"preset": "lstm-nano", "model": {"layers": 1, "width": 32, "units": 64, "context": 32}}
    content = {
        "name": "tiny",
        "about": "for tests",
        "texts": {
            "books": {
                "sources": ["text.txt"],
                "tokenizer": "gpt1",
                "vocabulary": 300,
                "held_out": 0.3,
                "validation": 0.1,
            }
        },
        "models": {
            "gpt1": plan | {"recipe": _RECIPE | transformer},
            "lstm": plan | {"recipe": _RECIPE | recurrent},
        },
        "experiments": {"gpt1_perplexity": {"windows": 10}},
    }
    return Scale.build(content, changes)


@pytest.fixture(scope="session")
def scale() -> Scale:
    return tiny_scale()


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """A data folder with the training text of the tiny scale."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    return folder
