"""What other distributions add: entry points in the groups of `headwater`.

An entry point `name = "module:function"` of the group `headwater.commands` adds `headwater name`. The function is
an ordinary Typer command, or a `typer.Typer` with commands of its own. The overview shows the one-line summary of
the distribution. One of `headwater.architectures` is a function that calls `Architecture.register` or
`register_task_model`: it is called when a configuration names a preset, a kind of model or a task model that is
not known. One of `headwater.recipes` is a folder of recipes, a Path. One of `headwater.tasks` is a list of
zero-shot tasks. One of `headwater.corpus_steps` is a class of steps, made without arguments, that the key `steps`
of `corpus build` names.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from headwater.errors import ResourceError, UsageError, suggest

GROUP = "headwater.commands"
ARCHITECTURES = "headwater.architectures"
CORPUS_STEPS = "headwater.corpus_steps"
RECIPES = "headwater.recipes"
TASKS = "headwater.tasks"
PAPERS = "headwater-papers"
# The commands of headwater-papers, its architectures, and the benchmarks of its zero-shot tasks.
OPTIONAL = {"finetune-sets", "reproduce"}
OPTIONAL_ARCHITECTURES = {"bilstm", "lstm"}
OPTIONAL_TASKS = frozenset(
    {"cbt", "cnndm", "cola", "coqa", "dprd", "natural-questions", "pdp", "race", "race-high", "race-middle"}
    | {"race-sample", "sst-2", "story-cloze", "wmt14", "wsc273"}
)
_PAPERS_TASK_MODELS = {"lstm"}
_TASK_MODELS: dict[str, str] = {}


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


def register_task_model(name: str, target: str) -> None:
    """Add what `freeze` and `task_model = NAME` put over a frozen base: "module:class" of a torch module.

    It is made with (width, texts, generator): the base's width, 1 or 2 texts, and the torch.Generator of its
    weights. Its attribute `features` is the width of its output. `forward` takes a list with (x, inside) for each
    text, (sequences, time, width) and (sequences, time) bool, and the hidden states of the extract tokens,
    (sequences, width); it returns (sequences, features).
    """
    _TASK_MODELS[name] = target


def task_model_class(name: str) -> Any:
    """Return the class of a registered task model.

    Raises ResourceError for one of headwater-papers if that is not installed, UsageError for any other name.
    """
    register_plugins()
    if name in _TASK_MODELS:
        return Plugin(_TASK_MODELS[name], "").load()
    if name in _PAPERS_TASK_MODELS:
        raise not_installed(f"task_model = {name}")
    raise UsageError(f"there is no task model {name!r}", **suggest(name, ["pooling", *_TASK_MODELS]))


def not_installed(what: str) -> ResourceError:
    """Return the error about something that belongs to headwater-papers."""
    return ResourceError(f"{what} belongs to {PAPERS}, which is not installed", repair=f"pip install {PAPERS}")
