"""The errors a user can meet, on one page.

Every one says what was seen, what was expected and what repairs it, and carries the exit status of the
command line. Anything else that escapes is a fault of Headwater and shows its traceback.

    HeadwaterError            exit status 1
    ├── UsageError            exit status 2: a wrong option, value or configuration key
    │   └── ContextError      a text that is longer than the model's context
    ├── DataError             text or labelled data that cannot be used
    ├── FolderError           a folder that is missing, incomplete, damaged, or holds something else
    ├── MismatchError         tokenizer, tokens and model that do not belong together
    ├── ResourceError         a named file, an optional package or the network that is not there
    ├── StorageError          no space left, not writable
    └── TrainingError         training that cannot go on: NaN, a stall, a rank that died
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Control characters, and those that reorder or hide text on a terminal. Tab and newline are among them.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    """Escape control characters, so that a terminal shows text from a file and obeys none of it.

    Characters of `keep` stay as they are.
    """
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else ascii(m[0])[1:-1], text)


class HeadwaterError(Exception):
    """What a user can cause and repair.

    `seen` is a full clause naming the file, value or folder; `expected` completes "expected …"; `repair`
    is a full sentence, best a command; `param` names the option that is wrong, for callers who offer it.
    """

    exit_status = 1

    def __init__(self, seen: str, *, expected: str = "", repair: str = "", param: str | None = None) -> None:
        # Names and values come from files, which may be a stranger's.
        seen, expected, repair = printable(seen), printable(expected), printable(repair)
        self.seen, self.expected, self.repair, self.param = seen, expected, repair, param
        text = seen.rstrip(".")
        if expected:
            text += f"; expected {expected.rstrip('.')}"
        text += "."
        if repair:
            text += f" {repair}" if repair.endswith(("?", ".")) else f" {repair}."
        super().__init__(text)


class UsageError(HeadwaterError):
    """A wrong option, value or configuration key."""

    exit_status = 2


class ContextError(UsageError):
    """A text, or a text and what is to follow it, that is longer than the model's context."""


class DataError(HeadwaterError):
    """Text or labelled data that cannot be used as it is."""


class FolderError(HeadwaterError):
    """A folder that is missing, incomplete, damaged, in use, or holds something else."""


class MismatchError(HeadwaterError):
    """Tokenizer, tokens and model that do not belong together."""


class ResourceError(HeadwaterError):
    """A named file, an optional package or the network is not there."""


class StorageError(HeadwaterError):
    """The disk is full, or a place cannot be written."""


class TrainingError(HeadwaterError):
    """Training that cannot go on."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that the same command, run again, resumes."""


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C in the block into Interrupted: what the block has completed is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
