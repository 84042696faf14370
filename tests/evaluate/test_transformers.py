"""Real examples of the paper protocols, worked out again with transformers' own tokenizer and model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwater.evaluate import evaluate
from headwater.evaluate.results import read_examples
from headwater.model import build_model
from headwater.model.config import preset
from headwater.model.folder import save_model
from headwater.tokenizer import Tokenizer

COUNT = 6


class Peer:
    """transformers' GPT-2 and fast tokenizer on the same folder; one text a pass."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, GPT2LMHeadModel

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = GPT2LMHeadModel.from_pretrained(folder).eval()

    def score(self, context: str, continuation: str) -> list[float]:
        """Log-probability of each token of the continuation."""
        whole = self.tokenizer(context + continuation)["input_ids"]
        head = len(self.tokenizer(context)["input_ids"]) if context else 0
        ids = torch.tensor([[self.tokenizer.eos_token_id, *whole] if not context else whole])
        tail = len(whole) - head
        with torch.no_grad():
            rows = self.model(ids[:, :-1]).logits[0, -tail:].log_softmax(-1)
        return [float(v) for v in rows.gather(1, ids[0, -tail:, None])[:, 0]]


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.load("gpt2")
    changes = {"layers": 2, "width": 96, "heads": 2, "context": 1024, "init_deviation": 0.1}
    model = build_model(preset("gpt2-small", **changes), seed=1)
    path = tmp_path_factory.mktemp("peer") / "model"
    path.mkdir()
    save_model(model, path, tokenizer=tokenizer)
    return path


def blocks(path: Path) -> list[list[str]]:
    text = path.read_text(encoding="utf-8")
    return [[line.strip() for line in block.split("\n") if line.strip()] for block in text.split("\n\n")][:COUNT]


def lambada(data: Path, peer: Peer) -> list[list[list[float]]]:
    lines = (data / "eval-zeroshot/lambada/lambada_test_openai.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines[:COUNT]]
    return [[peer.score(text[: text.rindex(" ")], text[text.rindex(" ") :])] for text in texts]


def sst2(data: Path, peer: Peer) -> list[list[list[float]]]:
    lines = (data / "finetune/sst2/glue/dev.tsv").read_text(encoding="utf-8").splitlines()[1 : COUNT + 1]
    texts = [line.split("\t")[1].strip() + " very" for line in lines]
    return [[peer.score(text, " negative"), peer.score(text, " positive")] for text in texts]


def dprd(data: Path, peer: Peer) -> list[list[list[float]]]:
    found = []
    for sentence, pronoun, candidates, _ in blocks(data / "finetune/dprd/test.c.txt"):
        before, _, after = sentence.rpartition(f" {pronoun} ")
        names = [name.strip() for name in candidates.split(",")]
        names = [name[0].lower() + name[1:] if name.startswith(("The ", "A ")) else name for name in names]
        found.append([peer.score(f"{before} {name}", f" {after}") for name in names])
    return found


def story_cloze(data: Path, peer: Peer) -> list[list[list[float]]]:
    import csv

    with (data / "finetune/storycloze/cloze_test_test__spring2016.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row[0] != "InputStoryid"][:COUNT]
    return [[peer.score(" ".join(row[1:5]), f" {ending}") for ending in row[5:7]] for row in rows]


def ptb(data: Path, peer: Peer) -> list[list[list[float]]]:
    text = (data / "eval-zeroshot/ptb/ptb.test.txt").read_text(encoding="utf-8")
    text = text.replace(" n't", "n't").replace("$ ", "$").replace(" 's", "'s").replace(" %", "%")
    first = peer.tokenizer(text[:9_000])["input_ids"][:1024]
    return [[peer.score("", peer.tokenizer.decode(first))]]


CASES: list[tuple[str, Callable[[Path, Peer], list[list[list[float]]]]]] = [
    ("lambada.openai.whole-word", lambada),
    ("sst-2.very", sst2),
    ("dprd.substitution", dprd),
    ("story-cloze.mean", story_cloze),
    ("ptb.detokenized", ptb),
]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "worked_out"), CASES)
def test_each_example_has_the_log_probabilities_of_transformers(
    protocol: str, worked_out: Callable[..., Any], folder: Path, data: Path, tmp_path: Path
) -> None:
    expected = worked_out(data, Peer(folder))
    evaluate(folder, [protocol], data, tmp_path / "out", limit=COUNT)
    records = list(read_examples(tmp_path / "out", protocol))
    for record, answers in zip(records, expected, strict=protocol != "ptb.detokenized"):
        found = [answer["log_probabilities"] for answer in record["answers"]]
        for mine, theirs in zip(found, answers, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-4)
        if protocol in {"dprd.substitution", "story-cloze.mean"}:
            assert record["chosen"] == int(np.argmax([np.mean(a) for a in answers]))
