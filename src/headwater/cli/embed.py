"""`headwater embed`: one vector a text, as an array that NumPy reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.console import AsJson, Compose, Device, Download, Encoding, Limit, ModelTokenizer, emit


def embed(
    file: Annotated[Path, typer.Argument(help="Texts: a text file, one a line, or a table.", metavar="FILE")],
    model: Annotated[str, typer.Option(help="Model folder, a model that ships, or a hub name.")],
    out: Annotated[Path, typer.Option("--out", help="File to write: .npy.")],
    text: Annotated[str, typer.Option("--text", help="Column of a table with the texts.")] = "",
    normalize: Annotated[bool, typer.Option("--normalize", help="Bring each vector to length 1.")] = False,
    download: Download = False,
    tokenizer: ModelTokenizer = None,
    encoding: Encoding = "",
    compose: Compose = True,
    device: Device = "auto",
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Write one vector a text, (texts, width) float32: the mean of the model's last hidden states.

    A longer text than the model reads is cut; a row without text is the vector of an empty text.

    headwater embed reviews.csv --text review --model minilm --out reviews.npy
    """
    import numpy as np

    from headwater.display import counted
    from headwater.errors import DataError, UsageError
    from headwater.inference import load
    from headwater.reading import text_encoding
    from headwater.shipped import resolve
    from headwater.storage import OutputFile, say

    if out.suffix != ".npy":
        raise UsageError(f"--out {out} does not end in .npy", expected="an array of NumPy, such as vectors.npy")
    encoding = text_encoding(encoding) if encoding else ""
    texts = list(islice(_texts(file, text, encoding), limit))
    if not texts:
        raise DataError(f"{file} has no texts", expected="one a line, or a table with a column of texts")
    folder = resolve(model, download=download)
    output = OutputFile(
        out,
        kind="vectors",
        config={"normalize": normalize, "compose": compose, "text": text, "limit": limit},
        inputs={"model": folder, "texts": file},
    )
    output.require_own()
    lm = load(folder, tokenizer=tokenizer, device=device, compose=compose)
    vectors = lm.embed(texts, normalize=normalize)
    with output.write() as handle:
        np.save(handle, vectors)
    count, width = vectors.shape
    emit(
        {"texts": count, "width": width, "out": str(out)},
        as_json=as_json,
        text=f"{counted(count, 'vector')} of {width} numbers: {out}",
    )
    if empty := sum(not text.strip() for text in texts):
        say(f"{counted(empty, 'row')} without text: each is the vector of an empty text.")


def _texts(file: Path, column: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a text file, or the cells of a table's column; raise UsageError if it has several."""
    from headwater.errors import DataError, UsageError
    from headwater.reading import is_table, open_table, text_blocks

    if not is_table(file):
        if column:
            raise UsageError(f"{file} is not a table, and --text is {column!r}", repair="Leave --text out")
        whole = "".join(text_blocks(file, encoding=encoding)).replace("\r\n", "\n")
        yield from whole.removesuffix("\n").split("\n") if whole else []
        return
    table = open_table(file, [column] if column else [], encoding, [column] if column else [])
    if not table.columns:
        raise DataError(f"{file} is empty", expected="a table with a column of text")
    if not column:
        column = "text" if "text" in table.columns else table.texts[0] if len(table.texts) == 1 else ""
        if not column:
            what = "several columns" if table.texts else "no column"
            raise UsageError(
                f"{file} has {what} of text",
                expected=f"one of {', '.join(table.columns)}",
                repair="Name it: --text COLUMN",
            )
    elif column not in table.columns:
        raise UsageError(f"--text {column!r} is not a column of {file}", expected=", ".join(table.columns))
    for _, row in table.rows:
        cell = row.get(column)
        yield "" if cell is None else str(cell)
