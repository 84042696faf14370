"""Every recipe loads, names a model of its own name, and is the papers' where they speak."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.config import read_recipe
from headwater.errors import UsageError
from headwater.model import PRESETS, build_model, preset
from headwater.pretraining import PretrainConfig

ROOT = Path(__file__).parents[2]
RECIPES = [*(ROOT / "src/headwater/recipes").glob("*.toml"), *ROOT.glob("papers/src/**/relatives/recipes/*.toml")]


def test_there_is_a_recipe_for_every_preset() -> None:
    preset("bilstm-nano")  # registers those of headwater-papers
    assert {path.stem for path in RECIPES} == set(PRESETS)


@pytest.mark.parametrize("path", sorted(RECIPES), ids=lambda path: path.stem)
def test_a_recipe_loads_and_trains_the_model_of_its_name(path: Path) -> None:
    config = PretrainConfig.load(path)
    assert config.preset == path.stem
    assert config.window <= config.architecture.context


def test_a_recipe_loads_by_name_and_a_file_of_that_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_recipe("gpt2-nano") == read_recipe(ROOT / "src/headwater/recipes/gpt2-nano.toml")
    (tmp_path / "gpt2-nano").write_text("steps = 3\n")
    assert read_recipe("gpt2-nano") == {"steps": 3}
    for unknown in ("gpt2-nan", "recipes/gpt2-nan.toml"):
        with pytest.raises(UsageError, match=r"there is no recipe .*Did you mean 'gpt2-nano'\?"):
            read_recipe(unknown)
    (tmp_path / "empty.toml").touch()
    with pytest.raises(UsageError, match=r"the recipe empty\.toml has no keys"):
        read_recipe("empty.toml")


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
    config = PretrainConfig.load(ROOT / f"src/headwater/recipes/{name}.toml")
    model = build_model(config.architecture, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert (config.batch_size, config.window) == (sequences, context)


def test_a_folder_with_the_name_of_a_recipe_is_not_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a model that was converted into a folder `gpt1`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2-nano").mkdir()
    assert main(["pretrain", "gpt2-nano", "--out", "run"]) == 2
    assert "--tokens is missing" in capsys.readouterr().err
    (tmp_path / "gpt2-nano" / "config.toml").touch()
    assert main(["pretrain", "gpt2-nano", "--out", "run"]) == 2
    assert "Leave out --out" in capsys.readouterr().err
