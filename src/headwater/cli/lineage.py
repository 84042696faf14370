"""`headwater lineage`: what a folder was made from, back to its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.console import AsJson, emit
from headwater.display import printable
from headwater.shipped import find, hub_name, origin_of


def lineage(
    folder: Annotated[str, typer.Argument(help="A folder that a Headwater command wrote, or a shipped model.")],
    as_json: AsJson = False,
) -> None:
    """Print the chain from a folder back to its first sources, with the command that made each."""
    from headwater.storage import lineage as chain

    path = Path(folder)
    tree = chain(path if path.exists() else find(path))  # a run is not its model here
    emit(tree, as_json=as_json, text=printable("\n".join(tree_lines(tree, "", "")), keep="\n\t"), exact=True)


def tree_lines(entry: dict[str, Any], first: str, rest: str) -> list[str]:
    """Return the tree of one entry; `first` is the prefix of its line, `rest` that of the lines below."""
    role = f"{entry['role']}: " if entry["role"] else ""
    state = "" if entry["state"] in {"complete", "source"} else f"  ({entry['state'].upper()})"
    seed = f"  seed {entry['seed']}" if entry.get("seed") is not None else ""
    shown = hub_name(entry["path"]) or entry["path"]
    lines = [f"{first}{role}{shown}  [{entry['kind']} {entry['identity'][:12]}]{seed}{state}"]
    inputs = entry["inputs"]
    origin = origin_of(entry["path"])
    for command in [origin] if origin else entry.get("commands", []):
        lines.append(f"{rest}{'│ ' if inputs else '  '}{command}")
    for number, inner in enumerate(inputs, start=1):
        last = number == len(inputs)
        lines += tree_lines(inner, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")
    return lines
