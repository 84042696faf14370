"""Answers of a model, stored on disk as they are computed, so that an interrupted evaluation resumes.

The key of an answer is the model's identity, the precision and the request: no answer is reused for another model
or another text. The file is next to the results folder and is deleted when that is complete. One process has it
at a time. A damaged file is deleted, and its answers are computed again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from headwater.errors import StorageError
from headwater.evaluation.protocols import Answer, Generated, Scored, TaskRequest
from headwater.evaluation.request_encoder import ContinuationRequest

_DIGITS = 16  # of the hash before an answer
_VERSION = 1  # of how requests are answered; answers of another version are not used


class AnswerFile:
    """Answers by request in one SQLite file; used as a context manager."""

    def __init__(
        self, path: Path, model_identity: str, precision: str, note: Callable[[str], None] = print
    ) -> None:
        self.path, self._note = path, note
        self._prefix = f"{_VERSION}\n{model_identity}\n{precision}\n"

    def __enter__(self) -> Self:
        try:
            try:
                self._database = _connect(self.path)
            except sqlite3.OperationalError:  # in use, or not a file
                raise
            except sqlite3.DatabaseError:
                self.path.unlink()
                self._note("Warning: the saved answers are damaged and are computed again")
                self._database = _connect(self.path)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"{self.path} cannot be opened: {error}",
                expected="a file that no other evaluation is writing",
                repair="Wait for that evaluation, or choose another --out",
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def look_up(self, requests: Sequence[TaskRequest]) -> dict[TaskRequest, Answer]:
        """Return the stored answers."""
        answers: dict[TaskRequest, Answer] = {}
        for request in requests:
            query = "SELECT answer FROM answers WHERE request = ?"
            row = self._database.execute(query, (self._key(request),)).fetchone()
            # An altered answer is computed again.
            if row is not None and row[0].startswith(_digest(row[0][_DIGITS:])):
                answers[request] = _decode(request, row[0][_DIGITS:])
        return answers

    def keep(self, answers: Mapping[TaskRequest, Answer]) -> None:
        """Write answers to disk."""
        texts = {request: json.dumps(answer) for request, answer in answers.items()}
        rows = [(self._key(request), _digest(text) + text) for request, text in texts.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be written: {error}", repair="Free some space") from None

    def remove(self) -> None:
        """Delete the file, when every answer is in the results folder."""
        self._database.close()
        # A process that was killed while it closed the file left its journal, which SQLite ignores.
        for name in (f"{self.path.name}-journal", self.path.name):
            self.path.with_name(name).unlink(missing_ok=True)

    def _key(self, request: TaskRequest) -> bytes:
        content = json.dumps([type(request).__name__, *request])
        return hashlib.sha256((self._prefix + content).encode()).digest()


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=1.0)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")  # until it is closed, or the process ends
        database.execute("BEGIN EXCLUSIVE")
        database.commit()
        if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it was altered")
        database.execute(
            "CREATE TABLE IF NOT EXISTS answers (request BLOB PRIMARY KEY, answer TEXT) WITHOUT ROWID"
        )
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _decode(request: TaskRequest, text: str) -> Answer:
    content = json.loads(text)
    if isinstance(request, ContinuationRequest):
        return Scored(*map(tuple, content))
    return Generated(content[0], *map(tuple, content[1:]))
