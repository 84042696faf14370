"""The page after training stands alone and escapes what it shows; its tints are what words change."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwater.finetuning import FinetuneConfig, FineTuned, Raw, TaskModel, explain, finetune
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.results.explanation import _pieces


@pytest.fixture(scope="module")
def trained(base: Path, sentences: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    texts, labels = sentences(200)
    texts[::9] = [f"<script>alert(1)</script> {text} 자막" for text in texts[::9]]
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    config = FinetuneConfig(epochs=10, learning_rate=5e-3, lambda_lm=0, dropout=0, precision="fp32")
    finetune(config, folder / "model", model=base, train=folder / "t.csv")
    return folder / "model"


def test_the_page_needs_nothing_and_escapes_texts(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href|@import|url\()", page)
    assert "<script" not in page
    for said in ("Learning curves", "Confusion matrix", "The most confident", "validation loss", "95"):
        assert said in page


def test_the_page_of_a_score_speaks_of_errors(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(40)
    scores = [["bad", "good"].index(label) * 4 + number % 2 for number, label in enumerate(labels)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, scores, strict=True)])
    config = FinetuneConfig(target="score", steps=2, lambda_lm=0, precision="fp32")
    finetune(config, tmp_path / "model", model=base, train=tmp_path / "t.csv")
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    for said in ("The largest errors", "the whole range of scores"):
        assert said in page
    assert "percentage" not in page


def test_the_telling_word_moves_the_decision_most(trained: Path) -> None:
    fine_tuned = FineTuned.load(trained)
    for text, telling in (("the film was awful and a plot", "awful"), ("a lovely story", "lovely")):
        encoded = fine_tuned.encode([Raw((text,))])
        output = int(fine_tuned.probabilities(encoded).argmax())
        pieces = explain(fine_tuned, (text,), output)
        assert "".join(p.text for p in pieces) == text
        strongest = max(pieces, key=lambda p: p.change)
        assert strongest.text.strip() == telling


def test_a_change_is_the_difference_of_the_probabilities(trained: Path) -> None:
    fine_tuned = FineTuned.load(trained)
    texts = ["the plot was dull", "plot was dull", "the was dull", "the plot dull", "the plot was"]
    probabilities = fine_tuned.probabilities(fine_tuned.encode(Raw((text,)) for text in texts))[:, 1]
    found = [piece.change for piece in explain(fine_tuned, (texts[0],), 1)]
    assert found == pytest.approx(probabilities[0] - probabilities[1:], abs=1e-6)


def test_log_odds_explain_a_certain_answer(trained: Path) -> None:
    fine_tuned = FineTuned.load(trained)
    text = "the film was awful and a plot awful"
    output = int(fine_tuned.probabilities(fine_tuned.encode([Raw((text,))])).argmax())
    before = explain(fine_tuned, (text,), output)
    with torch.no_grad():
        member = fine_tuned.members["gpt1"]
        assert isinstance(member, TaskModel)
        member.head.weight *= 12
        member.head.bias *= 12
    after = explain(fine_tuned, (text,), output)
    assert max(abs(piece.change) for piece in after) < max(abs(piece.change) for piece in before)
    for one, other in zip(before, after, strict=True):  # logits are 12 times as large, and so are log-odds
        assert one.log_odds is not None
        assert other.log_odds == pytest.approx(12 * one.log_odds, rel=1e-2, abs=1e-2)


def test_of_a_long_row_what_is_read_is_explained(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of a long text was encoded again in up to 49 variants of the whole text."""
    fine_tuned = FineTuned.load(trained)
    fine_tuned.members.pop("tfidf", None)  # which reads more than the context
    context = fine_tuned.base.config.context
    text = "the plot was dull " * 20 * context
    encoded: list[int] = []
    encode = FineTuned.encode

    def counted(one: FineTuned, rows: Any, *rest: Any) -> Any:
        rows = list(rows)
        encoded.append(sum(len(part) for row in rows for part in row.segments))
        return encode(one, rows, *rest)

    monkeypatch.setattr(FineTuned, "encode", counted)
    pieces = explain(fine_tuned, (text,), 1)
    shown = "".join(piece.text for piece in pieces)
    assert text.startswith(shown)
    assert 2 * context < len(shown) < len(text) // 4
    assert sum(encoded) < 4 * len(text)


@pytest.mark.parametrize("recipe", ["tfidf", "auto"])
def test_a_word_that_only_tfidf_reads_is_explained(
    base: Path, sentences: Any, tmp_path: Path, recipe: str
) -> None:
    texts, labels = sentences(60)
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    config = FinetuneConfig.build({"recipe": recipe, "steps": 1, "precision": "fp32"})
    finetune(config, tmp_path / "model", model=base, train=tmp_path / "t.csv")
    fine_tuned = FineTuned.load(tmp_path / "model")
    tfidf = fine_tuned.members["tfidf"]
    assert isinstance(tfidf, Tfidf)
    text = "the plot was a story " * 40 + "awful awful awful"
    assert len(text) < tfidf.characters
    pieces = explain(fine_tuned, (text,), fine_tuned.labels.names.index("bad"))
    assert "".join(piece.text for piece in pieces) == text
    assert "awful" in max(pieces, key=lambda piece: piece.change).text


@given(st.lists(st.text("ab 가\n", max_size=200), min_size=1, max_size=3), st.integers(1, 60))
def test_parts_put_together_are_the_text(segments: list[str], most: int) -> None:
    parts = _pieces(segments, range(len(segments)), most)
    assert len(parts) <= most + len(segments)
    for number, text in enumerate(segments):
        assert "".join(part for segment, part in parts if segment == number) == text
