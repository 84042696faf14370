"""`headwater convert`: other projects' models and token files into Headwater's folders, and models back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from headwater.cli.console import (
    AsJson,
    Download,
    emit,
    fetch_tokenizer,
    local_model,
    refuse_unused,
    terminal_progress,
)
from headwater.errors import UsageError


def convert(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            help="OpenAI's GPT-1 or GPT-2 release, a model folder, a shipped model, a hub name, or a folder with "
            "token files of nanoGPT, llm.c or build-nanogpt."
        ),
    ],
    destination: Annotated[Path, typer.Argument(help="A folder to write, or a file that ends in .gguf.")],
    precision: Annotated[
        str | None, typer.Option(help="A folder: f32 (default), bf16, f16. GGUF: f32, f16 (default), q8_0.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder, gpt2 or gpt1; by default the source's own.")
    ] = None,
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Convert a model or tokens. The kind of the source is detected from its files."""
    source = local_model(source, download)
    from headwater.pretraining import holds_tokens

    result: dict[str, Any]
    if holds_tokens(source):
        refuse_unused(context, "a folder of tokens", "precision")
        if destination.suffix == ".gguf":
            raise UsageError(f"{source} has tokens, and GGUF holds models", expected="a folder to write")
        from headwater.pretraining import convert_tokens

        fetch_tokenizer(tokenizer or "gpt2", download)
        result = convert_tokens(source, destination, tokenizer, progress=terminal_progress())
        tokens = sum(count["tokens"] for count in result["counts"].values())
        text = f"{destination}: {tokens:,} tokens from {result['source']}"
    else:
        from headwater.convert import convert as convert_model

        result = convert_model(
            source,
            destination,
            precision=cast(Any, precision),
            tokenizer=tokenizer,
            download=download,
            progress=terminal_progress(),
        )
        text = f"{destination}: {result['parameters']:,} parameters from {result['source']}"
    emit(result, as_json=as_json, text=text)
