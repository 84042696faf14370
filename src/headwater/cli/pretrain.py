"""`headwater pretrain`: from a recipe and packed tokens to a run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.console import (
    DEVICE,
    AsJson,
    Download,
    Out,
    Settings,
    emit,
    local_model,
    say,
    terminal_progress,
)
from headwater.cli.keys import keys_option
from headwater.cli.process import import_from_here

app = typer.Typer(add_completion=False)

KEYS = keys_option("headwater.pretrain.recipe:PretrainConfig", model="headwater.model.config:ModelConfig")

_FIND_LR = "Train briefly with a rising rate, suggest one, draw the curve into --out, and stop."
_FOLLOW = "Zero-shot tasks to follow while training, as lambada.openai.last-token,sst-2.very."
_FROM = "Continue from this trained model: a folder, one that ships, or a hub name. Pack with its tokenizer."
_RECIPE = "A recipe: a TOML file, or a name as gpt2-nano."
_RESUME = "Go on with the run in --out as it was started; nothing else is needed."


@app.command()
def pretrain(
    out: Out,
    recipe: Annotated[Path | None, typer.Argument(help=_RECIPE, show_default=False)] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Which model: gpt1, gpt2-small, gpt2-mini, …")
    ] = None,
    init_from: Annotated[
        str | None, typer.Option("--from", help=_FROM, metavar="MODEL", show_default=False)
    ] = None,
    download: Download = False,
    tokens: Annotated[Path | None, typer.Option("--tokens", help="Folder that `headwater pack` wrote.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random choice comes from it.", min=0)] = None,
    device: Annotated[str | None, DEVICE] = None,
    resume: Annotated[bool, typer.Option("--resume", help=_RESUME)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would cost, and stop.")] = False,
    find_lr: Annotated[bool, typer.Option("--find-lr", help=_FIND_LR)] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where an update's time goes, and stop.")] = False,
    evaluate: Annotated[str, typer.Option("--evaluate", help=_FOLLOW)] = "",
    evaluate_every: Annotated[int, typer.Option("--evaluate-every", help="Updates between them.", min=1)] = 100,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Folder with these tasks' files. Repeatable.")
    ] = None,
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Train a language model on packed tokens, or go on training.

    The recipe gives the defaults; --preset, --from, --seed and --set change them. Run again, the same command
    resumes from the last checkpoint. Under torchrun the same command trains on all ranks together.
    """
    if profile:
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # before torch comes in: its profiler chats on stderr
    from headwater.config import option_layers, parse_settings, read_recipe
    from headwater.errors import UsageError
    from headwater.pretrain.pretraining import pretrain as run_pretraining
    from headwater.pretrain.recipe import PretrainConfig

    layers: list[dict[str, Any]] = []
    if resume:
        tokens, begun = _begun(out, tokens)
        layers.append(begun)
    if recipe is not None:
        layers.append(read_recipe(recipe))
    if init_from is not None and preset is not None:
        raise UsageError("--from and --preset both say which model to train", repair="Leave --preset out")
    if init_from is not None:
        init_from = str(local_model(init_from, download))
    given = {"preset": preset, "init_from": init_from, "seed": seed, "device": device}
    layers += option_layers(given)
    config = PretrainConfig.build(*layers, parse_settings(settings or []), source=str(recipe or "--set"))
    if tokens is None:
        raise UsageError("--tokens is missing", expected="the folder that `headwater pack` wrote")
    speaks = os.environ.get("RANK", "0") == "0"  # under torchrun one process does
    if dry_run:
        from headwater.pretrain.forecast import forecast

        result = forecast(config, tokens, out)
        if speaks:
            emit(result.to_dict(), as_json=as_json, text=result.as_text())
        return
    if profile:
        from headwater.pretrain.forecast import profile as profile_run
        from headwater.pretrain.profile import as_table

        shares = profile_run(config, tokens, out)
        rows = [{"part": s.part, "seconds": s.seconds, "limit": s.limit} for s in shares]
        if speaks:
            emit({"parts": rows}, as_json=as_json, text=as_table(shares))
        return
    if find_lr:
        from headwater.pretrain.forecast import find_rate

        found = find_rate(config, tokens, out, progress=terminal_progress())
        text = f"Suggested: --set learning_rate={found.suggestion:g}\nThe curve: {out / 'curve.svg'}"
        if speaks:
            emit({"learning_rate": found.suggestion, "out": str(out)}, as_json=as_json, text=text)
        return
    follow = None
    if evaluate:
        from headwater.evaluate.during import Follower
        from headwater.tokenizer import Tokenizer

        if config.shard:
            raise UsageError(
                "--evaluate needs the whole model on one rank", repair="Leave --evaluate or shard = true out"
            )
        names = [name.strip() for name in evaluate.split(",") if name.strip()]
        import_from_here(names)
        tokenizer = Tokenizer.load(tokens / "tokenizer")
        follow = Follower(names, [tokens, *(data or [])], tokenizer, every=evaluate_every)
    model = run_pretraining(config, tokens, out, follow=follow, progress=terminal_progress())
    if speaks:
        emit({"model": str(model), "run": str(out)}, as_json=as_json, text=str(model))
        say(f"Try it: headwater generate TEXT --model {out}")


def _begun(out: Path, tokens: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """The tokens folder and the configuration of the run in `out`."""
    from headwater.config import read_toml
    from headwater.errors import FolderError
    from headwater.pretrain.recipe import PretrainConfig
    from headwater.storage.provenance import read_manifest

    manifest = read_manifest(out)
    if manifest.kind != "run":
        raise FolderError(f"{out} is a {manifest.kind} folder", expected="a run to go on with")
    inputs = {entry.role: entry.path for entry in manifest.inputs}
    recipe = out / "config.toml"  # not yet there where the run was killed in its first moments
    begun = read_toml(recipe) if recipe.exists() else manifest.config
    begun = {key: value for key, value in begun.items() if key not in PretrainConfig.retired}
    if "model" in inputs:
        begun["init_from"] = os.path.normpath(out / inputs["model"])
    return tokens or Path(os.path.normpath(out / inputs["tokens"])), begun
