"""`headwater tokenizer`: train one; encode, decode and compare with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, Out, emit, terminal_progress

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Train a tokenizer; encode, decode, compare."
)


@app.command()
def train(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE…", help="A corpus folder, a text file, a folder of text files."),
    ],
    out: Out,
    kind: Annotated[
        str, typer.Option("--kind", help="gpt2 (byte level) or gpt1 (lower case, words).")
    ] = "gpt2",
    vocab_size: Annotated[
        int, typer.Option("--vocab-size", help="Rows in all, special tokens included.", min=1)
    ] = 32_000,
    special: Annotated[
        list[str] | None, typer.Option("--special", help="A special token of your own. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn a vocabulary from text and write it as a tokenizer folder."""
    from headwater.errors import UsageError
    from headwater.tokenizer import train_tokenizer

    if kind not in ("gpt2", "gpt1"):
        raise UsageError(f"--kind {kind!r} is no kind of tokenizer", expected="gpt2 or gpt1")
    tokenizer = train_tokenizer(
        sources,
        out,
        kind=kind,
        vocab_size=vocab_size,
        special_tokens=special or (),
        progress=terminal_progress(),
    )
    result = {
        "out": str(out),
        "kind": tokenizer.kind,
        "vocabulary_size": tokenizer.vocabulary_size,
        "identity": tokenizer.identity,
    }
    emit(
        result,
        as_json=as_json,
        text=f"{out}: a {tokenizer.kind} tokenizer of {tokenizer.vocabulary_size:,} tokens",
    )
