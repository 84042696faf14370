"""Vectors of texts: sentence-transformers' rule, the mean for GPTs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from headwater.errors import DataError, FolderError
from headwater.inference import LanguageModel, load
from headwater.inference.embedding import unit
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sky", "river", "is", "blue", "##s", ".", "a"]
TEXTS = ["The sky is blue.", "", "a river", " ".join(["a river is the sky"] * 9), "unknown rivers"]
MODULE = "sentence_transformers.models."


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    shape = {"vocabulary": len(WORDS), "context": 40, "layers": 2, "width": 32, "heads": 2, "init_deviation": 0.3}
    save_model(build_model(preset("bert-base", **shape), seed=1), folder, tokenizer=Tokenizer.load(folder))
    return folder


def make_sentence_model(folder: Path, pooling: str, *, normalize: bool, most: int | None = 20) -> None:
    modules = [{"path": "", "type": f"{MODULE}Transformer"}, {"path": "1_Pooling", "type": f"{MODULE}Pooling"}]
    modules += [{"path": "2_Normalize", "type": f"{MODULE}Normalize"}] if normalize else []
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}_tokens": mode == pooling for mode in ("mean", "max")}
    modes["pooling_mode_cls_token"] = pooling == "cls"
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most}))


def their_vectors(folder: Path, texts: list[str], pooling: str, normalize: bool, most: int) -> torch.Tensor:
    """Return what sentence-transformers computes, by its rule, with transformers."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    real = batch.attention_mask[:, :, None].float()
    vectors = {
        "cls": hidden[:, 0],
        "mean": (hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1e-9),
    }[pooling]
    return torch.nn.functional.normalize(vectors, dim=1) if normalize else vectors


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("mean", False), ("cls", False)])
def test_a_folder_of_sentence_transformers_gives_its_vectors(encoder: Path, pooling: str, normalize: bool) -> None:
    make_sentence_model(encoder, pooling, normalize=normalize)
    expected = their_vectors(encoder, TEXTS, pooling, normalize, 20).numpy()
    lm = load(encoder)
    vectors = lm.embed(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(lm.embed(TEXTS[2]), expected[2], atol=1e-5)  # alone, without padding
    lm.save(encoder.parent / "copy")
    np.testing.assert_allclose(load(encoder.parent / "copy").embed(TEXTS), vectors, atol=1e-6)


def test_an_encoder_and_a_gpt_give_the_mean_over_the_tokens(encoder: Path, tmp_path: Path) -> None:
    vectors = load(encoder).embed(TEXTS[:3], normalize=True)
    np.testing.assert_allclose(vectors, their_vectors(encoder, TEXTS[:3], "mean", True, 40).numpy(), atol=1e-5)
    lm = load("gpt2-mini")
    texts = ["The river runs.", "A", "The river runs to the sea, and the sea to the sky."]
    found = lm.embed(texts)
    ids = [lm.tokenizer.encode(text) for text in texts]
    with torch.no_grad():
        expected = [lm.model.eval().hidden(torch.tensor([one]))[0].mean(dim=0).numpy() for one in ids]
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-4)
    assert lm.embed("").shape == (lm.config.width,)


def test_modules_that_change_the_vector_are_refused(encoder: Path) -> None:
    make_sentence_model(encoder, "mean", normalize=False)
    modules = json.loads((encoder / "modules.json").read_text())
    dense = {"path": "2_Dense", "type": f"{MODULE}Dense"}
    (encoder / "modules.json").write_text(json.dumps([*modules, dense]))
    with pytest.raises(FolderError, match="has Dense among its modules"):
        load(encoder).embed("the sky")
    make_sentence_model(encoder, "max", normalize=False)
    with pytest.raises(FolderError, match=r"has max among its modules; expected .*mean or cls"):
        load(encoder).embed("the sky")
    make_sentence_model(encoder, "mean", normalize=False)
    (encoder / "modules.json").write_text(json.dumps([{"path": "../../etc", "type": f"{MODULE}Pooling"}]))
    with pytest.raises(DataError, match="one inside the folder"):
        load(encoder)
    (encoder / "modules.json").write_text("{}")
    with pytest.raises(DataError, match="is not a list of modules"):
        load(encoder)


def test_texts_that_are_cut_are_counted(encoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(encoder).embed(TEXTS)
    assert [record.message for record in caplog.records][:2] == [
        "left out: the ends of 1 of 5 texts, which are longer than the model reads",
        "empty texts: 1 of 5; each gets the vector of an empty text",
    ]


def test_an_empty_text_of_a_masked_model_without_a_frame_is_its_start_token() -> None:
    tokenizer = Tokenizer.train(["the sky is blue"], vocab_size=270).with_mask()
    config = preset("bert-nano", vocabulary=tokenizer.vocabulary_size, context=16)
    lm = LanguageModel(build_model(config, seed=1), tokenizer)
    one, two = lm.embed(["", "the sky"])
    assert np.isfinite(one).all()
    np.testing.assert_allclose(lm.embed(""), one, atol=1e-5)
    assert not np.allclose(one, two)


def test_vectors_that_overflow_are_refused_and_large_ones_get_length_one(encoder: Path) -> None:
    lm, large = load(encoder), np.full((1, 4), 1e30, np.float32)
    np.testing.assert_allclose(unit(large), np.full((1, 4), 0.5), atol=1e-6)
    with torch.no_grad():
        lm.model.blocks[-1].norm_2.weight.mul_(3e38)
    with pytest.raises(DataError, match="expected a finite number"):
        lm.embed(TEXTS)
