"""`metrics.jsonl`: one object a line, written as it happens; a resumed run cuts off what it will do again."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import IO, Any

from headwater.storage import parse_json, storage_error, write_text


class Journal:
    """Appends to a run's metrics; a full disk is reported once, and the run goes on."""

    def __init__(self, path: Path, *, resume_step: int) -> None:
        lines = read_journal(path) if path.exists() else []
        kept = [json.dumps(line) + "\n" for line in lines if line["step"] <= resume_step]
        write_text(path, "".join(kept))
        self.path = path
        self._handle: IO[str] = path.open("a", encoding="utf-8")
        self._warned = False

    def write(self, line: dict[str, Any]) -> str | None:
        """Append one line; returns a warning the first time that cannot be done."""
        try:
            self._handle.write(json.dumps(line) + "\n")
            self._handle.flush()
        except OSError as error:
            if not self._warned:
                self._warned = True
                return f"Warning: {storage_error(self.path, error)} The run goes on without its metrics."
        return None

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # the disk is full, as was said
            self._handle.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line that was cut short is left out."""
    lines = []
    for raw in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(parse_json(raw))
        except json.JSONDecodeError:
            break
    return lines
