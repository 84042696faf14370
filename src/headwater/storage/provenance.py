"""`headwater.json`: what a folder is, what it was made from, and whether it is still what was written.

A stage writes aside and renames, so a folder either carries a complete manifest or does not exist; a folder
that grows for hours (a run) carries `complete: false` until its end. The identity of a folder is a hash over
the names and hashes of its files: two folders with the same content have the same identity wherever they lie
and however they were made.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.errors import FolderError, HeadwaterError
from headwater.storage.files import (
    flush_file,
    flush_files,
    flush_folder,
    new_part,
    read_json,
    sha256_of,
    storage_errors,
    write_json,
)

MANIFEST = "headwater.json"
FORMAT_VERSION = 1
# Hashing this much takes a few seconds; above it only sizes are checked when a folder is opened.
HASH_WHEN_BELOW = 4 * 1024**3
_FROM_PYTHON = "headwater (called from Python)"
_PACKAGES = ("headwater", "numpy", "pyarrow", "safetensors", "tokenizers", "torch")


class Record(BaseModel):
    """Base of what a manifest holds: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without keys that are None."""
        return self.model_dump(mode="json", exclude_none=True)


class FileRecord(Record):
    """Size in bytes and hexadecimal SHA-256 of one file."""

    bytes: int
    sha256: str


class Input(Record):
    """One thing that a folder was made from; `path` is relative to the folder, where it can be, or a URL."""

    role: str
    path: str
    kind: str
    identity: str


class Manifest(Record):
    """The content of `headwater.json`; `checksum` guards the manifest itself."""

    kind: str
    format_version: int = FORMAT_VERSION
    complete: bool
    identity: str
    command: str
    seed: int | None = None
    config: dict[str, Any]
    inputs: list[Input]
    versions: dict[str, str]
    files: dict[str, FileRecord]
    checksum: str = ""

    @property
    def repeat(self) -> str:
        """The command that made the folder, as advice: quoted again, since the manifest may be a stranger's."""
        if self.command == _FROM_PYTHON:
            return self.command
        try:
            words = shlex.split(self.command)
        except ValueError:
            words = []
        return shlex.join(words) if words[:1] == ["headwater"] else "its manifest names no Headwater command"

    def sealed(self) -> Manifest:
        """The same manifest with its checksum filled in."""
        return self.model_copy(update={"checksum": _checksum(self)})


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
            identity=_identity({name: record.sha256 for name, record in files.items()}),
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


def read_manifest(folder: Path) -> Manifest:
    """Read and check `headwater.json`; raises FolderError when it is missing, cut short or altered."""
    path = folder / MANIFEST
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise FolderError(f"{folder} {what}", expected="a folder", repair="Check the path")
    if not path.exists():
        raise FolderError(
            f"{folder} has no {MANIFEST}",
            expected="a complete folder that a Headwater command wrote",
            repair="Check the path, or make the folder again",
        )
    return check_manifest(read_json(path), str(path))


def check_manifest(content: Any, where: str) -> Manifest:
    """The manifest that a JSON value is; raises FolderError naming its place `where` when it was altered."""
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError:
        manifest = None
    if manifest is None or manifest.checksum != _checksum(manifest):
        raise FolderError(f"{where} was cut short or altered", repair="Make the folder again")
    return manifest


def open_folder(folder: Path, kind: str | None = None, *, hashes: bool | None = None) -> Manifest:
    """Check that `folder` is a complete, undamaged folder of this kind; returns its manifest.

    Files are checked by size, and by hash where `hashes` says so; see `check_files`.
    """
    manifest = read_manifest(folder)
    if kind is not None and manifest.kind != kind:
        article = "an" if manifest.kind[0] in "aeiou" else "a"
        raise FolderError(f"{folder} is {article} {manifest.kind} folder", expected=f"a {kind} folder")
    if not manifest.complete:
        raise FolderError(
            f"{folder} is not complete", repair=f"Run its command again to complete it: {manifest.repeat}"
        )
    check_files(folder, manifest, hashes=hashes)
    return manifest


def check_files(folder: Path, manifest: Manifest, *, hashes: bool | None = None) -> None:
    """Compare the files of `folder` with its manifest; raises FolderError naming the first that differs.

    `hashes` None compares hashes when all files together are below HASH_WHEN_BELOW bytes.
    """
    if hashes is None:
        hashes = sum(record.bytes for record in manifest.files.values()) < HASH_WHEN_BELOW
    repair = f"Remove {folder} and make it again: {manifest.repeat}"
    for name, record in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise FolderError(f"{path} is missing", repair=repair)
        size = path.stat().st_size
        if size != record.bytes:
            raise FolderError(f"{path} has {size:,} bytes", expected=f"{record.bytes:,}", repair=repair)
        if hashes and sha256_of(path) != record.sha256:
            raise FolderError(f"{path} was altered after it was written", repair=repair)


