"""Delay Ctrl-C and SIGTERM until an update is complete and its checkpoint written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed_interruption() -> Iterator[list[int]]:
    """Within the block, only append the first SIGINT or SIGTERM to the list; a second raises KeyboardInterrupt."""
    signals: list[int] = []  # not an Event: a signal during `Event.set` would wait forever for its lock
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def request(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
