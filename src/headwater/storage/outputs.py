"""One file that a command writes, such as predictions, with its provenance in `NAME.headwater.json` next to it.

The rule of folders holds for files too: what exists is replaced only if the same command made it from the same
inputs, and nothing has changed it since.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from headwater.errors import FolderError
from headwater.reading import read_json, sha256_of
from headwater.storage.files import atomic_path, storage_errors, write_json
from headwater.storage.provenance import MANIFEST, FileRecord, check_manifest
from headwater.storage.stage import Stage


class OutputFile:
    """The file `out`, and the provenance that it is written with."""

    def __init__(self, out: Path, *, kind: str, config: Mapping[str, Any], inputs: Mapping[str, Path]) -> None:
        self.out, self.record = out, out.with_name(f"{out.name}.{MANIFEST}")
        self._stage = Stage(out.parent, kind=kind, config=config, inputs=inputs)

    def require_own(self) -> dict[str, FileRecord]:
        """Raise FolderError if `out` exists and is not what this object wrote; return the record of what it wrote.

        While a file is written, the record has the file before it and the new one: either may be there.
        """
        if not self.record.exists():
            if self.out.exists():
                raise self._refusal(f"{self.out} exists, and Headwater did not write it")
            return {}
        manifest = check_manifest(read_json(self.record), str(self.record))
        if not self.out.exists():
            return {}
        if difference := self._stage.difference(manifest):
            raise self._refusal(f"{self.out} exists already: {difference}")
        found = sha256_of(self.out)
        for record in manifest.files.values():
            if record.sha256 == found:
                return {self.out.name: record}
        raise self._refusal(f"{self.out} was altered after it was written")

    def _refusal(self, seen: str) -> FolderError:
        return FolderError(
            seen, repair=f"Choose another --out, or remove the file first: rm {shlex.quote(str(self.out))}"
        )

    @contextmanager
    def write(self) -> Iterator[IO[bytes]]:
        """Open the file for writing; it appears, complete, at the end of the block, and then its provenance.

        A missing folder is made.
        """
        before = self.require_own()
        with storage_errors(self.out.parent):
            self.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.record, self._stage.manifest(before, complete=False).to_dict())
        with atomic_path(self.out) as made:
            with made.open("wb") as handle:
                yield handle
            new = FileRecord(bytes=made.stat().st_size, sha256=sha256_of(made))
            either = before | {f"{self.out.name}.new": new}
            write_json(self.record, self._stage.manifest(either, complete=False).to_dict())
        write_json(self.record, self._stage.manifest({self.out.name: new}, complete=True).to_dict())
