"""Open models again while they are served: a run at each new checkpoint, any folder that has changed at SIGHUP.

A model is opened in a thread of its own, up to its packed weights and caches, and takes the old one's place
between two requests. The old one finishes the requests that have begun with it. What cannot be opened is logged
and tried again; until then the old model answers. A run in progress is only read, also its losses for the page.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.errors import HeadwaterError
from headwater.reading import intact_json_lines
from headwater.report import thin
from headwater.serve.problems import Problem
from headwater.serve.served import OpenRequest, Served, Server
from headwater.serve.threads import give_way
from headwater.storage import has_manifest, read_manifest

_EVERY = 5.0  # seconds between two looks for a checkpoint, and two tries to open a model
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


async def run_state(request: OpenRequest) -> dict[str, Any]:
    """Return what the page shows of a model's run. Raises Problem for a model or folder that is not a run."""
    request.is_long = True  # a journal may be long
    served = request.model
    if served.run_folder is None:
        raise Problem(400, f"The model {served.name!r} is not of a run folder.", param="model")
    try:
        return await request.read(partial(_state, served, served.run_folder))
    except (HeadwaterError, OSError) as error:  # the folder was moved, removed or damaged
        logger.warning("the run of %s cannot be read: %s", served.name, error)
        message = f"The run folder of {served.name!r} cannot be read: it was moved, removed or damaged."
        raise Problem(404, message, param="model", code="run_unreadable") from None


def _state(served: Served, run: Path) -> dict[str, Any]:
    manifest, samples = read_manifest(run), _lines(run / "samples.jsonl")[-_SAMPLES:]
    journal = [line for line in _lines(run / "metrics.jsonl") if all(_is_number(line.get(key)) for key in _LINE)]
    last = journal[-1] if journal else {}
    training = [(line["tokens"], line["loss"]) for line in journal]
    held_out = [
        (line["tokens"], line["validation_loss"]) for line in journal if _is_number(line.get("validation_loss"))
    ]
    return {
        "model": served.name,
        "complete": manifest.complete,
        "update": int(last.get("step", 0)),
        "updates": int(manifest.config.get("steps", 0)),
        "served_update": _update_of(served),
        "tokens_per_second": last.get("tokens_per_second"),
        "training": [list(point) for point in thin(training, _POINTS)],
        "held_out": [list(point) for point in thin(held_out, _POINTS)],
        "samples": [{key: line[key] for key in ("step", "prompt", "text")} for line in reversed(samples)],
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return list(intact_json_lines(path)) if path.exists() else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _update_of(served: Served) -> int | None:
    """Return the update of the checkpoint that is served; None for a model that is not a checkpoint."""
    folder = served.folder
    return shipped.step_of(folder.name) if folder and folder.parent.name == "checkpoints" else None


def version_of(folder: Path) -> object:
    """Return what changes when a model folder, or a link to it, is replaced or written again."""
    about = ((file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file())
    files = tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in about)
    return folder.resolve(), files


class ModelFollower:
    """Replaces models by newer ones until the block of this context manager ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._asked = asyncio.Event()
        self._leaving: list[Served] = []
        self._reported: dict[str, str] = {}  # the last error of a model, to log it once

    async def __aenter__(self) -> ModelFollower:
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="opening", initializer=give_way)
        self._server.reload = partial(asyncio.get_running_loop().call_soon_threadsafe, self._asked.set)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._opener.shutdown(cancel_futures=True)
        for old in self._leaving:
            old.stop()

    async def _follow(self) -> None:
        asked: set[str] = set()  # models to open again if their folder has changed
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await self._asked.wait()
            if self._asked.is_set():
                self._asked.clear()
                asked = set(self._server.models)
            for name, served in list(self._server.models.items()):
                if (served.run_folder is not None or name in asked) and await self._renew(name, served):
                    asked.discard(name)
            for old in [old for old in self._leaving if not old.requests]:
                self._leaving.remove(old)
                old.stop()

    async def _renew(self, name: str, served: Served) -> bool:
        """Open a model again if its folder has changed. Returns whether the newest one is served now."""
        if served.reopen is None:
            return True
        try:
            new = await asyncio.get_running_loop().run_in_executor(self._opener, _open_newer, served)
            if new is None:
                return True
            new.start(self._server.limits.queue)
        except Exception as error:  # too little memory for two models, a folder that is being written
            said = f"{type(error).__name__}: {error}"
            if self._reported.get(name) != said:
                logger.error("%s is not opened again, and is tried again: %s", name, error or said)
            self._reported[name] = said
            return False
        self._reported.pop(name, None)
        self._server.models[name] = new
        self._leaving.append(served)
        logger.warning("%s was opened again", name)
        return True


def _open_newer(served: Served) -> Served | None:
    """Return the newest model of the same source, ready to answer; None if that is the one that is served."""
    assert served.reopen is not None
    if served.run_folder is not None:
        if shipped.find(served.run_folder) == served.folder:
            return None
    elif served.folder is not None and version_of(served.folder) == served.version:
        return None
    new = served.reopen()
    new.lm.slots = served.lm.slots
    new.allocate()
    return new
