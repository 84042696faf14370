"""Bind the port, open the models, serve, and stop: what `headwater serve` calls."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import UsageError, require_extra
from headwater.serve.guard import is_loopback
from headwater.serve.limits import Keys, Limits
from headwater.storage import SILENT, Progress

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null")


def serve(
    models: list[str],
    *,
    tokenizer: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key_file: Path | None = None,
    max_concurrency: int | None = None,
    precision: str = "auto",
    device: str = "auto",
    compose: bool = True,
    log: bool = False,
    allow_origins: Sequence[str] = (),
    limits: Limits | None = None,
    progress: Progress = SILENT,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve models until SIGINT, SIGTERM or, without keys, SIGHUP; then finish the open requests.

    models: `FOLDER` or `NAME=FOLDER`; tokenizer: for folders without one;
    compose: whether texts are read in Unicode's composed form; a fine-tuned model's rows are as in its training;
    api_key_file: read again when it changes; SIGHUP then does not end the server;
    max_concurrency: continuations of one model at once (None: by its size and the memory); port 0 is a free one;
    log: print a line for each request on stderr; allow_origins: of sites whose pages may use the server, as
    "https://example.org", or "*" for all; ready: called with the address once the models are open.
    Raises UsageError for an address that is taken, or beyond loopback without keys.
    """
    limits = limits or Limits()
    keys = None if api_key_file is None else Keys.read(api_key_file)
    if keys is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and there are no API keys",
            repair="Give --api-key-file FILE, with one key a line, or omit --host",
        )
    _check_origins(allow_origins)
    with _bound(host, port) as listening, ThreadPoolExecutor(1) as opener:
        progress.start("serving")
        with require_extra("serve", "serving"):
            from headwater.serve.opening import open_models

            opening = opener.submit(
                open_models,
                models,
                tokenizer=tokenizer,
                precision=precision,
                device=device,
                slots=max_concurrency,
                compose=compose,
            )
            # These imports take as long as opening a small model, so both run at the same time.
            import uvicorn

            from headwater.serve.api import create_app
            from headwater.serve.connection import Connection, bounded
        opened = opening.result()
        app = create_app(opened, limits, keys, local=is_loopback(host), origins=allow_origins)
        config = uvicorn.Config(
            bounded(app, limits),
            log_level="error",  # a warning for each stray request would let anybody fill the log
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(2 * limits.seconds) + 1,  # to compute an answer and to send it
            h11_max_incomplete_event_size=limits.header_bytes + (1 << 20),
            ws="none",
        )
        config.load()
        config.http_protocol_class = partial(Connection, config.http_protocol_class, limits)  # type: ignore[assignment]
        # A second Ctrl-C cancels what runs, and uvicorn logs a traceback for each request.
        logging.getLogger("uvicorn.error").addFilter(_is_not_cancelled)
        if log:
            _log_requests()
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        server = uvicorn.Server(config)

        # Handle signals that come before uvicorn installs its handlers. uvicorn also raises the signal that
        # stopped it again when it has finished; stopping as told is not a failure.
        def stop(*_: object) -> None:
            server.should_exit = True

        handlers: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM), stop)
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            handlers[signal.SIGHUP] = stop if keys is None else lambda *_: None
        if threading.current_thread() is not threading.main_thread():
            handlers = {}  # the program's main thread handles signals
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            progress.finish(f"{', '.join(served.name for served in opened)} at {address}")
            ready(address)
            server.run(sockets=[listening])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_origins(origins: Sequence[str]) -> None:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"{origin!r} is not an origin",
                expected="a scheme, a host and a port if it is not the usual one, as https://example.org:8080",
            )


def _log_requests() -> None:
    from headwater.serve.guard import requests

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    requests.addHandler(handler)
    requests.setLevel(logging.INFO)


def _is_not_cancelled(record: logging.LogRecord) -> bool:
    """Return whether a log record is not about a request that was cancelled at shutdown."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "CancelledError" not in record.getMessage()


def _bound(host: str, port: int) -> socket.socket:
    """Return a listening socket, bound before any model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long part between two dots
        raise UsageError(f"the address {host} cannot be used: {error}", repair="Give another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1_024)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{host} port {port} cannot be bound: {error.strerror}",
            repair=f"Stop the program that listens there, or choose another: --port {port % 65_535 + 1}",
        ) from None
    return listening
