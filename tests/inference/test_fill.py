"""Blanks filled by a masked model: transformers' own answers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.errors import ContextError, UsageError
from headwater.inference import LanguageModel, fill, load
from headwater.inference.masked import MOST_MASKS
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sky", "river", "is", "blue", "##s", ".", "a"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    shape = {"vocabulary": len(WORDS), "context": 40, "layers": 2, "width": 32, "heads": 2, "init_deviation": 0.3}
    save_model(build_model(preset("bert-base", **shape), seed=1), folder, tokenizer=Tokenizer.load(folder))
    return folder


def test_blanks_are_filled_as_transformers_fills_them(bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    text = "The [MASK] is [MASK]."
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(bert).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        probabilities = theirs(**encoded).logits.softmax(dim=-1)[0]
    blanks = (encoded.input_ids[0] == tokenizer.mask_token_id).nonzero()[:, 0]
    found = load(bert).fill(text, top=3)
    assert len(found) == len(blanks) == 2
    for blank, row in zip(found, probabilities[blanks], strict=True):
        expected = row.topk(3)
        assert [text.strip() for text, _ in blank] == tokenizer.convert_ids_to_tokens(expected.indices)
        assert [probability for _, probability in blank] == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_what_cannot_be_filled_is_named(bert: Path) -> None:
    lm = load(bert)
    with pytest.raises(UsageError, match=r"has no \[MASK\]"):
        lm.fill("the sky")
    with pytest.raises(UsageError, match=f"has {MOST_MASKS + 1} "):
        fill(lm.model, lm.tokenizer, [lm.tokenizer.mask] * (MOST_MASKS + 1))  # type: ignore[list-item]
    with pytest.raises(ContextError, match="more than the model's context"):
        lm.fill("[MASK]" + " the" * 60)
    with pytest.raises(UsageError, match="int8 does not work with a masked model"):
        load(bert, precision="int8")
    assert load(bert, precision="auto").precision == "fp32"
    with pytest.raises(UsageError, match="top is 0"):
        lm.fill("[MASK]", top=0)


def test_each_kind_of_model_refuses_the_other_s_work(bert: Path) -> None:
    masked = load(bert)
    for call in (lambda: masked.generate("the"), lambda: masked.score([("the", " sky")]), lambda: masked.engine):
        with pytest.raises(UsageError, match="does not read a text from left to right"):
            call()
    tokenizer = Tokenizer.train(["the sky is blue"], vocab_size=270)
    causal = LanguageModel(build_model(preset("gpt2-pico", vocabulary=270), seed=1), tokenizer)
    with pytest.raises(UsageError, match="does not fill blanks"):
        causal.fill("the [MASK]")


def test_a_masked_model_in_training_mode_fills_without_dropout(bert: Path) -> None:
    lm = load(bert)
    lm.model.eval()
    ids = torch.tensor([[2, 5, 4, 3]])
    expected = lm.fill("the [MASK]"), lm.logits(ids).tolist()
    lm.model.train()
    assert (lm.fill("the [MASK]"), lm.logits(ids).tolist()) == expected
    assert lm.model.training
