"""`headwater finetune-sets`: fine-tune a model on GPT-1's labelled sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import (
    AsJson,
    Device,
    Download,
    Limit,
    Seed,
    Settings,
    emit,
    keys_option,
    local_model,
    terminal_progress,
)

KEYS = keys_option("headwater.finetuning:FinetuneConfig")


def finetune_sets(
    sets: Annotated[str, typer.Argument(help="gpt1 for all twelve, or names such as cola,rte.")],
    model: Annotated[Path, typer.Option(help="Model to start from: a folder, a shipped model, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the sets; by default HEADWATER_DATA/finetune.")
    ] = None,
    download: Download = False,
    limit: Limit = None,
    device: Device = "auto",
    seed: Seed = 1,
    settings: Settings = None,
    keys: Annotated[bool, KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune one model on each of GPT-1's sets, and write one table next to the paper's.

    headwater finetune-sets rte,mrpc --model gpt1 --data "$HEADWATER_DATA/finetune" --out sets
    """
    from headwater.config import parse_settings
    from headwater.errors import UsageError
    from headwater.finetuning import FinetuneConfig
    from headwater.storage import data_folder
    from headwater_papers.task_sets import run_sets

    if data is None and (folder := data_folder()) is not None:
        data = folder / "finetune"
    if data is None:
        raise UsageError("finetune-sets needs the folder of the sets", repair="Give it with --data DIR")
    config = FinetuneConfig.build(
        {"recipe": "gpt1", "seed": seed, "device": device, "limit": limit},
        parse_settings(settings or []),
        source="the command line",
    )
    table, text = run_sets(
        config,
        sets,
        data,
        model=local_model(model, download),
        out=out,
        download=download,
        progress=terminal_progress(),
    )
    emit(table, as_json=as_json, text=text)
