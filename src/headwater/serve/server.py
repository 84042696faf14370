"""Bind, load, serve, and stop in order: what `headwater serve` calls."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headwater.errors import ResourceError, UsageError
from headwater.serve.limits import Keys, Limits, is_loopback
from headwater.storage.progress import SILENT, Progress

# How long the event loop may keep the interpreter while the engine's thread waits for it: a step is not to begin
# late because sixteen answers are being written.
_SWITCH_SECONDS = 0.00005


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
    log: bool = False,
    limits: Limits | None = None,
    progress: Progress = SILENT,
) -> None:
    """Serve models until SIGINT or SIGTERM, then finish what runs.

    models: `FOLDER` or `NAME=FOLDER`; tokenizer: for folders without one;
    max_concurrency: continuations of one model at once (None: by its size and the memory); port 0 is a free one;
    log: print a line for each request on stderr.
    Raises UsageError for an address that is taken, or beyond loopback without keys.
    """
    limits = limits or Limits()
    keys = None if api_key_file is None else Keys.read(api_key_file)
    if keys is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and there are no API keys",
            repair="Give --api-key-file FILE, with one key a line, or leave --host out",
        )
    with _bound(host, port) as listening, ThreadPoolExecutor(1) as beside:
        progress.start("serving")
        try:
            from headwater.serve.served import open_models

            opening = beside.submit(
                open_models, models, tokenizer=tokenizer, precision=precision, device=device, slots=max_concurrency
            )
            # Meanwhile: it takes as long as opening a small model.
            import uvicorn
            from uvicorn.protocols.http.auto import AutoHTTPProtocol

            from headwater.serve.api import create_app
            from headwater.serve.connection import bounded
        except ImportError as error:
            raise ResourceError(
                f"serving needs the package {error.name}", repair="pip install 'headwater[serve]'"
            ) from None
        opened = opening.result()
        app = create_app(opened, limits, keys, local=is_loopback(host))
        config = uvicorn.Config(
            app,
            log_level="error",  # a warning for each stray request would let anybody fill the log
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(limits.seconds) + 1,
            http=bounded(AutoHTTPProtocol, limits),
            h11_max_incomplete_event_size=limits.header_bytes + (1 << 20),
            ws="none",
        )
        # A second Ctrl-C cancels what runs, and uvicorn logs a traceback for each request.
        logging.getLogger("uvicorn.error").addFilter(_is_not_cancelled)
        if log:
            _log_requests()
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        progress.finish(f"{', '.join(served.name for served in opened)} at {address}")
        sys.setswitchinterval(_SWITCH_SECONDS)
        # A full collection would visit every object of the imported packages, while every request waits.
        gc.collect()
        gc.freeze()
        server = uvicorn.Server(config)

        # A signal before uvicorn listens for them stops it too. The one that stopped it is raised once more when
        # it is done: a server that was told to stop, and did, has not failed.
        def stop(*_: object) -> None:
            server.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            server.run(sockets=[listening])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _log_requests() -> None:
    from headwater.serve.guard import requests

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    requests.addHandler(handler)
    requests.setLevel(logging.INFO)


def _is_not_cancelled(record: logging.LogRecord) -> bool:
    """A logging filter without the requests that the end of the server cancelled."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "CancelledError" not in record.getMessage()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens; taken before anything is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"the address {host} cannot be used: {error}", repair="Give another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1_024)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{host} port {port} cannot be bound: {error.strerror}",
            repair=f"Stop what listens there, or choose another: --port {port % 65_535 + 1}",
        ) from None
    return listening
