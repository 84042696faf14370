"""A row of a labelled table: its texts, its label and the name of that class; and rows that a model has seen.

Rows that a fine-tuned model, or the model that it began with, was trained or validated on are kept as 64-bit
hashes of their composed texts, so that a later training can keep the split: a validation row that the weights were
trained on makes metrics too good.
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.display import counted
from headwater.errors import MALFORMED, DataError, FolderError
from headwater.reading import compose, parse_json
from headwater.storage import has_manifest, read_manifest

TaskName = Literal["classify", "entail", "similarity", "choice"]
Target = Literal["class", "labels", "score", "answer"]
# A label as a table has it; a tuple has the names of several.
Label: TypeAlias = str | int | float | tuple[str, ...] | None
MetricName = Literal["accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]
POOLED_RECIPES = ("probe", "lp-ft")  # whose head reads one vector of each text
POOLING = "pooling"  # the task model of a frozen base that has no weights
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")


@dataclass(frozen=True, slots=True)
class Raw:
    """One row with its label as in the file; `columns` is the whole row of the table, if that is kept."""

    segments: tuple[str, ...]
    label: Label = None
    row: int = 0
    columns: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def composed(self) -> Raw:
        """Return the row with its texts and label in Unicode's composed form, NFC."""
        label = self.label
        if isinstance(label, str | tuple):
            label = compose(label) if isinstance(label, str) else tuple(map(compose, label))
        return replace(self, segments=tuple(map(compose, self.segments)), label=label)

    def is_empty(self, task: TaskName) -> bool:
        """Return whether the row has no text at all, or only one text of a pair."""
        texts = self.segments[:2] if task == "choice" else self.segments
        missing = [not text.strip() for text in texts]
        return any(missing) if task in {"entail", "similarity"} else all(missing)


def class_name(label: Label) -> str:
    """Return the name of a label's class: 1, 1.0, "1" and "1.0" are all "1"; "01" is unchanged.

    True, which CSV has as "True" or "TRUE", is "true".
    """
    name = _WHOLE.sub(r"\1", str(label))
    return name.lower() if name.lower() in {"true", "false"} else name


def listed_labels(values: Any) -> tuple[str, ...] | None:
    """Return the names in a list of labels, without missing ones; None if it is not such a list."""
    if not isinstance(values, list | tuple):
        return None
    if not all(isinstance(one, str | int | float | None) for one in values):
        return None
    return tuple(class_name(one) for one in values if one is not None and one == one)


def parsed_list(text: str) -> Any:
    """Return the list that a cell has, as JSON or as Python writes it; raise DataError if it is neither."""
    with suppress(json.JSONDecodeError):
        return parse_json(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise DataError("not a list") from None


def label_set(label: Label) -> tuple[str, ...]:
    """Return the names of the labels of a row that may have several; the text of a list is read as that list."""
    if isinstance(label, str) and label.startswith("[") and label.endswith("]"):
        with suppress(DataError):
            names = listed_labels(parsed_list(label))
            label = label if names is None else names
    return tuple(dict.fromkeys(map(class_name, label if isinstance(label, tuple) else (label,))))


@dataclass(frozen=True)
class Usable:
    """Rows to learn from, and the number of rows skipped because they have no text or no label."""

    rows: list[Raw]
    empty: int = 0
    unlabelled: int = 0


def usable(rows: Iterable[Raw], task: TaskName, name: str) -> Usable:
    """Skip rows without text or label; raise DataError if none is left."""
    kept, empty, unlabelled = [], 0, 0
    for row in rows:
        if row.is_empty(task):
            empty += 1
        elif row.label is None:
            unlabelled += 1
        else:
            kept.append(row)
    if not kept:
        why = f": {empty:,} without text, {unlabelled:,} without a label" if empty or unlabelled else ""
        raise DataError(
            f"{name} has no {'usable ' * bool(why)}row{why}",
            expected="rows with a text and a label",
        )
    return Usable(kept, empty, unlabelled)


SEEN_FILE = "seen-rows.npz"


class Seen(NamedTuple):
    """Hashes of rows, see `row_hash`; a row of both kinds is in `train`."""

    train: frozenset[int] = frozenset()
    validation: frozenset[int] = frozenset()

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Return the rows that a folder records; None for a folder of an earlier version."""
        path = folder / SEEN_FILE
        if not path.is_file():
            return None
        try:
            with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
                return cls(*(frozenset(arrays[part].tolist()) for part in cls._fields))
        except (*MALFORMED, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise FolderError(f"{path} is damaged: {error}", repair="Make the folder again") from None

    def save(self, folder: Path) -> None:
        """Write SEEN_FILE into a folder."""
        arrays = {name: np.array(sorted(hashes), dtype=np.uint64) for name, hashes in self._asdict().items()}
        with (folder / SEEN_FILE).open("wb") as handle:
            np.savez(handle, train=arrays["train"], validation=arrays["validation"])

    def extended(self, train: Iterable[Raw], validation: Iterable[Raw]) -> Seen:
        """Return this with the rows of a further training."""
        trained = self.train | {row_hash(row) for row in train}
        return Seen(trained, (self.validation | {row_hash(row) for row in validation}) - trained)

    def new_rows(self, rows: Sequence[Raw]) -> npt.NDArray[np.bool_]:
        """Return (rows,): whether each is in neither part."""
        known = self.train | self.validation
        return np.array([row_hash(row) not in known for row in rows], dtype=np.bool_)

    def missing(self, rows: Iterable[Raw]) -> int:
        """Return how many rows of both parts are not among these."""
        return len((self.train | self.validation) - {row_hash(row) for row in rows})

    def split_of(self, rows: Sequence[Raw]) -> dict[int, bool]:
        """Return the places of the rows that are in a part, and whether that is validation; see `rows.split`."""
        hashes = [row_hash(row) for row in rows]
        trained = {place: False for place, one in enumerate(hashes) if one in self.train}
        return trained | {place: True for place, one in enumerate(hashes) if one in self.validation}

    def notes(self, base: Path, train: Sequence[Raw], validation: Sequence[Raw]) -> list[str]:
        """Return what to say before a training that starts from the model in `base`."""
        new = int(self.new_rows(train).sum())
        old = len(train) - new
        again = sum(row_hash(row) in self.train for row in validation)
        notes = []
        if old and not new:
            notes.append(f"all {old:,} training rows are known to {base}")
        elif old:
            notes.append(
                f"{old:,} of {counted(len(train), 'training row')} are known to {base}; the others are new"
            )
        if again:
            notes.append(
                f"{again:,} of {counted(len(validation), 'validation row')} were trained on by {base}: metrics on "
                "them are too good"
            )
        return notes


def row_hash(row: Raw) -> int:
    """Return the hash of a row's texts in composed form; the label does not matter."""
    content = "\x1f".join(compose(text) for text in row.segments).encode("utf-8", "replace")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def original_base(folder: Path) -> str | Path | None:
    """Return the model that a folder was fine-tuned from: a shipped model's name or a path; None if unknown."""
    inputs = read_manifest(folder).inputs if has_manifest(folder) else []
    base = next((entry.path_from(folder) for entry in inputs if entry.role in {"base", "model"}), None)
    ships = base is not None and base.name in shipped.names() and base.resolve() == shipped.folder_of(base.name)
    return base.name if base is not None and ships else base
