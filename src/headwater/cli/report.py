"""`headwater report`: join runs and results into one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, emit, terminal_progress


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            help="Corpora, tokenizers, tokens, runs, results, samples, fine-tuned models, or a folder of these.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.")],
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Headwater report",
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML page about runs and results."""
    from headwater.report import report as write

    write(folders, out, title=title, progress=terminal_progress())
    emit({"out": str(out)}, as_json=as_json, text=f"{out}: open it in any browser")
