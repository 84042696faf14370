"""A stage: it reads folders and writes one new folder, aside and renamed, with its manifest.

A stage refuses to write over a folder that holds something else, and finds the one that it would write.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import FolderError
from headwater.storage.files import flush_file, flush_files, flush_folder, new_part, storage_errors, write_json
from headwater.storage.provenance import (
    FORMAT_VERSION,
    FROM_PYTHON,
    MANIFEST,
    FileRecord,
    Input,
    Manifest,
    check_files,
    content_identity,
    describe_input,
    read_manifest,
    record_files,
)

_PACKAGES = ("headwater", "numpy", "pyarrow", "safetensors", "tokenizers", "torch")


class Stage:
    """One stage about to write one folder: is it there already, may it be written, and the writing itself.

    `measured` names keys of the configuration that are only known once the folder is written (counts): the
    stage puts them into `config` before its block ends, and they take no part in the comparison with what is
    there. An input that lies behind a URL comes described. `moves`: the folder will not stay where it is made,
    so that its inputs are named by absolute paths. `grows`: it is begun where it stays, not written aside.
    `defaults`: values of configuration keys, which count where the folder was written before a key existed.
    """

    def __init__(
        self,
        out: Path,
        *,
        kind: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Path | Input],
        seed: int | None = None,
        measured: Sequence[str] = (),
        moves: bool = False,
        grows: bool = False,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.defaults = defaults or {}
        self.out, self.kind, self.seed, self.measured, self.grows = out, kind, seed, measured, grows
        # Through JSON, so that what is compared with a file later is what a file would give back.
        self.config: dict[str, Any] = json.loads(json.dumps(dict(config)))
        base = None if moves else out
        self.inputs = [
            source.model_copy(update={"role": role})
            if isinstance(source, Input)
            else describe_input(role, source, base)
            for role, source in inputs.items()
        ]

    def find(self) -> Manifest | None:
        """The manifest at `out` when it holds what this stage would write, complete or begun; else None.

        Raises FolderError when `out` holds anything else.
        """
        if not self.out.exists():
            return None
        if not self.out.is_dir():
            raise FolderError(f"{self.out} is a file", expected="a folder to write", repair="Choose another --out")
        if not (self.out / MANIFEST).exists():
            if any(self.out.iterdir()):
                raise FolderError(
                    f"{self.out} already holds files that are not Headwater's",
                    expected="a new or empty folder",
                    repair="Choose another --out",
                )
            return None
        manifest = read_manifest(self.out)
        self.compare(manifest, str(self.out))
        return manifest

    def compare(self, manifest: Manifest, where: str) -> None:
        """Raises FolderError unless the folder `where` with this manifest is what this stage would write."""
        difference = self._difference(manifest)
        if difference:
            raise FolderError(
                f"{where} already holds something else: {difference}",
                repair="Choose another --out, or remove that folder first",
            )

    def is_complete(self, *, hashes: bool | None = None) -> bool:
        """Whether the very folder that this stage would write is there, whole and undamaged.

        Raises FolderError when `out` holds anything else, or is nothing that can be replaced by a whole folder.
        """
        manifest = self.find()
        if manifest is None and not self.grows:
            self._replaceable()
        if manifest is None or not manifest.complete:
            return False
        check_files(self.out, manifest, hashes=hashes)
        return True

    @contextmanager
    def write(self) -> Iterator[Path]:
        """Yield a folder to fill; it becomes `out`, with its manifest, when the block ends well."""
        self.find()
        out = self._replaceable()
        with storage_errors(self.out):
            out.parent.mkdir(parents=True, exist_ok=True)
            with new_part(out, folder=True) as work:
                yield work
                files = record_files(work)
                flush_files(work)
                write_json(work / MANIFEST, self.manifest(files, complete=True).to_dict())
                try:
                    if out.exists():
                        out.rmdir()  # empty, as find() saw; a folder filled since then makes this fail
                    work.rename(out)
                except OSError:
                    if not self.is_complete():  # else another process wrote the very same meanwhile
                        raise
                flush_folder(out.parent)

    def _replaceable(self) -> Path:
        """`out`, a link followed: what the written folder is renamed to.

        Raises FolderError now, not when all is written, where an empty folder cannot give way to it.
        """
        out = self.out.resolve() if self.out.is_symlink() else self.out
        if out.exists():
            here = out.samefile(".")
            if here or os.path.ismount(out):
                raise FolderError(
                    f"{self.out} is {'the present folder' if here else 'a mount'}, which cannot be replaced",
                    expected="a folder that is renamed when it is whole",
                    repair=f"Choose one in it: --out {self.out / self.kind}",
                )
        return out

    def begin(self) -> Manifest:
        """Make or reopen `out` as a folder that grows; returns its manifest, complete or not."""
        manifest = self.find()
        if manifest is None:
            with storage_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            manifest = self.manifest({}, complete=False)
            write_json(self.out / MANIFEST, manifest.to_dict())
        return manifest

    def finish(self, files: Mapping[str, FileRecord]) -> None:
        """Flush `files` to the disk, then declare the folder that was begun complete."""
        with storage_errors(self.out):
            for name in files:
                flush_file(self.out / name)
        write_json(self.out / MANIFEST, self.manifest(dict(files), complete=True).to_dict())

    def manifest(self, files: dict[str, FileRecord], *, complete: bool) -> Manifest:
        """The manifest of this stage over `files`."""
        return Manifest(
            kind=self.kind,
            complete=complete,
            identity=content_identity({name: record.sha256 for name, record in files.items()}),
            command=_command(),
            seed=self.seed,
            config=self.config,
            inputs=self.inputs,
            versions=package_versions(),
            files=files,
        ).sealed()

    def _difference(self, found: Manifest) -> str:
        """What sets `found` apart from what this stage would write; empty when nothing does."""
        if found.kind != self.kind:
            return f"a {found.kind}, where a {self.kind} would be written"
        if found.format_version != FORMAT_VERSION:
            return f"format version {found.format_version}, where this is {FORMAT_VERSION}"
        here = {entry.role: entry.identity for entry in self.inputs}
        there = {entry.role: entry.identity for entry in found.inputs}
        for role in here | there:
            if here.get(role) != there.get(role):
                return f"a {self.kind} folder made from another {role}"
        unlike = _first_difference(found.config, self.config, self.defaults, self.measured)
        if unlike:
            key, before, now = unlike
            return f"a {self.kind} folder made with {key} = {before!r}, where now it is {now!r}"
        if self.seed != found.seed:
            return f"a {self.kind} folder made with seed {found.seed}, where now it is {self.seed}"
        return ""


def _first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any], measured: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """Return the first key whose value differs, and both values; a key missing in `before` has its default."""
    for key in [*now, *(key for key in before if key not in now)]:
        if key in measured:
            continue
        default = defaults.get(key)
        old, new = before.get(key, default), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = _first_difference(old, new, default if isinstance(default, Mapping) else {})
            if inner is not None:
                return f"{key}.{inner[0]}", *inner[1:]
        elif old != new:
            return key, old, new
    return None


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a result."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _command() -> str:
    """The command line where this process is the command `headwater`, not a script that calls its functions."""
    program = Path(sys.argv[0])
    ours = program.name in {"headwater", "headwater.exe"} or program.parts[-2:] == ("headwater", "__main__.py")
    if not ours or not sys.argv[1:]:
        return FROM_PYTHON
    # A name that is no UTF-8 has no other form in JSON.
    return shlex.join(["headwater", *sys.argv[1:]]).encode(errors="backslashreplace").decode()
