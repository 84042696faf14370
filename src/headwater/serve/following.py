"""Follow a run that is served: its losses and samples for the page, and its model again at each new checkpoint.

A run in progress is only read. The new model is opened in the thread of long texts; requests that have begun are
finished by the model that they began with.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.errors import HeadwaterError
from headwater.reading import intact_json_lines, parse_json
from headwater.report import thin
from headwater.serve.problems import Problem
from headwater.serve.served import Served
from headwater.storage import has_manifest, read_manifest

_EVERY = 5.0  # seconds between two looks for a checkpoint
_POINTS = 400  # of a curve
_SAMPLES = 5  # the newest
_LINE = ("step", "tokens", "loss")  # keys of every line of a journal
logger = logging.getLogger(__name__)


def run_of(source: str | Path) -> Path | None:
    """Return the run folder that a model's source is, or that is in a quickstart folder; None for any other."""
    for path in (Path(source), Path(source) / "run"):
        if path.is_dir() and has_manifest(path) and read_manifest(path).kind == "run":
            return path
    return None


class RunLosses:
    """The losses of a run over the tokens read; each call reads only the lines that are new."""

    def __init__(self, run: Path) -> None:
        self._path = run / "metrics.jsonl"
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._offset = 0
        self.last: dict[str, Any] = {}
        self.training: list[tuple[float, float]] = []
        self.held_out: list[tuple[float, float]] = []

    def read(self) -> RunLosses:
        """Read the new lines and return the journal; a file that became shorter is read again."""
        with self._lock:
            size = self._path.stat().st_size if self._path.exists() else 0
            if size < self._offset:  # a resumed run continues from its checkpoint
                self._clear()
            if size > self._offset:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    whole, _, _ = file.read().rpartition(b"\n")  # the last line may be half written
                self._offset += len(whole) + 1 if whole else 0
                for line in whole.splitlines():
                    self._add(line)
        return self

    def _add(self, text: bytes) -> None:
        try:
            line = parse_json(text.decode("utf-8", errors="replace"))
        except (HeadwaterError, ValueError):
            return
        if not isinstance(line, dict) or not all(isinstance(line.get(key), int | float) for key in _LINE):
            return
        self.last = line
        self.training.append((line["tokens"], line["loss"]))
        if isinstance(line.get("validation_loss"), int | float):
            self.held_out.append((line["tokens"], line["validation_loss"]))


def run_state(served: Served) -> dict[str, Any]:
    """Return what the page shows of a model's run; raises Problem 400 for a model that is not of a run."""
    if served.run is None or served.journal is None:
        raise Problem(400, f"The model {served.name!r} is not of a run folder.", param="model")
    manifest, journal = read_manifest(served.run), served.journal.read()
    samples = served.run / "samples.jsonl"
    newest = list(intact_json_lines(samples) if samples.exists() else ())[-_SAMPLES:]
    return {
        "model": served.name,
        "complete": manifest.complete,
        "update": int(journal.last.get("step", 0)),
        "updates": int(manifest.config.get("steps", 0)),
        "served_update": _update_of(served),
        "tokens_per_second": journal.last.get("tokens_per_second"),
        "training": [list(point) for point in thin(journal.training, _POINTS)],
        "held_out": [list(point) for point in thin(journal.held_out, _POINTS)],
        "samples": [{key: line[key] for key in ("step", "prompt", "text")} for line in reversed(newest)],
    }


def _update_of(served: Served) -> int | None:
    """Return the update of the checkpoint that is served; None for a model that is not a checkpoint."""
    folder = served.folder
    return shipped.step_of(folder.name) if folder and folder.parent.name == "checkpoints" else None


class RunFollower:
    """Replaces each followed model when its run has a newer checkpoint, until it is cancelled."""

    def __init__(self, models: dict[str, Served], start: Callable[[Served], None]) -> None:
        self._models, self._start = models, start
        self.leaving: list[Served] = []

    async def follow(self) -> None:
        """Look for new checkpoints forever."""
        while True:
            await asyncio.sleep(_EVERY)
            for name, served in list(self._models.items()):
                if served.reopen is not None:
                    await self._renew(name, served)
            for old in [old for old in self.leaving if old.idle]:
                self.leaving.remove(old)
                old.stop(background=False)

    async def _renew(self, name: str, served: Served) -> None:
        assert served.run is not None
        assert served.reopen is not None
        try:
            if await served.write(partial(shipped.find, served.run)) == served.folder:
                return
            new = await served.write(served.reopen)
        except (HeadwaterError, OSError) as error:  # a checkpoint that was removed meanwhile: look again later
            logger.info("%s is not opened again: %s", name, error)
            return
        new.take_place_of(served)
        self._start(new)
        self._models[name] = new
        self.leaving.append(served)
