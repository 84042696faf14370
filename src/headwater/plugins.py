"""What other distributions add: entry points in the groups of `headwater`.

An entry point `name = "module:function"` of the group `headwater.commands` adds `headwater name`. The function is
an ordinary Typer command, or a `typer.Typer` with commands of its own. The overview shows the one-line summary of
the distribution. One of `headwater.architectures` is a function that calls `Architecture.register`: it is called
when a configuration names a preset or a kind of model that is not known. One of `headwater.recipes` is a folder of
recipes, a Path. One of `headwater.tasks` is a list of zero-shot tasks. One of `headwater.corpus_steps` is a class
of steps, made without arguments, that the key `steps` of `corpus build` names.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from headwater.errors import ResourceError

GROUP = "headwater.commands"
ARCHITECTURES = "headwater.architectures"
CORPUS_STEPS = "headwater.corpus_steps"
RECIPES = "headwater.recipes"
TASKS = "headwater.tasks"
PAPERS = "headwater-papers"
INSTALL_PAPERS = "pip install ./papers, in the folder of a clone of Headwater"
# The commands of headwater-papers, its architectures, and the benchmarks of its zero-shot tasks.
OPTIONAL = {"finetune-sets", "reproduce"}
OPTIONAL_ARCHITECTURES = {"bilstm", "lstm"}
OPTIONAL_TASKS = frozenset(
    {"cbt", "cnndm", "cola", "coqa", "dprd", "natural-questions", "pdp", "race", "race-high", "race-middle"}
    | {"race-sample", "sst-2", "story-cloze", "wmt14", "wsc273"}
)


@dataclass(frozen=True)
class Plugin:
    """An entry point of another distribution: where its object is, and the distribution's summary."""

    target: str
    summary: str = ""

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
    """Return a group's entry points that are installed; the first on the path wins."""
    from importlib.metadata import entry_points

    by_name: dict[str, Plugin] = {}
    for entry in entry_points(group=group):
        summary = entry.dist.metadata.json.get("summary", "") if entry.dist else ""
        by_name.setdefault(entry.name, Plugin(entry.value, str(summary)))
    return by_name


@cache
def register_plugins() -> None:
    """Call the functions of `headwater.architectures`, once."""
    for plugin in plugins(ARCHITECTURES).values():
        plugin.load()()


def not_installed(name: str) -> ResourceError:
    """Return the error about something that belongs to headwater-papers."""
    return ResourceError(f"{name} belongs to {PAPERS}, which is not installed", repair=INSTALL_PAPERS)
