"""Open models again while they are served, at SIGHUP.

A model is opened again in a thread of its own, up to its packed weights and caches, and takes the old one's place
between two requests. The old one finishes the requests that have begun with it. A model that cannot be opened is
logged, and is `stale` in /health and the metrics until a later SIGHUP opens it; the old one answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from headwater.serve.served import Served, Server
from headwater.serve.threads import give_way

logger = logging.getLogger(__name__)
_REQUESTS_CHECKED_EVERY = 0.25  # seconds, for a model that was replaced


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
