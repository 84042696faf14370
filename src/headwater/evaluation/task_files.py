"""Tasks that a TOML file describes, without code: the kinds `choice` and `perplexity`."""

from __future__ import annotations

from pathlib import Path

from headwater.config import read_toml
from headwater.errors import UsageError
from headwater.evaluation.choice import ChoiceFile
from headwater.evaluation.detokenize import DETOKENIZERS
from headwater.evaluation.perplexity import Perplexity, PerplexityFile
from headwater.evaluation.protocols import Task

SUFFIX = ".toml"


def read_task_file(path: Path) -> list[Task]:
    """Return the protocols of a task file; raise UsageError for a wrong key or kind."""
    described = read_toml(path)
    kind = described.get("kind")
    tasks: list[Task]
    if kind == "choice":
        tasks = [*ChoiceFile.build(described, source=str(path)).tasks()]
    elif kind == "perplexity":
        text = PerplexityFile.build(described, source=str(path))
        tasks = [Perplexity(text)]
        if text.detokenizer is not None:
            tasks.append(Perplexity(text, DETOKENIZERS[text.detokenizer]))
    else:
        raise UsageError(f"{path} has the kind {kind!r}", expected="choice or perplexity")
    for task in tasks:
        task.file = path
    return tasks
