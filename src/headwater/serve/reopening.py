"""Open models again while they are served, at SIGHUP.

A model is opened again in a thread of its own, up to its packed weights and caches, and takes the old one's place
between two requests. The old one finishes the requests that have begun with it. A model that cannot be opened is
logged, is `stale` in /health and the metrics, and is tried again after pauses that double; until then the old one
answers.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from headwater.serve.served import Served, Server
from headwater.serve.threads import give_way

logger = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0  # seconds between two tries
_REQUESTS_CHECKED_EVERY = 0.25  # seconds, for a model that was replaced


class ModelReopener:
    """Replaces models whose folders have changed when `server.reload` is called, until its block ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._requested = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ModelReopener:
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="opening", initializer=give_way)
        self._server.reload = partial(asyncio.get_running_loop().call_soon_threadsafe, self._requested.set)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [self._task, *self._retiring]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._opener.shutdown(cancel_futures=True)

    async def _run(self) -> None:
        waiting: list[str] = []
        pause = _FIRST_PAUSE
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if waiting else None):
                    await self._requested.wait()
            if self._requested.is_set():
                self._requested.clear()
                waiting, pause = list(self._server.models), _FIRST_PAUSE
            else:
                pause = min(2 * pause, _LONGEST_PAUSE)
            waiting = [name for name in waiting if not await self._reopen(name)]

    async def _reopen(self, name: str) -> bool:
        """Open a model again if its folder has changed. Return whether the newest one is served now."""
        old = self._server.models[name]
        try:
            new = await asyncio.get_running_loop().run_in_executor(self._opener, old.reopen, old.lm.slots)
            if new is not None:
                new.start(self._server.config.queue)
        except Exception as error:  # too little memory for two models, a folder that is being written
            problem = f"{type(error).__name__}: {error}"
            if problem != old.stale:
                logger.error("%s is not opened again, and is tried again: %s", name, str(error) or problem)
            old.stale = problem
            return False
        old.stale = ""
        if new is not None:
            self._server.models[name] = new
            task = asyncio.create_task(_retire(old))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            logger.warning("%s was opened again", name)
        return True


async def _retire(old: Served) -> None:
    """Stop a model after its last request, or when the server stops."""
    try:
        while old.requests:
            await asyncio.sleep(_REQUESTS_CHECKED_EVERY)
    finally:
        await asyncio.to_thread(old.stop)  # which waits for a job that runs
