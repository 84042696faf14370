"""The models that ship: whole, small enough, with the scores on their cards, writing what they wrote."""

from __future__ import annotations

import json

import pytest
import ship

import headwater
from headwater import shipped
from headwater.storage.provenance import open_folder

NAMES = ("gpt1-mini", "gpt2-mini")
MOST_BYTES = 16_000_000


def test_these_models_ship() -> None:
    assert tuple(shipped.names()) == NAMES
    assert shipped.DEFAULT in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_whole_and_small_and_names_no_place(name: str) -> None:
    folder = shipped.resolve(name)
    open_folder(folder, "model")
    assert (folder / "model.safetensors").stat().st_size <= MOST_BYTES
    written = "".join((folder / file).read_text() for file in ("README.md", "about.json", "headwater.json"))
    assert not any(word.startswith("/") for word in written.replace('"', " ").split() if len(word) > 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_what_the_scores_beside_it_say(name: str) -> None:
    about, results = (
        json.loads((shipped.resolve(name) / f"{file}.json").read_text()) for file in ("about", "results")
    )
    assert (shipped.resolve(name) / "README.md").read_text(encoding="utf-8") == ship.card(about, results)


@pytest.mark.parametrize(
    ("name", "continuation"),
    [
        ("gpt2-mini", ":\n\n“I’m going to be"),
        ("gpt1-mini", " : \n\" i do n't know what i 've"),
    ],
)
def test_a_model_writes_what_it_wrote(name: str, continuation: str) -> None:
    lm = headwater.load(name)
    assert lm.generate("The old man looked at her and said", max_tokens=10, temperature=0) == continuation
