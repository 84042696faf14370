"""The errors that a user can cause and repair.

Each error says what was seen, what was expected and how to repair it, and has the exit status of the command line.
That is 2 (`UsageError`) if the command line, a recipe or a key is wrong, and 1 if a file, a folder, the data or
the machine is.
The command line also shows a failure of the operating system (OSError) in one line. Any other exception is a bug
in Headwater and shows its traceback.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from headwater.display import printable

# A repair that ends with a command, or options of one: a period after it would be copied with it.
_COMMAND_LAST = re.compile(r"(?:^|: )(?:headwater|pip|hf|rm|tr|iconv|--[a-z]).*$")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean 'x'?` for a misspelt name; empty if no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else ""


def suggest(name: str, known: Iterable[str]) -> dict[str, str]:
    """Return the `repair` of an error about an unknown name, or all known names as `expected` if none is near."""
    names = list(known)
    hint = nearest(name, names)
    return {"repair": hint} if hint else {"expected": ", ".join(names)}


# What parsing raises on malformed data.
MALFORMED = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    csv.Error,
)


class HeadwaterError(Exception):
    """An error that the user can cause and repair.

    `seen` is a full clause naming the file, value or folder; `expected` completes "expected …"; `repair` is a full
    sentence, preferably a command; `param` is the name of the wrong option.
    """

    exit_status = 1

    def __init__(self, seen: str, *, expected: str = "", repair: str = "", param: str | None = None) -> None:
        # Names and values may come from untrusted files.
        seen, expected, repair = printable(seen), printable(expected), printable(repair)
        self.seen, self.expected, self.repair, self.param = seen, expected, repair, param
        text = seen.rstrip(".")
        if expected:
            text += f"; expected {expected.rstrip('.')}"
        text += "."
        if repair:
            text += f" {repair}" if repair.endswith(("?", ".")) or _COMMAND_LAST.search(repair) else f" {repair}."
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), expected=self.expected, repair=self.repair, param=self.param), (self.seen,)


class UsageError(HeadwaterError, ValueError):
    """A wrong option, value or configuration key; a ValueError too, as scikit-learn expects."""

    exit_status = 2


class ContextError(UsageError):
    """A text, with the tokens to generate, that is longer than the model's context."""


class DataError(HeadwaterError, ValueError):
    """Text or labelled data that cannot be used as it is; a ValueError too."""


class FolderError(HeadwaterError):
    """A folder that is missing, incomplete, damaged, in use, or of another kind."""


class MismatchError(HeadwaterError):
    """Tokenizer, tokens and model that do not match."""


class ResourceError(HeadwaterError):
    """A file, an optional package or the network is not available."""


class StorageError(HeadwaterError):
    """The disk is full, or a path cannot be written."""


class TrainingError(HeadwaterError):
    """Training that cannot continue: the loss is not finite, or a rank died."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that the same command can resume."""


@contextmanager
def require_extra(name: str, feature: str, more: str = "") -> Iterator[None]:
    """Turn an ImportError in the block into ResourceError: `feature` needs a package of the extra `name`.

    more: the end of the repair: a further package, or what to do without the extra.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise ResourceError(
            f"{feature} needs the package {package}", repair=f"pip install 'headwater[{name}]'{more}"
        ) from None


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C in the block into Interrupted, for work that can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
