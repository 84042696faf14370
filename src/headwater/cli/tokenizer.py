"""`headwater tokenizer`: train a tokenizer, encode and decode with it, or compare two."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli.console import AsJson, Download, Out, emit, read_stdin, terminal_progress
from headwater.storage import say

if TYPE_CHECKING:
    from headwater.tokenizer import Comparison

_HELP = "Train a tokenizer, encode and decode with it, or compare two."
app = typer.Typer(add_completion=False, no_args_is_help=True, help=_HELP)

_NAMES = "gpt2, gpt1, a tokenizer folder, a shipped model or a hub name."
Named = Annotated[str, typer.Option("--tokenizer", help=_NAMES)]
AllowSpecial = Annotated[
    bool,
    typer.Option("--allow-special", help="Encode the name of a special token as that token, not as plain text."),
]


@app.command()
def train(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE…", help="Corpus folders, text files or folders of text files.")
    ],
    out: Out,
    kind: Annotated[
        Literal["gpt2", "gpt1"],
        typer.Option(help="gpt2: bytes, any language, exact. gpt1: lower-case words, lossy."),
    ] = "gpt2",
    vocab_size: Annotated[
        int, typer.Option(help="Size of the vocabulary, special tokens included.", min=1)
    ] = 32_000,
    special: Annotated[list[str] | None, typer.Option(help="Add a special token. Repeatable.")] = None,
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
    text = f"{out}: a {tokenizer.kind} tokenizer of {tokenizer.vocabulary_size:,} tokens"
    emit(result, as_json=as_json, text=text)


@app.command()
def encode(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads stdin.")],
    tokenizer: Named = "gpt2",
    allow_special: AllowSpecial = False,
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Print the token ids of a text."""
    from headwater.tokenizer import Tokenizer

    loaded = Tokenizer.load(tokenizer, download=download)
    with suppress(OSError):  # a long text is not a name
        if text != "-" and Path(text).is_file():
            command = f"headwater tokenizer encode - < {shlex.quote(text)}"
            say(f"{text} is a file, and its name is encoded; to encode its text: {command}")
    # Otherwise as `pack` and `generate` read a text.
    ids = loaded.encode(read_stdin() if text == "-" else text, allow_special or None)
    if note := loaded.note_of_unknown([ids]):
        say(note)
    result = {"tokenizer": tokenizer, "ids": ids, "tokens": [loaded.token_text(i) for i in ids]}
    emit(result, as_json=as_json, text=" ".join(map(str, ids)))


@app.command()
def decode(
    ids: Annotated[
        str, typer.Argument(metavar="IDS", help="Token ids, separated by spaces or commas; - reads stdin.")
    ],
    tokenizer: Named = "gpt2",
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Print the text of token ids."""
    import re

    from headwater.errors import UsageError
    from headwater.tokenizer import Tokenizer

    fields = re.findall(r"[^\s,\[\]]+", read_stdin() if ids == "-" else ids)
    wrong = next((field for field in fields if re.fullmatch(r"[0-9]{1,18}", field) is None), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong[:40]!r} is not a token id", expected="whole numbers, separated by spaces or commas"
        )
    text = Tokenizer.load(tokenizer, download=download).decode(map(int, fields))
    emit({"text": text}, as_json=as_json, text=text, exact=True)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=_NAMES)],
    second: Annotated[str, typer.Argument(metavar="B", help="The other tokenizer.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="UTF-8 text to compare them on.")],
    download: Download = False,
    as_json: AsJson = False,
) -> None:
    """Compare two tokenizers on a text: bytes per token, split words, unused tokens."""
    from headwater.reading import read_text
    from headwater.tokenizer import Tokenizer
    from headwater.tokenizer import compare as measure

    text = read_text(file)
    named = [(name, Tokenizer.load(name, download=download)) for name in (first, second)]
    measured = measure(named, text)
    result = {"file": str(file), "tokenizers": list(map(asdict, measured))}
    emit(result, as_json=as_json, text="\n".join(_table(measured)))


def _table(comparisons: list[Comparison]) -> Iterator[str]:
    """Yield the lines of the comparison, with one column for each tokenizer."""
    names = [comparison.name for comparison in comparisons]
    rows: list[tuple[str, list[str]]] = [
        ("vocabulary", [f"{c.vocabulary_size:,}" for c in comparisons]),
        ("tokens", [f"{c.tokens:,}" for c in comparisons]),
        ("bytes per token", [f"{c.bytes_per_token:.3f}" for c in comparisons]),
        ("words split", [f"{c.split_share:.1%}" for c in comparisons]),
        ("vocabulary never used", [f"{c.unused_share:.1%}" for c in comparisons]),
    ]
    label = max(len(name) for name, _ in rows)
    width = max(len(cell) for cell in [*names, *(cell for _, cells in rows for cell in cells)])
    yield " " * label + "".join(f"  {name:>{width}}" for name in names)
    for name, cells in rows:
        yield f"{name:<{label}}" + "".join(f"  {cell:>{width}}" for cell in cells)
