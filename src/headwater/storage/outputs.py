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
from headwater.storage.files import atomic_write, write_json
from headwater.storage.provenance import MANIFEST, FileRecord, check_manifest
from headwater.storage.stage import Stage


class OutputFile:
    """The file `out`, and the provenance that it is written with."""

    def __init__(self, out: Path, *, kind: str, config: Mapping[str, Any], inputs: Mapping[str, Path]) -> None:
        self.out, self.record = out, out.with_name(f"{out.name}.{MANIFEST}")
        self._stage = Stage(out.parent, kind=kind, config=config, inputs=inputs)

    def require_own(self) -> None:
        """Raise FolderError if `out` exists and is not what this object would write."""
        if not self.out.exists():
            return
        repair = f"Choose another --out, or remove the file first: rm {shlex.quote(str(self.out))}"
        if not self.record.exists():
            raise FolderError(f"{self.out} exists, and Headwater did not write it", repair=repair)
        manifest = check_manifest(read_json(self.record), str(self.record))
        if difference := self._stage.difference(manifest):
            raise FolderError(f"{self.out} exists already: {difference}", repair=repair)
        written = manifest.files.get(self.out.name)
        if manifest.complete and (written is None or sha256_of(self.out) != written.sha256):
            raise FolderError(f"{self.out} was altered after it was written", repair=repair)

    @contextmanager
    def write(self) -> Iterator[IO[bytes]]:
        """Open the file for writing; it appears, complete, at the end of the block, and then its provenance."""
        self.require_own()
        write_json(self.record, self._stage.manifest({}, complete=False).to_dict())
        with atomic_write(self.out) as handle:
            yield handle
        files = {self.out.name: FileRecord(bytes=self.out.stat().st_size, sha256=sha256_of(self.out))}
        write_json(self.record, self._stage.manifest(files, complete=True).to_dict())
