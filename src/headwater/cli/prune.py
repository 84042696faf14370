"""`headwater prune`: remove old checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, emit


def prune(
    run: Annotated[Path, typer.Argument(help="Run folder that `headwater pretrain` wrote.")],
    keep: Annotated[int, typer.Option(help="How many of the newest checkpoints stay.", min=0)] = 1,
    as_json: AsJson = False,
) -> None:
    """Remove the checkpoints of a run except the newest, and the best one of an unfinished run.

    Without a checkpoint a finished run still has its model, but cannot be lengthened.
    """
    from headwater.display import byte_size, counted
    from headwater.training import prune_checkpoints

    removed = prune_checkpoints(run, keep)
    size = sum(removed.values())
    text = f"{run}: {counted(len(removed), 'checkpoint')} removed, {byte_size(size)}"
    if removed and not keep:
        text += "; the run can no longer be lengthened or branched"
    emit({"run": str(run), "removed": sorted(removed), "bytes": size}, as_json=as_json, text=text)
