"""`headwater pack`: turn a corpus into the token stream that training reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headwater.cli.console import (
    AsJson,
    Download,
    Out,
    emit,
    fetch_tokenizer,
    refuse_unused,
    terminal_progress,
)


def pack(
    context: typer.Context,
    corpus: Annotated[Path, typer.Argument(help="A corpus folder.")],
    tokenizer: Annotated[
        str, typer.Option(help="A folder with a tokenizer, a shipped model, a hub name, gpt2 or gpt1.")
    ],
    out: Out,
    validation: Annotated[float, typer.Option(help="The fraction of the text to hold out.")] = 0.05,
    workers: Annotated[int, typer.Option(help="Number of worker processes.", min=1)] = 1,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where to run: this machine, or a Ray cluster.")
    ] = "local",
    address: Annotated[
        str, typer.Option(help="Address of the Ray cluster; by default one is started on this machine.")
    ] = "",
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a training part and a held-out part."""
    from headwater.pretraining import pack as pack_corpus

    fetch_tokenizer(tokenizer, download)
    if engine != "ray":
        refuse_unused(context, f"--engine {engine}", "address")
    counts = pack_corpus(
        corpus,
        tokenizer,
        out,
        validation,
        workers=workers,
        engine=engine,
        address=address,
        progress=terminal_progress(),
    )
    shown = ", ".join(f"{part} {count['tokens']:,} tokens" for part, count in counts.items())
    emit({"out": str(out), "counts": counts}, as_json=as_json, text=f"{out}: {shown}")
