"""Classifiers that transformers saved give its probabilities here, or are refused with what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwater import Classifier, Entailment, Regressor, Similarity
from headwater.cli.main import main
from headwater.errors import DataError, FolderError, MismatchError
from headwater.storage import write_json
from headwater.tokenizer import Tokenizer

from .test_masked_base import WORDPIECES

transformers = pytest.importorskip("transformers")

TEXTS = ["the film was great", "a", "dull", "a wonderful story and a plot of the film " * 3, "the", "poor plot."]
PAIRS = [(text, TEXTS[-number]) for number, text in enumerate(TEXTS)]
GPT = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 160, "initializer_range": 0.3}
BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 256}
BERT |= {"intermediate_size": 40, "initializer_range": 0.3}
NAMES = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}


def write(folder: Path, kind: str, tokenizer: Tokenizer, **changes: Any) -> Any:
    """Write a classifier of random weights with its tokenizer; return its class's model."""
    if kind == "bert":
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(WORDPIECES) + "\n", encoding="utf-8")
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
        shape: dict[str, Any] = BERT | {"vocab_size": len(WORDPIECES)}
    else:
        tokenizer.save(folder)
        shape = GPT | {"vocab_size": tokenizer.vocabulary_size, "pad_token_id": tokenizer.end_of_text}
        shape |= {"bos_token_id": tokenizer.end_of_text, "eos_token_id": tokenizer.end_of_text}
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(kind, **shape | NAMES | changes)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def expected(folder: Path, rows: list[Any], *, together: bool) -> torch.Tensor:
    """Transformers' logits, of a padded batch or of each row alone."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    batches = [rows] if together else [[row] for row in rows]
    logits = []
    for batch in batches:
        texts = [batch] if isinstance(batch[0], str) else [list(part) for part in zip(*batch, strict=True)]
        with torch.no_grad():
            logits.append(model(**tokenizer(*texts, padding=True, return_tensors="pt")).logits)
    return torch.cat(logits)


@pytest.mark.parametrize("case", ["gpt2", "untied", "unnamed", "bos-and-eos", "no-padding", "openai-gpt", "bert"])
def test_probabilities_are_those_of_transformers(case: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    kind = case if case in ("openai-gpt", "bert") else "gpt2"
    changes: dict[str, Any] = {"untied": {"tie_word_embeddings": False}, "no-padding": {"pad_token_id": None}}
    write(tmp_path / "theirs", kind, tokenizer, **changes.get(case, {}))
    if case == "bos-and-eos":  # the end is the padding token too, and so not the last one that is read
        (tmp_path / "theirs" / "tokenizer.json").unlink()
        path = tmp_path / "theirs" / "tokenizer_config.json"
        settings = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, settings | {"add_bos_token": True, "add_eos_token": True})
    if case == "unnamed":
        path = tmp_path / "theirs" / "config.json"
        write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"architectures": None})
    assert main(["convert", str(tmp_path / "theirs"), str(tmp_path / "exported")]) == 0
    Classifier.load(tmp_path / "theirs").save(tmp_path / "saved")
    for rows, estimator in ((TEXTS, Classifier), (PAIRS, Entailment)):
        logits = expected(tmp_path / "theirs", rows, together=case != "no-padding")
        assert (logits - expected(tmp_path / "theirs", rows, together=False)).abs().max() < 1e-4
        shares = logits.softmax(dim=1).numpy()
        for name in ("theirs", "saved", "exported"):
            loaded = estimator.load(tmp_path / name)
            assert np.abs(loaded.predict_proba(rows) - shares).max() < 1e-4, name
            assert loaded.predict(rows).tolist() == [NAMES["id2label"][i] for i in shares.argmax(axis=1)]


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_regression_gives_the_value_of_transformers(kind: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "theirs"
    write(folder, kind, tokenizer, id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0}, problem_type="regression")
    assert main(["convert", str(folder), str(tmp_path / "exported")]) == 0
    for name in ("theirs", "exported"):
        values = expected(folder, TEXTS, together=True)[:, 0].numpy()
        assert np.abs(Regressor.load(tmp_path / name).predict(TEXTS) - values).max() < 1e-4
    values = expected(folder, PAIRS, together=True)[:, 0].numpy()
    assert np.abs(Similarity.load(folder).predict(PAIRS) - values).max() < 1e-4
    with pytest.raises(MismatchError, match="task regress"):
        Classifier.load(folder)


def test_predict_reads_a_table_with_a_classifier(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "m", "bert", tokenizer)
    logits = expected(tmp_path / "m", PAIRS, together=True)
    labels = [NAMES["id2label"][i] for i in logits.argmax(dim=1).tolist()]
    lines = [f"{first},{second},{label}\n" for (first, second), label in zip(PAIRS, labels, strict=True)]
    (tmp_path / "t.csv").write_text("one,two,label\n" + "".join(lines), encoding="utf-8")
    arguments = ["predict", str(tmp_path / "t.csv"), "--model", str(tmp_path / "m"), "--json"]
    arguments += ["--out", str(tmp_path / "p.jsonl"), "--column", "premise=one", "--column", "hypothesis=two"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    shares = torch.tensor([list(row["probabilities"].values()) for row in rows])
    assert torch.allclose(shares, logits.softmax(dim=1), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"problem_type": "ranking"}, "ranking"),
        ({"problem_type": "regression"}, "3 outputs"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "id2label"),
        ({"id2label": {"0": "a", "1": "b"}}, "shape"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "GPT2ForTokenClassification"),
    ],
)
def test_another_head_is_refused_by_name(
    changes: dict[str, Any], seen: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    write(tmp_path / "m", "gpt2", tokenizer)
    path = tmp_path / "m" / "config.json"
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | changes)
    with pytest.raises((DataError, FolderError), match=seen):
        Classifier.load(tmp_path / "m")
