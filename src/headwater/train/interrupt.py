"""Delay Ctrl-C and SIGTERM until an update is complete and its checkpoint written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed_interruption() -> Iterator[threading.Event]:
    """Within the block the first SIGINT or SIGTERM only sets the event; a second raises KeyboardInterrupt."""
    interruption = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def request(number: int, frame: FrameType | None) -> None:
        if interruption.is_set():
            raise KeyboardInterrupt
        interruption.set()

    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
