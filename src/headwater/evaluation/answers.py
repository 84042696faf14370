"""Answers of a model, stored on disk as they are computed, so that an interrupted evaluation resumes.

The key of an answer is the model's identity, the precision and the request: no answer is reused for another model
or another text. The file is next to the results folder and is deleted when that is complete. It has a line of JSON
for each answer, with a checksum: a line that was cut short or altered is ignored, and its answer computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from headwater.evaluation.protocols import Answer, Generated, Scored, TaskRequest
from headwater.evaluation.request_encoder import ContinuationRequest
from headwater.storage import storage_errors

_VERSION = 1  # of how requests are answered; answers of another version are not used


class AnswerFile:
    """Answers by request in one file of JSON Lines; used as a context manager."""

    def __init__(self, path: Path, model_identity: str, precision: str) -> None:
        self.path = path
        self._prefix = f"{_VERSION}\n{model_identity}\n{precision}\n"
        self._offsets: dict[str, int] = {}  # of the line with each key

    def __enter__(self) -> Self:
        with storage_errors(self.path):
            self._file = self.path.open("a+b")
            self._file.seek(0)
            offset, line = 0, b"\n"
            for line in self._file:
                key, _ = _parse(line)
                self._offsets[key] = offset
                offset += len(line)
            if not line.endswith(b"\n"):  # the process was killed while it wrote
                self._append(b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def look_up(self, requests: Sequence[TaskRequest]) -> dict[TaskRequest, Answer]:
        """Return the stored answers."""
        answers: dict[TaskRequest, Answer] = {}
        for request in requests:
            key = self._key(request)
            if key in self._offsets:
                self._file.seek(self._offsets[key])
                stored, content = _parse(self._file.readline())
                if stored == key:
                    answers[request] = _decode(request, content)
        return answers

    def add(self, answers: Mapping[TaskRequest, Answer]) -> None:
        """Write answers to disk."""
        with storage_errors(self.path):
            for request, answer in answers.items():
                key = self._key(request)
                line = (
                    json.dumps({"request": key, "check": _check(key, answer), "answer": answer}).encode() + b"\n"
                )
                self._offsets[key] = self._append(line)
            self._file.flush()

    def remove(self) -> None:
        """Delete the file, when every answer is in the results folder."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _append(self, line: bytes) -> int:
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(line)
        return offset

    def _key(self, request: TaskRequest) -> str:
        content = json.dumps([type(request).__name__, *request])
        return hashlib.sha256((self._prefix + content).encode()).hexdigest()


def _parse(line: bytes) -> tuple[str, Any]:
    """Return the key and the content of an answer; the key of a damaged line is empty."""
    try:
        stored = json.loads(line)
        if stored["check"] == _check(stored["request"], stored["answer"]):
            return stored["request"], stored["answer"]
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return "", None


def _check(key: str, answer: Any) -> str:
    return hashlib.sha256(f"{key}\n{json.dumps(answer)}".encode()).hexdigest()[:16]


def _decode(request: TaskRequest, content: Any) -> Answer:
    if isinstance(request, ContinuationRequest):
        return Scored(*map(tuple, content))
    return Generated(content[0], *map(tuple, content[1:]))
