"""Rows that a fine-tuned model, or a model that it was fine-tuned from, was trained or validated on.

They are kept as 64-bit hashes of their texts in composed form, so that a later training of the same model can keep
the split: a validation row that the weights were trained on makes metrics too good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.display import counted
from headwater.errors import FolderError
from headwater.finetuning.rows.row import Raw
from headwater.reading import compose
from headwater.storage import has_manifest, read_manifest

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
            with np.load(path, allow_pickle=False) as arrays:
                return cls(*(frozenset(arrays[part].tolist()) for part in cls._fields))
        except (OSError, KeyError, ValueError, EOFError) as error:
            raise FolderError(f"{path} is damaged: {error}", repair="Make the folder again") from None

    @classmethod
    def of_base(cls, base: Any) -> Self | None:
        """Return the rows of a base's own fine-tuning, if it is a folder that records them."""
        return cls.load(shipped.find(base)) if isinstance(base, str | Path) else None

    def save(self, folder: Path) -> None:
        """Write SEEN_FILE into a folder."""
        parts = {name: np.array(sorted(hashes), dtype=np.uint64) for name, hashes in self._asdict().items()}
        with (folder / SEEN_FILE).open("wb") as handle:
            np.savez(handle, train=parts["train"], validation=parts["validation"])

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
        old = len(train) - int(self.new_rows(train).sum())
        again = sum(row_hash(row) in self.train for row in validation)
        notes = []
        if old:
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
