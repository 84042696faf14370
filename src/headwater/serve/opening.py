"""Open the models of a server, and again while they are served: a run at each new checkpoint, any at SIGHUP.

A model is opened again in a thread of its own, up to its packed weights and caches, and takes the old one's place
between two requests. The old one finishes the requests that have begun with it. What cannot be opened is logged
and tried again; until then the old model answers. A run in progress is only read, also its losses for the page.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.device import available_memory, choose_device
from headwater.display import counted
from headwater.errors import HeadwaterError, UsageError
from headwater.finetuning import FineTuned
from headwater.inference import LanguageModel, load
from headwater.model import ModelConfig
from headwater.reading import intact_json_lines
from headwater.report import measured_lines, thin
from headwater.serve.problems import Problem
from headwater.serve.served import OpenRequest, Served, Server
from headwater.serve.threads import give_way
from headwater.storage import has_manifest, read_manifest
from headwater.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
# In the metadata of a model card, between lines of three hyphens at its start.
_LANGUAGE = re.compile(r"\A---\n(?:(?!---\n).*\n)*?language: *\[?[\"']?([a-z]{2,3})\b")
_HANGUL = re.compile("[\uac00-\ud7a3]")
# More continuations at a time add little throughput.
_MOST_SLOTS = 32
_EVERY = 5.0  # seconds between two looks for a checkpoint, and two tries to open a model
_POINTS = 400  # of a curve
_SAMPLES = 5  # the newest


def open_models(
    models: list[str],
    *,
    tokenizer: str | None = None,
    precision: str,
    device: str = "auto",
    slots: int | None,
    compose: bool = True,
) -> list[Served]:
    """Open each `MODEL` or `NAME=MODEL`, with `tokenizer` if its folder has none.

    slots: continuations of one model at a time; None means `automatic_slots`.
    compose: whether texts are read in Unicode's composed form.

    Raises UsageError for two models of the same name and for slots that do not fit the memory, and what `load`
    raises.
    """
    named: dict[str, str] = {}
    for model in models:
        name, source = shipped.split_name(model)
        if name is None:  # the folder's, or that of the run whose model it is; a hub name as it is
            name = shipped.name_of(Path(model).resolve()) if Path(model).exists() else model
        if not name or not source:
            raise UsageError(f"--model {model!r} has no name or no folder", expected="FOLDER or NAME=FOLDER")
        if name in named:
            raise UsageError(
                f"two models would be called {name!r}: {named[name]} and {source}",
                repair=f"Name one: --model {shlex.quote(f'other={source}')}",
            )
        named[name] = source
    options: dict[str, Any] = {"tokenizer": tokenizer, "precision": precision, "device": device}
    options |= {"slots": slots or 1, "compose": compose}
    served = [_open(name, source, options) for name, source in named.items()]
    memory = available_memory(choose_device(device, training=False)) // len(served)
    for one in served:
        if one.lm.config.is_causal:
            fitting = max(1, memory // _slot_bytes(one.lm.config))
            if slots is None:
                one.lm.slots = automatic_slots(one.lm.config, memory)
            elif slots > fitting:
                raise UsageError(
                    f"{counted(slots, 'continuation')} of {one.name} at a time need more memory than is free",
                    expected=f"at most {fitting:,}",
                    repair="Give a lower --max-concurrency",
                )
        one.allocate()
    return served


def automatic_slots(config: ModelConfig, memory: int) -> int:
    """Return how many continuations to run at a time: 32, or as many as fit an eighth of `memory`."""
    return max(1, min(_MOST_SLOTS, memory // 8 // _slot_bytes(config)))


def _slot_bytes(config: ModelConfig) -> int:
    """Return the bytes of a whole context of keys and values in float32; for an LSTM, an upper bound."""
    states = config.units or config.width if config.architecture == "lstm" else config.width
    return 2 * 4 * config.layers * config.context * states


def language_of(folder: Path, tokenizer: Tokenizer) -> str | None:
    """Return the language of a model's text: as its card says, else "ko" for a vocabulary with much Hangul."""
    card = folder / "README.md"
    if card.is_file() and (match := _LANGUAGE.search(card.read_text(encoding="utf-8", errors="replace"))):
        return match[1]
    texts = (tokenizer.token_text(token) for token in range(tokenizer.vocabulary_size))
    korean = sum(_HANGUL.search(text) is not None for text in texts)
    return "ko" if korean > tokenizer.vocabulary_size // 10 else None


def _open(name: str, source: str, options: dict[str, Any]) -> Served:
    """Open one model; options: those of `headwater.load`."""
    # A link is followed once, so that all files are of one folder, also if the link is replaced meanwhile.
    resolved = str(Path(source).resolve()) if Path(source).exists() else source
    folder, run = shipped.resolve(resolved), run_of(resolved)
    if folder.is_file():
        raise shipped.not_a_model(folder)
    version = version_of(folder)  # before its files are read
    if FineTuned.is_in(folder):
        head = FineTuned.load(folder, device=choose_device(options["device"], training=False))
        exact = {"precision": "fp32"} if options["precision"] == "auto" else {}
        given = {key: options[key] for key in ("precision", "slots", "compose")} | exact
        served = Served(name, LanguageModel(head.model.model, head.tokenizer, **given), head)
    else:
        served = Served(name, load(resolved, **options), run_folder=run)
    served.language = language_of(folder, served.lm.tokenizer)
    served.folder, served.version = shipped.resolve(source), version
    served.reopen = partial(_open, name, source, options)
    return served


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
    manifest, lines = read_manifest(run), measured_lines(run)
    last = lines[-1] if lines else {}
    curves = {
        name: [(line["tokens"], line[key]) for line in lines if isinstance(line.get(key), int | float)]
        for name, key in (("training", "loss"), ("held_out", "validation_loss"))
    }
    is_checkpoint = served.folder is not None and served.folder.parent.name == "checkpoints"
    served_update = shipped.step_of(served.folder.name) if served.folder and is_checkpoint else None
    samples = list(intact_json_lines(run / "samples.jsonl"))[-_SAMPLES:]
    return {
        "model": served.name,
        "complete": manifest.complete,
        "update": int(last.get("step", 0)),
        "updates": int(manifest.config.get("steps", 0)),
        "served_update": served_update,
        "tokens_per_second": last.get("tokens_per_second"),
        **{name: [list(point) for point in thin(curve, _POINTS)] for name, curve in curves.items()},
        "samples": [{key: line[key] for key in ("step", "prompt", "text")} for line in reversed(samples)],
    }


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
        newest = shipped.find(served.run_folder).resolve()
        if served.folder is not None and newest == served.folder.resolve():
            return None
    elif served.folder is not None and version_of(served.folder) == served.version:
        return None
    new = served.reopen()
    new.lm.slots = served.lm.slots
    new.allocate()
    return new
