"""Training a fine-tuned model again: no row that its weights were trained on is measured as if it were new."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.finetuning import FinetuneConfig, FineTuned, finetune
from headwater.finetuning.rows.row import SEEN_FILE
from headwater.storage import PlainProgress

FAST = FinetuneConfig(steps=2, precision="fp32")


def write(path: Path, texts: list[str], labels: list[str]) -> Path:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return path


def validated(folder: Path) -> set[str]:
    lines = (folder / "predictions-validation.jsonl").read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["texts"][0] for line in lines}


@pytest.fixture(scope="module")
def weeks(base: Path, tmp_path_factory: pytest.TempPathFactory, sentences: Any) -> tuple[Path, Path, list[str]]:
    """Return a model of the first week, a table of both weeks, and the texts of the second."""
    folder = tmp_path_factory.mktemp("weeks")
    first, second = sentences(80, seed=1), sentences(60, seed=2)
    new = [f"{text} today" for text in second[0]]
    finetune(FAST, folder / "first", model=base, train=write(folder / "first.csv", *first))
    return folder / "first", write(folder / "both.csv", first[0] + new, first[1] + second[1]), new


def test_rows_stay_on_their_side_of_the_split(weeks: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    first, both, new = weeks
    again = finetune(FAST, tmp_path / "second", model=first, train=both)
    assert validated(tmp_path / "second") - set(new) == validated(first)
    assert again["new_rows"]["count"] == len(validated(tmp_path / "second") & set(new)) > 0
    assert again["new_rows"]["value"] is not None
    third = finetune(FAST, tmp_path / "third", model=tmp_path / "second", train=both)
    assert validated(tmp_path / "third") == validated(tmp_path / "second")
    assert third["new_rows"] == {"count": 0}


def test_a_split_that_cannot_be_kept_is_reported(
    weeks: tuple[Path, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, both, _ = weeks
    finetune(FAST, tmp_path / "a", model=first, train=both, validation=both, progress=PlainProgress())
    said = capsys.readouterr().err
    trained = len(FineTuned.load(first).seen.train)  # type: ignore[union-attr]
    assert f"validation rows were trained on by {first}: metrics on them are too good" in said
    assert trained > 50
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    for path in first.iterdir():
        if path.is_file() and path.name not in {SEEN_FILE, "headwater.json"}:
            (earlier / path.name).write_bytes(path.read_bytes())
    finetune(FAST, tmp_path / "b", model=earlier, train=both, progress=PlainProgress())
    assert "does not record the rows that it was trained on" in capsys.readouterr().err


def test_an_estimator_keeps_the_split_too(base: Path, tmp_path: Path, sentences: Any) -> None:
    texts, labels = sentences(60, seed=3)
    hw.Classifier(base, epochs=0.5).fit(texts, labels).save(tmp_path / "first")
    kept = FineTuned.load(tmp_path / "first").seen
    again = hw.Classifier(tmp_path / "first", epochs=0.5, seed=7).fit(texts, labels).fine_tuned_.seen
    assert again == kept
    held_out = hw.Classifier(base, epochs=0.5, validation_share=0.2).fit(texts, labels).fine_tuned_.seen
    assert (held_out.train, held_out.validation) == (kept.train, frozenset())  # its head learned from all rows
