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


_UNNAMED = "unnamed"


class Keys:
    """The API keys in a file, stored as hashes; the file is read again for each request.

    A line is a key, or a name and a key with a space in between. Empty lines and lines that begin with # are
    skipped. Raises FolderError, DataError or OSError for a file that cannot be read or lacks a key, or has a line
    that cannot be a key: of more than two words, or with a character beyond ASCII.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FolderError(f"{path} is not a file", expected="a file with one API key per line")
        text = read_text(path)
        self._path, self._read = path, _digest(text)
        self._names, wrong = _names(text)
        if wrong:
            raise DataError(
                f"{path} has {counted(wrong, 'line')} that cannot be a key", expected="KEY or NAME KEY"
            )
        if not self._names:
            raise DataError(f"{path} has no key", expected="one API key per line")

    def name_of(self, headers: Mapping[bytes, str]) -> str | None:
        """Return the name of the key in `Authorization: Bearer KEY` or `X-Api-Key: KEY`; None for any other key.

        Every key is compared, in constant time.
        """
        self._refresh()
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get(b"x-api-key", "")
        digest = _digest(key.strip())
        equal = [name for known, name in self._names.items() if hmac.compare_digest(digest, known)]
        return next(iter(equal), None)

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
        self._names, wrong = _names(text)
        if wrong:
            problem = f"{self._path} has {counted(wrong, 'line')} that cannot be a key; its keys are accepted"
        if problem:
            logger.error(problem)


def _names(text: str) -> tuple[dict[bytes, str], int]:
    """Return the names of the keys in a text by their hashes, and how many lines cannot be a key."""
    lines = [line.strip() for line in text.splitlines()]
    words = [line.split() for line in lines if line and not line.startswith("#")]
    good = [line for line in words if len(line) <= 2 and all(word.isascii() for word in line)]
    names = {_digest(line[-1]): line[0] if len(line) == 2 else _UNNAMED for line in good}
    return names, len(words) - len(good)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
