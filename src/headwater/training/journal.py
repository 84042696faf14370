"""`metrics.jsonl`, one object an update, and the user's own trackers: TensorBoard, trackio or Weights & Biases.

A resumed run removes the lines of the updates that it repeats. Trackers are optional and get the same lines.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from headwater.errors import StorageError, require_extra
from headwater.reading import intact_json_lines
from headwater.storage import storage_errors, write_text

Tracker = Literal["tensorboard", "trackio", "wandb"]
_WAITING = 1 << 20  # bytes of lines that a full disk rejects, which wait in the file's buffer


class Journal:
    """Appends to a run's metrics; lines that a full disk rejects are written once it has space."""

    def __init__(self, path: Path, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """lines: what the file begins with, instead of the lines that it has."""
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
        self.path = path
        self._handle = path.open("ab", buffering=_WAITING)
        self._warned = False

    def write(self, line: dict[str, Any]) -> str | None:
        """Append one line; return a warning at the first failure."""
        try:
            with storage_errors(self.path):
                self._handle.write(json.dumps(line).encode() + b"\n")
                self._handle.flush()
        except StorageError as error:
            if not self._warned:
                self._warned = True
                return f"Warning: {error} The run continues."
        return None

    def sync(self) -> None:
        """Flush the lines to the disk, so that they survive a power failure."""
        with contextlib.suppress(OSError):  # `write` reported the full disk
            os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Write the pending lines if the disk has space now, and close the file."""
        with contextlib.suppress(OSError):  # `write` reported the full disk
            self._handle.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics file, without truncated or altered ones."""
    return [line for line in intact_json_lines(path) if isinstance(line.get("step"), int)]


def open_tracker(
    name: Tracker, out: Path, config: dict[str, Any], identity: str, step: int
) -> tuple[Callable[[dict[str, Any]], None], Callable[[], None]]:
    """Open a tracker for the run in `out`; return functions that log a line and that close it.

    A run that resumes after `step` updates continues its curve: identity is its id with Weights & Biases and part
    of its name with trackio, and TensorBoard hides what was logged of later updates.

    Raises ResourceError if its package is not installed.
    """
    if name == "tensorboard":
        writer = _module("torch.utils.tensorboard", name).SummaryWriter(
            str(out / "tensorboard"), purge_step=step + 1
        )

        def scalars(line: dict[str, Any]) -> None:
            for key, value in _figures(line).items():
                writer.add_scalar(key, value, line["step"])

        return scalars, writer.close
    # trackio has the functions of Weights & Biases, but a run's name is its id.
    module = _module(name, name)
    own = {"name": out.name, "id": identity} if name == "wandb" else {"name": f"{out.name}-{identity[:8]}"}
    module.init(project="headwater", config=config, resume="allow", **own)
    return (lambda line: module.log(_figures(line), step=line["step"])), module.finish


def _figures(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "step"}


def _module(module: str, name: str) -> Any:
    with require_extra("track", f"track = {name}"):
        return importlib.import_module(module)
