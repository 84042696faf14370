"""The models that ship: whole, small enough, with the scores on their cards, writing what their cards show."""

from __future__ import annotations

import json

import pytest
import ship

import headwater
from headwater import shipped
from headwater.storage import open_folder

NAMES = shipped.names()
MOST_BYTES = 16_000_000


def test_these_models_ship() -> None:
    assert {"gpt1-mini", "gpt2-mini", "gpt2-mini-ko"} <= set(NAMES)
    assert shipped.DEFAULT in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_whole_small_and_names_no_path(name: str) -> None:
    folder = shipped.resolve(name)
    open_folder(folder, "model")
    assert (folder / "model.safetensors").stat().st_size <= MOST_BYTES
    written = "".join((folder / file).read_text() for file in ("README.md", "about.json", "headwater.json"))
    assert not any(word.startswith("/") for word in written.replace('"', " ").split() if len(word) > 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_card_shows_the_scores_of_its_folder(name: str) -> None:
    about, results = (
        json.loads((shipped.resolve(name) / f"{file}.json").read_text()) for file in ("about", "results")
    )
    assert (shipped.resolve(name) / "README.md").read_text(encoding="utf-8") == ship.card(about, results)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_writes_what_its_card_shows(name: str) -> None:
    lm = headwater.load(name)
    for sample in json.loads((shipped.resolve(name) / "about.json").read_text())["samples"]:
        text = lm.generate(
            sample["prompt"], max_tokens=10, temperature=1.0, top_k=sample["top_k"], seed=sample["seed"]
        )
        assert sample["text"].startswith(text.rstrip("\ufffd"))  # the tenth token may end within a character
