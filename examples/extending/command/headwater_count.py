"""`headwater count`: count the tokens of a text."""

from typing import Annotated

import typer

from headwater.cli import AsJson, emit


def count(
    text: Annotated[str, typer.Argument(help="The text.")],
    tokenizer: Annotated[str, typer.Option(help="A tokenizer folder, gpt2 or gpt1.")] = "gpt2",
    as_json: AsJson = False,
) -> None:
    """Count the tokens of a text."""
    from headwater.tokenizer import Tokenizer

    number = len(Tokenizer.load(tokenizer).encode(text))
    emit({"tokens": number}, as_json=as_json, text=f"{number} tokens")
