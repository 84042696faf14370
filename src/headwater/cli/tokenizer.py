"""`headwater tokenizer`: train one; encode, decode and compare with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
    from headwater.tokenizer import train_tokenizer

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


@app.command()
def decode(
    ids: Annotated[
        str, typer.Argument(metavar="IDS", help="Token ids between spaces or commas; - reads stdin.")
    ],
    tokenizer: Annotated[str, typer.Option("--tokenizer", help="gpt2, gpt1, or a folder.")] = "gpt2",
    as_json: AsJson = False,
) -> None:
    """Print the text of token ids."""
    import re
    import sys

    from headwater.errors import UsageError
    from headwater.tokenizer import Tokenizer

    fields = re.findall(r"[^\s,\[\]]+", sys.stdin.read() if ids == "-" else ids)
    wrong = next((field for field in fields if not field.isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} is no token id", expected="whole numbers between spaces or commas")
    text = Tokenizer.load(tokenizer).decode(map(int, fields))
    emit({"text": text}, as_json=as_json, text=text)
