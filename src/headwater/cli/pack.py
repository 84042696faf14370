"""`headwater pack`: turn a corpus into the token stream that training reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, Out, TokenizerDownload, emit, fetch_tokenizer, terminal_progress


def pack(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder.")],
    tokenizer: Annotated[
        str, typer.Option(help="A folder with a tokenizer, a shipped model, a hub name, gpt2 or gpt1.")
    ],
    out: Out,
    validation: Annotated[float, typer.Option(help="The fraction of the text to hold out.")] = 0.05,
    download: TokenizerDownload = False,
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a training part and a held-out part."""
    from headwater.pretraining import pack as pack_corpus

    fetch_tokenizer(tokenizer, download)
    counts = pack_corpus(corpus, tokenizer, out, validation, progress=terminal_progress())
    shown = ", ".join(f"{part} {count['tokens']:,} tokens" for part, count in counts.items())
    emit({"out": str(out), "counts": counts}, as_json=as_json, text=f"{out}: {shown}")
