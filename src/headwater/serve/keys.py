"""The API keys of a server."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from headwater.display import counted
from headwater.errors import DataError, FolderError, HeadwaterError
from headwater.reading import read_text

logger = logging.getLogger(__name__)


class Keys:
    """The API keys in a file, one a line, stored as hashes; the file is read again for each request.

    Empty lines and lines that begin with # are skipped. Raises FolderError, DataError or OSError for a file that
    cannot be read or lacks a key, or has one with a space or a character beyond ASCII, which no key has.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FolderError(f"{path} is not a file", expected="a file with one API key per line")
        text = read_text(path)
        self._path, self._read = path, _digest(text)
        self._digests, wrong = _digests(text)
        if wrong:
            raise DataError(f"{path} has a key with a space or a character beyond ASCII")
        if not self._digests:
            raise DataError(f"{path} has no key", expected="one API key per line")

    def accept(self, headers: Mapping[bytes, str]) -> bool:
        """Return whether `Authorization: Bearer KEY` or `X-Api-Key: KEY` has one of the keys, in constant time."""
        self._refresh()
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get(b"x-api-key", "")
        digest = _digest(key.strip())
        equal = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them
        return any(equal)

    def _refresh(self) -> None:
        """Read the file again: only the keys that are in it now are accepted."""
        problem = ""
        try:
            text = read_text(self._path)
        except (HeadwaterError, OSError) as error:
            text, problem = "", f"no API key is accepted until the file can be read: {error}"
        if _digest(text) == self._read:
            return
        self._read = _digest(text)
        self._digests, wrong = _digests(text)
        if wrong:
            problem = f"{self._path} has {counted(wrong, 'line')} that cannot be a key; its keys are accepted"
        if problem:
            logger.error(problem)


def _digests(text: str) -> tuple[list[bytes], int]:
    """Return the hashes of the keys in a text, and how many lines cannot be a key."""
    lines = [line.strip() for line in text.splitlines()]
    given = [line for line in lines if line and not line.startswith("#")]
    keys = [line for line in given if line.isascii() and len(line.split()) == 1]
    return list(map(_digest, keys)), len(given) - len(keys)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