def identity_of(path: Path) -> tuple[str, str]:
    """(kind, identity) of a Headwater folder, of a file ("file"), or of any other folder ("folder")."""
    if (path / MANIFEST).exists():
        manifest = open_folder(path)
        return manifest.kind, manifest.identity
    if path.is_dir():
        return "folder", _identity({name: record.sha256 for name, record in record_files(path).items()})
    if path.is_file():
        identity = sha256_of(path)
        if (path.parent / MANIFEST).is_file():
            manifest = read_manifest(path.parent)
            if path.name in manifest.files and manifest.files[path.name].sha256 != identity:
                raise FolderError(
                    f"{path} was altered after it was written", repair=f"Make it again: {manifest.repeat}"
                )
        return "file", identity
    raise FolderError(f"{path} does not exist", repair="Check the path")


def describe_input(role: str, path: Path, out: Path | None) -> Input:
    """What the manifest of `out` says of the input at `path`, by its absolute path where `out` is None."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:  # no manifest could name it
        raise FolderError(f"the name of {str(path)!a} is not UTF-8", repair="Rename it") from None
    kind, identity = identity_of(path)
    if out is None:
        return Input(role=role, path=path.absolute().as_posix(), kind=kind, identity=identity)
    try:
        relative = Path(os.path.relpath(path.absolute(), out.absolute())).as_posix()
    except ValueError:  # another drive on Windows
        relative = path.absolute().as_posix()
    return Input(role=role, path=relative, kind=kind, identity=identity)


def record_files(folder: Path, *, only: Collection[str] = ()) -> dict[str, FileRecord]:
    """Size and hash of every file below `folder`, by relative name; with `only`, of these files and subfolders.

    Hidden files and manifests are left out.
    """
    records = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if only and relative.parts[0] not in only:
            continue
        if path.is_file() and path.name != MANIFEST and not any(p.startswith(".") for p in relative.parts):
            records[relative.as_posix()] = FileRecord(bytes=path.stat().st_size, sha256=sha256_of(path))
    return records


Look = Callable[[str], tuple[Input, Manifest | None] | None]


def lineage(folder: Path, look: Look | None = None) -> dict[str, Any]:
    """The chain from `folder` back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, seed, inputs. "changed" marks an input that is no longer what the folder was made from, "remote" one
    behind a URL that was not looked at: `look` does that, which gives what lies at a URL now, None for nothing.
    """
    manifest = read_manifest(folder)
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, folder, look, set())


def lineage_at(url: str, look: Look) -> dict[str, Any]:
    """The same of a folder behind a URL."""
    found = look(url)
    if found is None:
        raise FolderError(f"{url} does not exist", expected="a folder", repair="Check the URL")
    return _lineage(found[0], None, look, set())


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a result."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _lineage(entry: Input, path: Path | None, look: Look | None, above: set[str]) -> dict[str, Any]:
    """The chain from one input on, which lies at `path`, or behind the URL in the entry."""
    told: dict[str, Any] = {**entry.to_dict(), "path": entry.path if path is None else str(path), "inputs": []}
    place = entry.path if path is None else str(path.resolve())
    if place in above:
        return told | {"state": "gone"}
    manifest: Manifest | None
    if path is None:
        if look is None:
            return told | {"state": "remote"}
        seen = look(entry.path)
        if seen is None:
            return told | {"state": "gone"}
        found, manifest = seen
        identity = found.identity
    elif not path.exists():
        return told | {"state": "gone"}
    else:
        try:
            manifest = read_manifest(path) if (path / MANIFEST).exists() else None
            identity = manifest.identity if manifest else identity_of(path)[1]
        except HeadwaterError:  # damaged, or altered against its own folder's manifest
            return told | {"state": "changed"}
    if manifest is None:
        return told | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    return told | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "seed": manifest.seed,
        "inputs": [
            _lineage(inner, _place_of(inner.path, path), look, above | {place}) for inner in manifest.inputs
        ],
    }


def _place_of(name: str, folder: Path | None) -> Path | None:
    """Where an input named by `name` in the manifest of `folder` lies; None behind a URL."""
    if "://" in name:
        return None
    return Path(os.path.normpath(folder / name if folder else name))


def _identity(hashes: Mapping[str, str]) -> str:
    listing = json.dumps(sorted(hashes.items()))
    return hashlib.sha256(listing.encode()).hexdigest()


def _checksum(manifest: Manifest) -> str:
    content = manifest.model_dump(mode="json", exclude={"checksum"}, exclude_none=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _command() -> str:
    """The command line where this process is the command `headwater`, not a script that calls its functions."""
    program = Path(sys.argv[0])
    ours = program.name in {"headwater", "headwater.exe"} or program.parts[-2:] == ("headwater", "__main__.py")
    if not ours or not sys.argv[1:]:
        return _FROM_PYTHON
    # A name that is no UTF-8 has no other form in JSON.
    return shlex.join(["headwater", *sys.argv[1:]]).encode(errors="backslashreplace").decode()
