"""`headwater fill`: a masked model's tokens for the blanks of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.console import AsJson, Compose, Device, Download, ModelTokenizer, emit


def fill(
    text: Annotated[str, typer.Argument(metavar="TEXT", help='The text, such as "The [MASK] is blue."')],
    model: Annotated[str, typer.Option(help="Folder of a masked model, or a hub name.")],
    download: Download = False,
    tokenizer: ModelTokenizer = None,
    top: Annotated[int, typer.Option(help="Tokens to list for each blank.", min=1)] = 5,
    compose: Compose = True,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Fill each [MASK] of a text with the most probable tokens."""
    from headwater.inference import load

    lm = load(model, tokenizer=tokenizer, device=device, download=download, compose=compose)
    candidates = lm.fill(text, top=top)
    blanks = [[{"text": word, "probability": probability} for word, probability in blank] for blank in candidates]
    lines = []
    for number, blank in enumerate(candidates, 1):
        lines += [f"[MASK] {number}"] if len(candidates) > 1 else []
        lines += [f"  {probability:7.2%}  {word.strip() or repr(word)}" for word, probability in blank]
    emit({"text": text, "blanks": blanks}, as_json=as_json, text="\n".join(lines))
