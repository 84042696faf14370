"""`headwater convert`: OpenAI's releases and Hugging Face's folders, into a model folder or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from headwater.cli.console import AsJson, emit, tell_apart, terminal_progress

app = typer.Typer(add_completion=False)


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="OpenAI's GPT-1 or GPT-2 release, a model folder, or a model that ships.", show_default=False
        ),
    ],
    destination: Annotated[
        Path, typer.Argument(help="A folder to write, or a file that ends in .gguf.", show_default=False)
    ],
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="A folder: f32 (default), bf16, f16. GGUF: f32, f16 (default), q8_0."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="A tokenizer folder, or gpt2 or gpt1; else the source's own."),
    ] = None,
    heads: Annotated[
        int | None, typer.Option("--heads", help="For a GPT-1 release whose heads are not 64 wide.", min=1)
    ] = None,
    faithful: Annotated[
        str,
        typer.Option(
            "--faithful", help="How a GPT-1 release trains further: as its code (code) or paper (paper)."
        ),
    ] = "code",
    as_json: AsJson = False,
) -> None:
    """Convert a model; what the source is, its files say."""
    tell_apart(source)
    from headwater.convert import convert as convert_model

    result = convert_model(
        source,
        destination,
        precision=cast(Any, precision),
        heads=heads,
        tokenizer=tokenizer,
        faithful=cast(Any, faithful),
        progress=terminal_progress(),
    )
    emit(
        result, as_json=as_json, text=f"{destination}: {result['parameters']:,} parameters from {result['source']}"
    )
