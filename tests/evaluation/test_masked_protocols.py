"""Protocols for masked models: each token hidden alone, next to a plain computation; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwater.evaluation import evaluate, read_examples
from headwater.model import build_model, load_model, preset, save_model
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer

FILES = {
    "wsc273.txt": "The lake met the river, but [MASK] flows.\n[MASK]\nthe lake,the river\nthe river\n\n",
    "dprd/test.c.txt": "The lake met the river, because it flows.\nit\nthe lake,the river\nthe river\n\n",
    "SST-2/dev.tsv": "sentence\tlabel\nthe river flows\t1\nslowly of\t0\n",
    "cola/in_domain_train.tsv": "x\t1\t\tthe river flows\nx\t0\t\tof the of\n",
    "cola/in_domain_dev.tsv": "x\t1\t\ta lake\nx\t0\t\tto to very\n",
}
# What each protocol asks of the first example: the text, and the part whose tokens are hidden.
ASKED = {
    "wsc273": [(f"The lake met the river, but {c}", " flows.") for c in ("the lake", "the river")],
    "dprd": [(f"The lake met the river, because {c}", " flows.") for c in ("the lake", "the river")],
    "sst-2": [("the river flows very", f" {word}") for word in ("negative", "positive")],
    "cola": [("", "a lake")],
}


@pytest.fixture(scope="module")
def masked(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("masked") / "model"
    tokenizer = Tokenizer.load(world.model).with_mask()
    shape = {"vocabulary": tokenizer.vocabulary_size, "context": 48, "layers": 2, "width": 32, "heads": 2}
    model = build_model(preset("bert-nano", **shape, init_deviation=0.2), seed=3)
    with Stage(folder, kind="model", config={}, inputs={}).write() as work:
        save_model(model, work, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def hide_each(folder: Path, context: str, rest: str) -> list[float]:
    """Log-probability of each token of `rest`, one forward pass each."""
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    ids, count = tokenizer.encode(context + rest), len(tokenizer.encode(context))
    found = []
    for place in range(count, len(ids)):
        hidden = torch.tensor([[*ids[:place], tokenizer.mask, *ids[place + 1 :]]])
        with torch.no_grad():
            found.append(float(model(hidden)[0, place].log_softmax(-1)[ids[place]]))
    return found


def test_each_protocol_hides_one_token_at_a_time(masked: Path, data: Path, tmp_path: Path) -> None:
    protocols = [f"{name}.pseudo-log-likelihood" for name in ASKED]
    results = evaluate(masked, protocols, data, tmp_path / "out")
    assert not results.skipped
    assert {result.protocol for result in results.results} == set(protocols)
    for name, asked in ASKED.items():
        records = list(read_examples(tmp_path / "out", f"{name}.pseudo-log-likelihood"))
        plain = [hide_each(masked, *one) for one in asked]
        answers = [answer["log_probabilities"] for answer in records[0]["answers"]]
        for found, expected in zip(answers, plain, strict=True):
            assert found == pytest.approx(expected, abs=1e-4)
        if len(asked) > 1:
            values = [np.mean(one) if name == "dprd" else np.sum(one) for one in plain]
            assert records[0]["chosen"] == int(np.argmax(values))


def test_a_protocol_for_other_models_is_skipped_with_a_reason(
    world: Any, masked: Path, data: Path, tmp_path: Path
) -> None:
    both = ["wsc273.partial", "wsc273.pseudo-log-likelihood"]
    for folder, fits, reason in (
        (masked, both[1], "reads from left to right, and this model does not"),
        (world.model, both[0], "hides tokens, and this model does not fill blanks"),
    ):
        results = evaluate(folder, both, data, tmp_path / folder.name / fits)
        assert [result.protocol for result in results.results] == [fits]
        assert reason in results.skipped[0].reason
