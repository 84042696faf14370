"""Fine-tuning a base with full attention: padding changes nothing, and BERT's own tokens serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headwater import Classifier
from headwater.finetuning import Encoded, FinetuneConfig, Labels, TaskModel, TaskName
from headwater.finetuning.learning.bases import open_base
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer

from .test_objective import random_examples, whole_batch

LETTERS = "abcdefghijklmnopqrstuvwxyz."
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def one_of(encoded: Encoded, number: int) -> Encoded:
    """The examples' sequences, alone: no other is padded with it."""
    sequences = slice(encoded.first[number], encoded.first[number + 1] + 1)
    starts = encoded.starts[sequences]
    ids = encoded.ids[starts[0] : starts[-1]]
    return Encoded(ids, starts - starts[0], np.array([0, len(starts) - 1]), encoded.targets[number : number + 1])


@pytest.mark.parametrize("task", ["classify", "similarity", "choice"])
def test_a_batch_predicts_what_single_sequences_do(task: TaskName) -> None:
    counts = [1, 1, 1, 1] if task == "classify" else [2, 2, 2]
    model = build_model(preset("bert-nano", vocabulary=40, context=16, layers=2, width=8, heads=2), seed=3)
    labels = Labels(target="answer") if task == "choice" else Labels(target="class", names=["a", "b"])
    task_model = TaskModel(model, task, labels.outputs, dropout=0.0, seed=4).eval()
    encoded = random_examples(counts, 5, 2)
    with torch.no_grad():
        together = task_model(whole_batch(encoded, labels)).logits
        assert torch.allclose(task_model(whole_batch(encoded, labels)).logits, together)
        for example in range(len(counts)):
            single = whole_batch(one_of(encoded, example), labels)
            assert torch.allclose(task_model(single).logits[0], together[example], atol=1e-5)


def test_transferred_layers_of_bert_include_its_embeddings() -> None:
    base = build_model(preset("bert-base", vocabulary=270, context=16, layers=2, width=8, heads=2), seed=3)
    with torch.no_grad():
        for parameter in base.parameters():
            parameter += 1
    state = base.state_dict()
    tokenizer = Tokenizer.train(["a river"], kind="gpt2", vocab_size=258)
    model = open_base(FinetuneConfig(transfer_layers=1), SimpleNamespace(model=base, tokenizer=tokenizer)).model
    kept = {name for name, tensor in model.state_dict().items() if torch.equal(tensor, state[name])}
    assert kept == {
        name
        for name in state
        if name.startswith(("tokens.", "positions.", "segments.", "embedding_norm.", "blocks.0."))
    }


def test_a_bert_folder_becomes_a_classifier(
    tmp_path: Path, sentences: Callable[..., tuple[list[str], list[str]]]
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDPIECES) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    before, after = tokenizer.frame
    assert tokenizer.task_tokens == (*before, *after, *after)
    shape = {"vocabulary": len(WORDPIECES), "context": 128, "layers": 1, "width": 32, "heads": 2}
    save_model(build_model(preset("bert-base", **shape), seed=1), tmp_path, tokenizer=tokenizer)
    texts, labels = sentences(60)
    classifier = Classifier(base=tmp_path, epochs=2, seed=1).fit(texts, labels)
    classifier.save(tmp_path / "tuned")
    again = Classifier.load(tmp_path / "tuned")
    assert (again.predict_proba(texts[:7]) == classifier.predict_proba(texts[:7])).all()
