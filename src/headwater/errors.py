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

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# Control characters, and those that reorder or hide text on a terminal. Tab and newline are among them.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    """Escape control characters, so that a terminal shows text from a file and obeys none of it.

    Characters of `keep` stay as they are.
    """
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else ascii(m[0])[1:-1], text)


def counted(number: int, what: str) -> str:
    """`1 token`, `12,000 tokens`: a number and what is counted."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """`0.4 s`, `38 s`, `3 min 05 s`, `2 h 10 min`; a dash where it is no number."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that helps with a misspelt name: the nearest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


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
