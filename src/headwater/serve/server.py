"""Bind the port, open the models, serve, and stop: what `headwater serve` calls."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.errors import ResourceError, UsageError, require_extra
from headwater.serve.config import ServeConfig
from headwater.serve.keys import Keys
from headwater.storage import SILENT, Progress

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from headwater.serve.served import Server

# Connections at a time, and open files that are not connections.
_MOST_CONNECTIONS, _OTHER_FILES = 10_000, 128


def serve(
    config: ServeConfig,
    *,
    progress: Progress = SILENT,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve models until SIGINT or SIGTERM; then finish the open requests.

    SIGHUP opens the models again whose folders have changed, without a lost request. Without keys, it ends a
    server whose terminal was closed.

    ready: called with the address once the models are open.
    Raises ResourceError for a port that is taken, UsageError for an address beyond loopback without keys.
    """
    keys = None if config.api_key_file is None else Keys(config.api_key_file)
    if keys is None and not config.is_local:
        raise UsageError(
            f"{config.host or 'an empty --host'} can be reached from other machines, and there are no API keys",
            repair="Give --api-key-file FILE, with one key a line, or omit --host",
        )
    with _bound(config.host, config.port) as listening, ThreadPoolExecutor(1) as opener:
        progress.start("serving")
        with require_extra("serve", "serving"):
            from headwater.serve.opening import open_models

            opening = opener.submit(open_models, config)
            # This import takes as long as opening a small model, so both run at the same time.
            import uvicorn

            from headwater.serve.api import create_app
        app = create_app(opening.result(), config, keys)
        del opening  # a model that is replaced is freed: nothing else refers to the first ones
        state = app.state.server
        server = uvicorn.Server(_uvicorn_config(app, config))
        shown = f"[{config.host}]" if ":" in config.host else config.host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        with _handled_signals(server, state, needs_terminal=keys is None), logged(config.log):
            progress.finish(f"{', '.join(state.models)} at {address}")
            ready(address)
            server.run(sockets=[listening])


def _uvicorn_config(app: ASGIApp, config: ServeConfig) -> uvicorn.Config:
    """Return uvicorn's configuration: the limits, and errors as its only output."""
    import uvicorn

    from headwater.serve.guard import Connection, Connections, bounded

    return uvicorn.Config(
        bounded(app, config),
        http=partial(Connection, Connections(config, _most_connections())),  # type: ignore[arg-type]
        log_level="critical",  # `Guard` logs what fails; a line for each stray request would fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(2 * config.seconds) + 1,  # to compute an answer and to send it
        ws="none",
    )


@contextmanager
def _handled_signals(server: uvicorn.Server, state: Server, *, needs_terminal: bool) -> Iterator[None]:
    """Handle signals in the block: SIGINT and SIGTERM stop the server, SIGHUP opens changed models again.

    needs_terminal: SIGHUP stops a server whose terminal was closed, unless it was ignored, as nohup does. uvicorn
    handles the others while it runs, and raises the one that stopped it again when it has finished; stopping as
    told is not a failure.
    """
    hangup = None if sys.platform == "win32" else signal.SIGHUP
    ends_with_terminal = (
        needs_terminal and _has_terminal() and hangup and signal.getsignal(hangup) != signal.SIG_IGN
    )

    def stop(*_: object) -> None:
        server.should_exit = True

    def reload(*_: object) -> None:
        if ends_with_terminal and not _has_terminal():
            stop()
        else:
            state.reload()

    handlers: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM), stop)
    if hangup is not None:
        handlers[hangup] = reload
    if threading.current_thread() is not threading.main_thread():
        handlers = {}  # the program's main thread handles signals
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def logged(requests_too: bool) -> Iterator[None]:
    """Print a line for each request in the block, if asked to."""
    from headwater.serve.guard import requests

    handler, level = logging.StreamHandler(), requests.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    if requests_too:
        requests.addHandler(handler)
        requests.setLevel(logging.INFO)
    try:
        yield
    finally:
        requests.removeHandler(handler)
        requests.setLevel(level)


def _has_terminal() -> bool:
    """Return whether the process has a controlling terminal, which is lost when its window is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except (OSError, AttributeError):  # Windows has no such flag
        return False
    return True


def _most_connections() -> int:
    """Return how many connections fit the process's limit of open files, with some left for models and keys."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_CONNECTIONS, max(files - _OTHER_FILES, files // 2, 1))


def _bound(host: str, port: int) -> socket.socket:
    """Return a listening socket, bound before any model is loaded."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long part between two dots
        raise UsageError(f"the address {host} cannot be used: {error}", repair="Give another --host") from None
    try:
        is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=1_024, dualstack_ipv6=is_dual)
    except OSError as error:
        raise ResourceError(
            f"{host} port {port} cannot be bound: {os.strerror(error.errno or 0)}",
            repair=f"Stop the program that listens there, or choose another: --port {port % 65_535 + 1}",
        ) from None
