"""`metrics.jsonl`: one object a line, written as it happens; a resumed run cuts off what it will do again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import IO, Any

from headwater.storage.files import parse_json, storage_error, write_text


class Journal:
    """Appends to a run's metrics; what a full disk refuses is reported once, kept, and tried again each time."""

    def __init__(self, path: Path, *, resume_step: int) -> None:
        lines = read_journal(path) if path.exists() else []
        kept = "".join(json.dumps(line) + "\n" for line in lines if line["step"] <= resume_step)
        write_text(path, kept)
        self.path = path
        self._handle: IO[bytes] = path.open("ab", buffering=0)
        self._end = len(kept.encode())  # of the last whole line in the file
        self._pending = b""
        self._warned = False

    def write(self, line: dict[str, Any]) -> str | None:
        """Append one line; returns a warning the first time that cannot be done."""
        self._pending += json.dumps(line).encode() + b"\n"
        try:
            self._flush()
        except OSError as error:
            if not self._warned:
                self._warned = True
                return f"Warning: {storage_error(self.path, error)} The run goes on, its metrics wait."
        return None

    def sync(self) -> None:
        """Make the lines written so far survive a power cut."""
        with contextlib.suppress(OSError):  # a full disk was reported by `write`
            os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Write what waits, where there is room by now, and close the file."""
        with contextlib.suppress(OSError):  # the disk is full, as was said
            self._flush()
        self._handle.close()

    def _flush(self) -> None:
        try:
            written = self._handle.write(self._pending)
        except OSError:
            written = 0
            raise
        finally:
            if written < len(self._pending):  # no half line stays
                os.truncate(self.path, self._end)
        if written < len(self._pending):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += written
        self._pending = b""


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; one that was cut short or altered is left out."""
    lines = []
    for raw in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = parse_json(raw)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines
