"""What other distributions add: entry points in the groups of `headwater`.

An entry point `name = "module:function"` of the group `headwater.commands` adds `headwater name`. The function is
an ordinary Typer command, or a `typer.Typer` with commands of its own. The overview shows the one-line summary of
the distribution. The entry point `run` of the group `headwater.task_sets` is what `finetune --task-set` calls. One
of `headwater.architectures` is a function that calls `register_architecture`: it is called when a configuration
names a preset or a kind of model that is not known. One of `headwater.recipes` is a folder of recipes, a Path.
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
TASK_SETS = "headwater.task_sets"
ARCHITECTURES = "headwater.architectures"
RECIPES = "headwater.recipes"
PAPERS = "headwater-papers"
# The commands of headwater-papers.
OPTIONAL = {"reproduce"}


@dataclass(frozen=True)
class Plugin:
    """An entry point of another distribution: where its object is, and the distribution's summary."""

    target: str
    summary: str

    def load(self) -> Any:
        """Import the object; raise ResourceError if its distribution is damaged."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ResourceError(
                f"{self.target} cannot be imported: {error}",
                repair="Install its distribution again",
            ) from error


@cache
def plugins(group: str = GROUP) -> dict[str, Plugin]:
    """Return a group's entry points that are installed; the first on the path wins, as for importlib.metadata.

    The files are read here because importing importlib.metadata takes longer than all of `headwater --help`.
    """
    by_name: dict[str, Plugin] = {}
    seen: set[str] = set()
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("*-info/entry_points.txt")):
            distribution = path.parent.name.split("-")[0].replace("_", "-").lower()
            if distribution in seen:
                continue
            seen.add(distribution)
            for name, target in _entries(path, group):
                by_name.setdefault(name, Plugin(target, _summary(path.parent)))
    return by_name


def not_installed(what: str) -> ResourceError:
    """Return the error about something that belongs to headwater-papers."""
    return ResourceError(f"{what} belongs to {PAPERS}, which is not installed", repair=f"pip install {PAPERS}")


def _entries(path: Path, group: str) -> list[tuple[str, str]]:
    """Return the names and targets of the group in the file `entry_points.txt`."""
    _, present, rest = path.read_text(encoding="utf-8").partition(f"[{group}]\n")
    section = rest.split("\n[")[0] if present else ""
    pairs = (line.partition("=") for line in section.splitlines() if "=" in line)
    return [(name.strip(), target.strip()) for name, _, target in pairs]


def _summary(folder: Path) -> str:
    for name in ("METADATA", "PKG-INFO"):
        if (folder / name).is_file():
            lines = (folder / name).read_text(encoding="utf-8").splitlines()
            return next((line.removeprefix("Summary: ") for line in lines if line.startswith("Summary: ")), "")
    return ""
