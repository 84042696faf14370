"""Open the models of a server, and open them again while they are served, at SIGHUP.

A model is opened again in a thread of its own, up to its packed weights and caches, and takes the old one's place
between two requests. The old one finishes the requests that have begun with it. A model that cannot be opened is
logged, and is `stale` in /health and the metrics until a later SIGHUP opens it; the old one answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from torch.nn import Module

from headwater import shipped
from headwater.device import available_memory, choose_device
from headwater.display import counted
from headwater.errors import FolderError, UsageError
from headwater.finetuning import FineTuned
from headwater.inference import LanguageModel, load
from headwater.model import ModelConfig
from headwater.serve.config import ServeConfig
from headwater.serve.served import Served, Server
from headwater.serve.threads import give_way
from headwater.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
# In the metadata of a model card, between lines of three hyphens at its start.
_LANGUAGE = re.compile(r"\A---\n(?:(?!---\n).*\n)*?language: *\[?[\"']?([a-z]{2,3})\b")
_HANGUL = re.compile("[\uac00-\ud7a3]")
# More continuations at a time add little throughput.
_MOST_SLOTS = 32
_REQUESTS_CHECKED_EVERY = 0.25  # seconds, for a model that was replaced


def open_models(config: ServeConfig) -> list[Served]:
    """Open the models of a server.

    Raises what `load` raises, and UsageError for two models of the same name or slots that do not fit the memory.
    """
    named: dict[str, str] = {}
    for model in config.models:
        name, source = shipped.split_name(model)
        if name is None:  # the folder's, or that of the run whose model it is; a hub name as it is
            path = Path(os.path.abspath(model))  # noqa: PTH100, `resolve` would follow a link
            name = shipped.name_of(path) if path.exists() else model
        if not name or not source:
            raise UsageError(f"--model {model!r} has no name or no folder", expected="FOLDER or NAME=FOLDER")
        if name in named:
            raise UsageError(
                f"two models would be called {name!r}: {named[name]} and {source}",
                repair=f"Name one: --model {shlex.quote(f'other={source}')}",
            )
        named[name] = source
    models = [_open(name, source, config) for name, source in named.items()]
    memory = available_memory(choose_device(config.device, training=False)) // len(models)
    for served in models:
        if served.lm.config.is_causal:
            fitting = max(1, memory // _slot_bytes(served.lm.config))
            if config.max_concurrency is None:
                served.lm.slots = automatic_slots(served.lm.config, memory)
            elif config.max_concurrency > fitting:
                wanted = counted(config.max_concurrency, "continuation")
                raise UsageError(
                    f"{wanted} of {served.name} at a time need more memory than is free",
                    expected=f"at most {fitting:,}",
                    repair="Give a lower --max-concurrency",
                )
        served.allocate()
    return models


def automatic_slots(config: ModelConfig, memory: int) -> int:
    """Return how many continuations to run at a time: 32, or as many as fit an eighth of `memory`."""
    return max(1, min(_MOST_SLOTS, memory // 8 // _slot_bytes(config)))


def _slot_bytes(config: ModelConfig) -> int:
    """Return the bytes of a whole context of keys and values in float32; for a recurrent model, an upper bound."""
    states = config.units or config.width
    return 2 * 4 * config.layers * config.context * states


def language_of(folder: Path, tokenizer: Tokenizer) -> str | None:
    """Return the language of a model's text: as its card says, else "ko" for a vocabulary with much Hangul."""
    card = folder / "README.md"
    if card.is_file() and (match := _LANGUAGE.search(card.read_text(encoding="utf-8", errors="replace"))):
        return match[1]
    texts = (tokenizer.token_text(token) for token in range(tokenizer.vocabulary_size))
    korean = sum(_HANGUL.search(text) is not None for text in texts)
    return "ko" if korean > tokenizer.vocabulary_size // 10 else None


def _open(name: str, source: str, config: ServeConfig) -> Served:
    """Open one model."""
    folder = _folder_of(source)
    version = version_of(folder)  # before its files are read
    slots = config.max_concurrency or 1
    if FineTuned.is_in(folder):
        head = FineTuned.load(folder, device=choose_device(config.device, training=False))
        for member in (head.base, *head.members.values()):
            if isinstance(member, Module):
                _copy_weights(member)
        precision = "fp32" if config.precision == "auto" else config.precision
        lm = LanguageModel(head.base, head.tokenizer, precision=precision, slots=slots)
        served = Served(name, lm, head)
    else:
        lm = load(
            folder,
            tokenizer=config.tokenizer,
            precision=config.precision,
            device=config.device,
            slots=slots,
        )
        if lm.config.is_causal:
            _ = lm.network  # which has copies of the weights
        else:
            _copy_weights(lm.model)
        served = Served(name, lm)
    served.language = language_of(folder, served.lm.tokenizer)
    if version_of(folder) != version:
        raise FolderError(f"{folder} was changed while it was opened", repair="Open it when its files are written")
    served.reopen = partial(_open_changed, name, source, config, version)
    return served


def _copy_weights(module: Module) -> None:
    """Copy weights that are mapped from a file, which may be overwritten while they are served."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()


def _open_changed(name: str, source: str, config: ServeConfig, version: object, slots: int) -> Served | None:
    """Return the model of the same source, ready to answer; None if its files have this version."""
    if version_of(_folder_of(source)) == version:
        return None
    new = _open(name, source, config.model_copy(update={"max_concurrency": slots}))
    new.allocate()
    return new


def _folder_of(source: str) -> Path:
    """Return the folder of a model now: links are followed once, so that all files are of one folder."""
    folder = shipped.resolve(Path(source).resolve() if Path(source).exists() else source)
    if folder.is_file():
        raise shipped.not_a_model(folder)
    return folder


def version_of(folder: Path) -> object:
    """Return what changes when a model folder is replaced or written again, also with files of the same times."""
    about = ((file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file())
    return folder, tuple(
        (name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in about
    )


@asynccontextmanager
async def reopened_models(server: Server) -> AsyncIterator[None]:
    """Replace models whose folders have changed when `server.reload` is called in the block."""
    requested = asyncio.Event()
    server.reload = partial(asyncio.get_running_loop().call_soon_threadsafe, requested.set)

    async def run() -> None:
        while True:
            await requested.wait()
            requested.clear()
            for name in list(server.models):
                await _reopen(server, name, opener, tasks)

    with ThreadPoolExecutor(1, thread_name_prefix="opening", initializer=give_way) as opener:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            yield
            running.cancel()


async def _reopen(server: Server, name: str, opener: ThreadPoolExecutor, tasks: asyncio.TaskGroup) -> None:
    """Open a model again if its folder has changed."""
    old = server.models[name]
    try:
        new = await asyncio.get_running_loop().run_in_executor(opener, old.reopen, old.lm.slots)
        if new is not None:
            new.start(server.config.queue)
    except Exception as error:  # too little memory for two models, a folder that is being written
        old.stale = f"{type(error).__name__}: {error}"
        logger.error("%s is not opened again: %s", name, str(error) or old.stale)
        return
    old.stale = ""
    if new is not None:
        server.models[name] = new
        tasks.create_task(_retire(old))
        logger.warning("%s was opened again", name)


async def _retire(old: Served) -> None:
    """Stop a model after its last request."""
    while old.requests:
        await asyncio.sleep(_REQUESTS_CHECKED_EVERY)
    await asyncio.to_thread(old.stop)  # which waits for a job that runs
