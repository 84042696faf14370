"""A scale so small that a whole experiment takes seconds, and generated text for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model import build_model, preset, save_model
from headwater.tokenizer import train_tokenizer
from headwater_papers.scale import Scale

_RECIPE = {
    "batch_size": 4,
    "context": 32,
    "steps": 4,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "validate_every": 2,
    "checkpoint_every": 2,
}


def tiny_scale(**changes: object) -> Scale:
    """Four models of some ten thousand parameters, three seeds, four updates."""
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
            "bert": plan | {"recipe": _RECIPE | transformer | {"preset": "bert-nano"}},
            "elmo": plan | {"recipe": _RECIPE | recurrent | {"preset": "bilstm-nano"}},
        },
        "labelled": {
            "recipe": {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1},
            "sets": {"sst2": {"train": 24, "validation": 8, "test": 12}, "rte": {"train": 24}},
        },
        "experiments": {
            "gpt1_perplexity": {"windows": 10},
            "gpt1_layers": {"sets": ["sst2"]},
            "objectives": {"sets": ["rte"]},
            "gpt1_updates": {"tasks": {"sst-2.whole-word": 8}},
        },
    }
    return Scale.build(content, changes)


@pytest.fixture(scope="session")
def scale() -> Scale:
    return tiny_scale()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """A model folder: two layers, 32 wide, context 48, random weights."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    tokenizer = train_tokenizer([folder / "text.txt"], folder / "tokenizer", vocab_size=300)
    (folder / "model").mkdir()
    changes = {"width": 32, "heads": 2, "context": 48, "position_deviation": 0.02}
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, **changes)
    save_model(build_model(config, seed=1), folder / "model", tokenizer=tokenizer)
    return folder / "model"


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """The same with two labelled sets in their official forms: a classification and an entailment."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    words = sample_text.replace("\n", " ").split()
    sentences = [" ".join(words[start : start + 6]) for start in range(0, 900, 6)]
    sst2, rte = folder / "finetune" / "sst2" / "glue", folder / "finetune" / "rte"
    sst2.mkdir(parents=True)
    rte.mkdir(parents=True)
    for name, part in (("train", sentences[:40]), ("dev", sentences[40:60])):
        rows = [f"{number % 2}\t{sentence}" for number, sentence in enumerate(part)]
        (sst2 / f"{name}.tsv").write_text("\n".join(["label\ttext_a", *rows]) + "\n", encoding="utf-8")
        pairs = zip(part, reversed(part), strict=True)
        rows = [f"{number}\t{number % 2}\t{a}\t{b}" for number, (a, b) in enumerate(pairs)]
        text = "\n".join(["index\tlabel\tsentence1\tsentence2", *rows]) + "\n"
        (rte / f"{name}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """A data folder with the training text of the tiny scale."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text(sample_text, encoding="utf-8")
    return folder
