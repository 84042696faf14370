"""The model of a run that is unfinished, stopped or still training: its newest undamaged checkpoint.

A checkpoint has the files of a model folder next to the optimizer's state, so that every command opens it. Reading
one does not disturb the run.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path

from headwater.errors import FolderError
from headwater.storage import has_manifest, open_folder, read_manifest

CONFIG = "config.json"
_FOLDER = "checkpoints"
_LOG = logging.getLogger(__name__)
_STEP = re.compile(r"(?:step-)?0*([0-9]{1,18})")


def find_checkpoint(path: Path) -> Path | None:
    """Return the checkpoint that `run`, `run/checkpoints/1200` or `run@1200` means; None for another path.

    A run that is complete, or has no checkpoint that can be opened as a model, is not a checkpoint. Raises
    FolderError for a step of which the run has no checkpoint.
    """
    run, at, step = str(path).rpartition("@")
    if at and (Path(run) / _FOLDER).is_dir() and not path.exists():
        return _of_step(Path(run), step)
    if path.parent.name == _FOLDER and path.parent.is_dir() and not path.exists():
        return _of_step(path.parent.parent, path.name)
    if not (path / _FOLDER).is_dir() or not has_manifest(path) or read_manifest(path).complete:
        return None
    return next((checkpoint for checkpoint in reversed(list_checkpoints(path)) if _is_good(checkpoint)), None)


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    steps = {path: step_of(path.name) for path in (run / _FOLDER).glob("step-*") if path.is_dir()}
    return sorted((path for path, step in steps.items() if step is not None), key=lambda path: steps[path] or 0)


def step_of(name: str) -> int | None:
    """Return the step that `1200` or `step-00001200` names; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _of_step(run: Path, name: str) -> Path:
    step, checkpoints = step_of(name), list_checkpoints(run)
    for path in checkpoints:
        if step_of(path.name) == step:
            return path
    steps = ", ".join(f"{step_of(path.name):,}" for path in checkpoints) or "none"
    raise FolderError(
        f"{run} has no checkpoint of update {name}", expected=f"one of {steps}", repair="Choose one of these"
    )


def _is_good(path: Path) -> bool:
    stats = [file.stat() for file in path.iterdir() if file.is_file()]
    return _is_intact(path, tuple(sorted((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)))


@cache
def _is_intact(path: Path, stamps: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a checkpoint is undamaged, and warn if not; stamps: of its files, which are hashed once."""
    try:
        open_folder(path, "checkpoint")
    except FolderError as error:
        _LOG.warning("%s is damaged and is skipped: %s", path.name, error.seen)
        return False
    return True
