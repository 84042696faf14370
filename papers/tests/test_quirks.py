"""The switches of GPT-1's silent choices: each acts, alone, and the table has both sides of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.finetuning import FinetuneConfig, Raw
from headwater_papers import reproduce
from headwater_papers.gpt1_quirks import QUIRKS, variants
from headwater_papers.quirk_training import Choices, RowValues, train_with
from headwater_papers.scale import Scale

_CONFIG = FinetuneConfig.build({"epochs": 1, "batch_size": 8, "learning_rate": 1e-2, "precision": "fp32"})


def _tables(sample_text: str) -> dict[str, tuple[str, list[Raw]]]:
    words = sample_text.replace("\n", " ").split()
    texts = [" ".join(words[start : start + 3 + start % 11]) for start in range(0, 600, 12)]
    rows = [Raw((text,), str(number % 2), number) for number, text in enumerate(texts)]
    return {"train": ("train", rows[:22]), "validation": ("validation", rows[22:30]), "test": ("test", rows[30:])}


@pytest.fixture(scope="module")
def measured(base: Path, sample_text: str) -> dict[Choices, RowValues]:
    tables = _tables(sample_text)
    return {one: train_with(one, _CONFIG, base, tables, context=24) for one in variants().values()}


def test_every_quirk_changes_the_training(measured: dict[Choices, RowValues]) -> None:
    for name, quirk in QUIRKS.items():
        code, other = (measured[Choices(**side)].loss for side in (quirk.code, quirk.other))
        assert code != other, name


def test_the_same_choices_give_the_same_losses(
    measured: dict[Choices, RowValues], base: Path, sample_text: str
) -> None:
    again = train_with(Choices(), _CONFIG, base, _tables(sample_text), context=24)
    assert again.loss == measured[Choices()].loss


def test_a_partial_batch_is_an_update_or_left_out(measured: dict[Choices, RowValues]) -> None:
    assert measured[Choices()].updates == 3  # of 8, 8 and 6 rows
    assert measured[Choices(drops_partial=True)].updates == 2


def test_more_rows_lose_tokens_at_half_of_the_context(measured: dict[Choices, RowValues]) -> None:
    assert measured[Choices(half=True)].cut > measured[Choices()].cut


@pytest.mark.slow
def test_the_table_has_an_effect_of_every_quirk(scale: Scale, sets: Path, base: Path, tmp_path: Path) -> None:
    keys = {"base": str(base), "train": 39, "test": 12, "context": 24}
    wanted = scale.model_copy(update={"experiments": scale.experiments | {"gpt1_quirks": keys}})
    results = reproduce(["gpt1_quirks"], wanted, sets, tmp_path / "out").results["gpt1_quirks"]
    effects = [row for row in results["rows"] if row["setting"].startswith("effect: ")]
    assert len(effects) == 2 * len(QUIRKS)
    assert all(row["seeds"] == 3 and row["low"] < row["high"] for row in effects if "loss" in row["measure"])
    assert results["findings"][0]["noise"]["items"] > 0  # both sides are paired by test row
