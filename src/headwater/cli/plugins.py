"""Commands of other distributions: entry points in the group `headwater.commands`.

An entry point `name = "module:function"` adds `headwater name`. The function is an ordinary Typer command, or a
`typer.Typer` with commands of its own. The overview shows the one-line summary of the distribution.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headwater.errors import ResourceError

GROUP = "headwater.commands"
# Commands of distributions that belong to Headwater, by the name of the distribution.
OPTIONAL = {"reproduce": "headwater-papers"}


@dataclass(frozen=True)
class Plugin:
    """A command of another distribution: where its function is, and the distribution's summary."""

    target: str
    summary: str

    def load(self) -> Any:
        """Import the command; raise ResourceError if its distribution is damaged."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ResourceError(
                f"the command's code {self.target} cannot be imported: {error}",
                repair="Install its distribution again",
            ) from error


@cache
def plugins() -> dict[str, Plugin]:
    """Return the commands that are installed, by name; the first on the path wins, as for importlib.metadata.

    The files are read here because importing importlib.metadata takes longer than all of `headwater --help`.
    """
    found: dict[str, Plugin] = {}
    seen: set[str] = set()
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("*-info/entry_points.txt")):
            distribution = path.parent.name.split("-")[0].replace("_", "-").lower()
            if distribution in seen:
                continue
            seen.add(distribution)
            for name, target in _entries(path):
                found.setdefault(name, Plugin(target, _summary(path.parent)))
    return found


def _entries(path: Path) -> list[tuple[str, str]]:
    """Return the names and targets of the group in the file `entry_points.txt`."""
    _, present, rest = path.read_text(encoding="utf-8").partition(f"[{GROUP}]\n")
    section = rest.split("\n[")[0] if present else ""
    pairs = (line.partition("=") for line in section.splitlines() if "=" in line)
    return [(name.strip(), target.strip()) for name, _, target in pairs]


def _summary(folder: Path) -> str:
    for name in ("METADATA", "PKG-INFO"):
        if (folder / name).is_file():
            lines = (folder / name).read_text(encoding="utf-8").splitlines()
            return next((line.removeprefix("Summary: ") for line in lines if line.startswith("Summary: ")), "")
    return ""
