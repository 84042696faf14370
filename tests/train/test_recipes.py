"""Every recipe loads, names a model of its own name, and is the papers' where they speak."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model import PRESETS, build_model
from headwater.pretrain import PretrainConfig

RECIPES = Path(__file__).parents[2] / "recipes"


def test_there_is_a_recipe_for_every_preset() -> None:
    assert {path.stem for path in RECIPES.glob("*.toml")} == set(PRESETS)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_loads_and_trains_the_model_of_its_name(path: Path) -> None:
    config = PretrainConfig.load(path)
    assert config.preset == path.stem
    assert config.window <= config.architecture.context


@pytest.mark.parametrize(
    ("name", "parameters", "sequences", "context"),
    [
        ("gpt1", 116_534_784, 64, 512),
        ("gpt2-small", 124_439_808, 512, 1_024),
        ("gpt2-medium", 354_823_168, 512, 1_024),
        ("gpt2-large", 774_030_080, 512, 1_024),
        ("gpt2-xl", 1_557_611_200, 512, 1_024),
        # transformers' BertForMaskedLM of the released models.
        ("bert-base", 109_514_298, 256, 512),
        ("bert-large", 335_174_458, 256, 512),
    ],
)
def test_the_papers_sizes(name: str, parameters: int, sequences: int, context: int) -> None:
    config = PretrainConfig.load(RECIPES / f"{name}.toml")
    model = build_model(config.architecture, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert (config.batch_size, config.window) == (sequences, context)
