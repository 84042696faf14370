"""tools/ship.py: a card holds the numbers that lie beside it and nothing of the machine that made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import ship

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_run_becomes_a_model_with_its_card(tmp_path: Path, tokens: Path, data: Path) -> None:
    from headwater.language_model import LanguageModel
    from headwater.pretrain import PretrainConfig, pretrain
    from headwater.storage.provenance import open_folder

    recipe = {"preset": "gpt2-pico", "steps": 4, "batch_size": 4, "validate_every": 2, "checkpoint_every": 4}
    config = PretrainConfig.build(recipe, {"model": {"layers": 1, "width": 16, "heads": 2}, "context": 128})
    pretrain(config, tokens, tmp_path / "run")
    out = ship.ship(tmp_path / "run", "toy", [data], tmp_path / "work", tmp_path / "shelf", 3, 1)
    assert open_folder(out, "model").files.keys() >= {
        "README.md",
        "about.json",
        "results.json",
        "model.safetensors",
    }
    page = (out / "README.md").read_text(encoding="utf-8")
    assert page == ship.card(ship.read(out / "about.json"), ship.read(out / "results.json"))
    everything = page + "".join((out / f"{name}.json").read_text() for name in ("about", "results", "headwater"))
    for place in (tmp_path, ROOT, data):
        assert str(place) not in everything
    assert LanguageModel.open(out).generate("one", max_tokens=2, seed=1) is not None
    results = json.loads((out / "results.json").read_text())["results"]
    assert {result["protocol"] for result in results} >= {"heldout.bits-per-byte", "lambada.openai.whole-word"}
    assert all(ship.number(result["value"]) in page for result in results)


def test_a_card_names_what_is_not_told_apart_from_guessing() -> None:
    about = {"model": {"context": 256}, "text": {"validation": {"bytes": 3_000, "tokens": 1_000}}}
    entry = {"stderr": 0.02, "chance": 0.5}
    results = {
        "results": [
            {"protocol": "guessed", "value": 0.52, **entry},
            {"protocol": "known", "value": 0.60, **entry},
            {"protocol": "perplexity", "value": 90.0, "stderr": 2.0, "chance": None},
        ]
    }
    last = ship.limits(about, results)[-1]
    assert "guessed" in last
    assert "known" not in last


def test_a_command_loses_the_places_of_its_machine() -> None:
    command = "headwater pretrain /home/somebody/recipes/mini.toml --tokens tokens --set steps=3"
    assert ship.plain_command(command) == "headwater pretrain mini.toml --tokens tokens --set steps=3"


def test_a_curve_keeps_its_end() -> None:
    points = [{"updates": number} for number in range(1, 50)]
    kept = ship.thinned(points)
    assert kept[-1] == points[-1]
    assert len(kept) <= 15
