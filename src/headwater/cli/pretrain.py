"""`headwater pretrain`: from a recipe and packed tokens to a run folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.console import (
    DEVICE,
    AsJson,
    Download,
    Settings,
    emit,
    local_model,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.storage import say

if TYPE_CHECKING:
    from headwater.config import Layer

KEYS = keys_option("headwater.pretraining:PretrainConfig")

_FROM = "Continue from this model: a folder, a shipped model, or a hub name. Pack the text with its tokenizer."
_RECIPE = "A recipe: a TOML file, or a name such as gpt2-nano. Or a run, to resume it or change its length."
_OF_A_START = {"preset", "init_from", "model"}  # keys of a run that its branch does not take over
_RESUME = "Resume the run in --out as it is configured."


def pretrain(
    out: Annotated[Path | None, typer.Option(help="Folder to write.", show_default="the run's own")] = None,
    recipe: Annotated[Path | None, typer.Argument(help=_RECIPE)] = None,
    preset: Annotated[str | None, typer.Option(help="The model: gpt1, gpt2-small, gpt2-mini, …")] = None,
    init_from: Annotated[str | None, typer.Option("--from", help=_FROM, metavar="MODEL")] = None,
    download: Download = False,
    tokens: Annotated[Path | None, typer.Option(help="Folder that `headwater pack` wrote.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.", min=0)] = None,
    device: Annotated[str | None, DEVICE] = None,
    resume: Annotated[bool, typer.Option("--resume", help=_RESUME)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what the run would cost, and exit.")] = False,
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Train a language model on packed tokens, or continue training one.

    The recipe gives the defaults; --preset, --from, --seed and --set change them. Run the same command again to
    resume from the last checkpoint. Under torchrun it trains on all ranks together.
    """
    from headwater.config import option_layers, parse_settings
    from headwater.errors import UsageError
    from headwater.model import load_config
    from headwater.pretraining import PretrainConfig, require_one_model
    from headwater.pretraining import pretrain as run_pretraining
    from headwater.storage import has_manifest, read_manifest

    if recipe is not None and _is_run(recipe):  # to resume or to change
        if out not in (None, recipe):
            raise UsageError(f"{recipe} is a run, which is continued in place", repair="Leave out --out")
        out, recipe, resume = recipe, None, True
    if out is None:
        raise UsageError("--out is missing", expected="the folder to write")
    # A branch that has begun has the tokens, the keys and the shape of its model in its own folder.
    is_branch = init_from is not None and _branched_run(init_from) is not None
    begun = resume or (is_branch and has_manifest(out) and read_manifest(out).kind == "run")
    tokens, layers = _layers(out if begun else None, None if begun else init_from, recipe, tokens)
    changed = parse_settings(settings or [])
    require_one_model({"preset": preset, "init_from": init_from}, changed)
    if init_from is not None and not begun:
        init_from = str(local_model(init_from, download))
    options = {"preset": preset, "init_from": init_from, "seed": seed, "device": device}
    layers += option_layers(options)
    config = PretrainConfig.build(*layers, changed, source=str(recipe or "--set"))
    if tokens is None:
        raise UsageError("--tokens is missing", expected="the folder that `headwater pack` wrote")
    result: dict[str, Any]
    if dry_run:
        from headwater.pretraining import forecast

        cost = forecast(config, tokens, out, terminal_progress())
        result, text = cost.to_dict(), cost.as_text()
    else:
        model = run_pretraining(config, tokens, out, progress=terminal_progress())
        result, text = {"model": str(model), "run": str(out)}, str(model)
    if (os.environ.get("RANK") or "0") == "0":  # the first process of torchrun, or the only one
        emit(result, as_json=as_json, text=text)
        if not dry_run and load_config(model).is_causal:
            say(f"Try it: headwater generate TEXT --model {shlex.quote(str(out))}")


def _layers(
    resumed: Path | None, init_from: str | None, recipe: Path | None, tokens: Path | None
) -> tuple[Path | None, list[Layer]]:
    """Return the tokens and the configuration of the run that is resumed or branched, and of a recipe."""
    from headwater.config import Layer, read_recipe

    layers = []
    if resumed is not None:
        tokens, started = _started_run(resumed, tokens)
        layers.append(started)
    if init_from is not None and (run := _branched_run(init_from)):
        tokens, started = _started_run(run, tokens)
        layers.append(Layer({k: v for k, v in started.items() if k not in _OF_A_START}, started.source))
    if recipe is not None:
        layers.append(read_recipe(recipe))
    return tokens, layers


def _is_run(recipe: Path) -> bool:
    """Return whether `recipe` is a folder; one with the name of a recipe must have the configuration of a run."""
    from headwater.config import recipe_files

    return recipe.is_dir() and (str(recipe) not in recipe_files() or (recipe / "config.toml").exists())


def _branched_run(init_from: str) -> Path | None:
    """Return RUN of a checkpoint RUN@1200, whose tokens and keys a branch takes over; else None."""
    run, _, step = init_from.rpartition("@")
    return Path(run) if run and step.isdigit() and not Path(init_from).exists() else None


def _started_run(out: Path, tokens: Path | None) -> tuple[Path, Layer]:
    """Return the tokens folder and the configuration of the run in `out`."""
    from headwater.config import Layer, read_toml
    from headwater.errors import FolderError
    from headwater.storage import read_manifest

    manifest = read_manifest(out)
    if manifest.kind != "run":
        raise FolderError(f"{out} is a {manifest.kind} folder", expected="a run to resume")
    inputs = {entry.role: entry for entry in manifest.inputs}
    recipe = out / "config.toml"  # missing if the run was killed at once
    started = Layer(read_toml(recipe) if recipe.exists() else manifest.config, str(recipe))
    if "model" in inputs:
        started["init_from"] = str(inputs["model"].path_from(out))
    own = inputs["tokens"].path_from(out)
    if tokens is None and not own.exists():
        raise FolderError(
            f"the tokens of {out} are not at {own} any more",
            expected="the folder that this run trains on",
            repair="Name it: --tokens DIR",
        )
    return tokens or own, started
