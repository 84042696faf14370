"""`headwater.json`: what a folder is, what it was made from, and whether it is unchanged.

A stage writes to a temporary name and renames, so that a folder has a complete manifest or does not exist. The
manifest of a folder that grows for hours (a run) has `complete: false` until its end. The identity of a folder is
a hash of the names and hashes of its files: folders with the same content have the same identity. `lineage` traces
the folders that a folder was made from.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.errors import FolderError, HeadwaterError
from headwater.reading import check_name, read_json, sha256_of, unpacked_name
from headwater.storage.remote import is_url

MANIFEST = "headwater.json"
FORMAT_VERSION = 1
# Hashing this much takes a few seconds. Of a larger folder only the sizes are checked when it is opened.
HASH_WHEN_BELOW = 4 * 1024**3
_SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")  # of `datasets.save_to_disk`
# The settings and the report of a quickstart. Its folder has no manifest, since it may be that of the text.
QUICKSTART, QUICKSTART_REPORT = ".quickstart.json", "report.html"
FROM_PYTHON = "headwater (called from Python)"
_PACKAGES = ("headwater", "numpy", "pyarrow", "safetensors", "tokenizers", "torch")


class Record(BaseModel):
    """Base of the parts of a manifest: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without keys that are None."""
        return self.model_dump(mode="json", exclude_none=True)


class FileRecord(Record):
    """Size in bytes and hexadecimal SHA-256 of one file."""

    bytes: int
    sha256: str


class Input(Record):
    """One input of a folder; `path` is a URL, or relative to the folder if that is possible.

    suffixes: of the files that count, if the input is a folder of a user and not all do.
    """

    role: str
    path: str
    kind: str
    identity: str
    suffixes: tuple[str, ...] | None = None

    def path_from(self, folder: Path) -> Path:
        """Return the path of this input of `folder`; not for a URL.

        A `..` after a symbolic link leads to the folder of the link's target.
        """
        path = folder / self.path
        plain = Path(os.path.normpath(path))
        return plain if plain.resolve() == path.resolve() else path.resolve()


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
        """The command that made the folder, quoted again, since the manifest may be untrusted."""
        if self.command == FROM_PYTHON:
            return self.command
        try:
            words = shlex.split(self.command)
        except ValueError:
            words = []
        return shlex.join(words) if words[:1] == ["headwater"] else "its manifest names no Headwater command"

    def sealed(self) -> Manifest:
        """Return the manifest with its checksum."""
        return self.model_copy(update={"checksum": _checksum(self)})


_MADE_BY = {
    "corpus": "headwater corpus build SOURCE --out DIR",
    "tokens": "headwater pack CORPUS --tokenizer TOKENIZER --out DIR",
}


def has_manifest(folder: Path) -> bool:
    """Return whether a Headwater command wrote this folder, or is writing it."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path, kind: str | None = None) -> Manifest:
    """Read and check `headwater.json`; raises FolderError when it is missing, cut short or altered.

    kind: of the folder that is meant, for the error.
    """
    path = folder / MANIFEST
    expected = f"a {kind} folder" if kind else "a folder"
    repair = f"Check the path, or make one: {_MADE_BY[kind]}" if kind in _MADE_BY else "Check the path"
    if not folder.is_dir():
        raise FolderError(
            f"{folder} {'is a file' if folder.exists() else 'does not exist'}", expected=expected, repair=repair
        )
    if not path.exists():
        raise FolderError(
            f"{folder} has no {MANIFEST}", expected=f"{expected} that a Headwater command wrote", repair=repair
        )
    content = read_json(path)
    version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise FolderError(
            f"{path} has format version {version}",
            expected=str(FORMAT_VERSION),
            repair="Open the folder with the version of Headwater that wrote it, or make it again",
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError:
        manifest = None
    if manifest is None or manifest.checksum != _checksum(manifest):
        raise FolderError(f"{path} was cut short or altered", repair="Make the folder again")
    for name in manifest.files:
        inner = PurePosixPath(name)
        if inner.is_absolute() or ".." in inner.parts or PureWindowsPath(name).drive or "\\" in name:
            raise FolderError(f"{path} names a file outside of its folder: {name}", repair="Do not use the folder")
    return manifest


def open_folder(folder: Path, kind: str | None = None, *, hashes: bool | None = None) -> Manifest:
    """Check that `folder` is a complete, undamaged folder of this kind; return its manifest.

    `check_files` checks its files, and explains `hashes`.
    """
    manifest = read_manifest(folder, kind)
    if kind is not None and manifest.kind != kind:
        article = "an" if manifest.kind[0] in "aeiou" else "a"
        raise FolderError(f"{folder} is {article} {manifest.kind} folder", expected=f"a {kind} folder")
    if not manifest.complete:
        raise FolderError(
            f"{folder} is not complete", repair=f"Run its command again to complete it: {manifest.repeat}"
        )
    check_files(folder, manifest, hashes=hashes)
    return manifest


def folder_files(folder: Path, kind: str, suffix: str) -> list[Path]:
    """Return the files of a complete Headwater folder of this kind that end in `suffix`, in order."""
    return [folder / name for name in sorted(open_folder(folder, kind).files) if name.endswith(suffix)]


def check_files(folder: Path, manifest: Manifest, *, hashes: bool | None = None) -> None:
    """Compare the files of `folder` with its manifest; raise FolderError naming the first that differs.

    `hashes` None compares hashes when all files together are below
    HASH_WHEN_BELOW bytes.
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


def identity_of(path: Path, suffixes: Sequence[str] | None = None) -> tuple[str, str]:
    """Return (kind, identity) of a Headwater folder, a file ("file"), or any other folder ("folder").

    suffixes: of the files of such a folder that count, before that of a compression; None if all count.
    """
    if has_manifest(path):
        manifest = open_folder(path)
        return manifest.kind, manifest.identity
    if path.is_dir():
        files, _ = user_files(path)
        counted = [file for file in files if suffixes is None or unpacked_name(file).endswith(tuple(suffixes))]
        return "folder", content_identity({f.relative_to(path).as_posix(): sha256_of(f) for f in counted})
    if path.is_file():
        identity = sha256_of(path)
        if has_manifest(path.parent):
            manifest = read_manifest(path.parent)
            if path.name in manifest.files and manifest.files[path.name].sha256 != identity:
                raise FolderError(
                    f"{path} was altered after it was written", repair=f"Make it again: {manifest.repeat}"
                )
        return "file", identity
    problem = "is neither a file nor a folder" if path.exists() else "does not exist"
    raise FolderError(f"{path} {problem}", repair="Check the path")


def user_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files below a folder in order, and the paths that are left out. Neither has hidden names.

    Left out are subfolders that Headwater wrote, so that a stage may write into the folder that it reads; linked
    folders, which may form a circle; broken links; what `datasets.save_to_disk` writes next to the tables; and the
    report of a quickstart in this folder.
    """
    files: list[Path] = []
    others: list[Path] = []
    waiting = [(folder, False)]  # folders may be deeper than Python's stack
    while waiting:
        path, is_saved = waiting.pop()
        if path is folder or (path.is_dir() and not path.is_symlink() and not has_manifest(path)):
            inner = [p for p in path.iterdir() if not p.name.startswith(".") and p.name != MANIFEST]
            is_saved = any(p.suffix == ".arrow" or p.name == _SAVED[0] for p in inner)
            waiting += [(p, is_saved) for p in sorted(inner, reverse=True)]
        elif path.is_file():
            is_own = is_saved and (path.name in _SAVED or path.match("cache-*.arrow"))
            is_own = is_own or (path.name == QUICKSTART_REPORT and (path.parent / QUICKSTART).is_file())
            (others if is_own else files).append(path)
        elif path.is_symlink() or path.is_dir():
            others.append(path)
    return files, others


def describe_input(role: str, path: Path, out: Path, suffixes: Sequence[str] | None = None) -> Input:
    """Return the entry of an input for the manifest of `out`, with its path relative to that if possible.

    `suffixes` as in `identity_of`.
    """
    check_name(path)
    kind, identity = identity_of(path, suffixes)
    recorded = path.absolute()
    with suppress(ValueError):  # another drive on Windows
        # Without symbolic links above both, since `..` after a link leads to its target's folder.
        recorded = Path(os.path.relpath(path.parent.resolve() / path.name, out.resolve()))
    counted = tuple(suffixes) if suffixes is not None and kind == "folder" else None
    return Input(role=role, path=recorded.as_posix(), kind=kind, identity=identity, suffixes=counted)


def record_files(folder: Path, *, only: Collection[str] = ()) -> dict[str, FileRecord]:
    """Return size and hash of every file below `folder` by relative name, or of the files and subfolders `only`.

    Skip hidden files and manifests.
    """
    records = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if only and relative.parts[0] not in only:
            continue
        if path.is_file() and path.name != MANIFEST and not any(p.startswith(".") for p in relative.parts):
            records[relative.as_posix()] = FileRecord(bytes=path.stat().st_size, sha256=sha256_of(path))
    return records


def content_identity(hashes: Mapping[str, str]) -> str:
    """Return the identity of a folder from the hashes of its files by name."""
    listing = json.dumps(sorted(hashes.items()))
    return hashlib.sha256(listing.encode()).hexdigest()


def _checksum(manifest: Manifest) -> str:
    content = manifest.model_dump(mode="json", exclude={"checksum"}, exclude_none=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect a result."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def lineage(folder: Path, *, known: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the chain from a folder back to its first inputs, as nested dictionaries.

    Keys: role, path, kind, identity, state ("complete", "incomplete", "changed", "gone", "source", "remote"),
    command, commands (more than one for a run whose length was changed), seed, inputs. "changed" marks an input
    that is no longer what the folder was made from, "remote" a URL, which is not checked. known: the identities of
    sources that were hashed already, which is filled; each source is hashed once.
    """
    manifest = read_manifest(folder)
    entry = Input(role="", path=str(folder), kind=manifest.kind, identity=manifest.identity)
    return _lineage(entry, folder, set(), {} if known is None else known)


def _lineage(entry: Input, path: Path, above: set[Path], known: dict[str, str]) -> dict[str, Any]:
    """Return the chain of one input, which is at `path`."""
    node: dict[str, Any] = {**entry.to_dict(), "path": str(path), "inputs": []}
    if is_url(entry.path):
        return node | {"path": entry.path, "state": "remote"}
    if path.resolve() in above or not path.exists():
        return node | {"state": "gone"}
    try:
        manifest = read_manifest(path) if has_manifest(path) else None
        key = f"{path.resolve()} {entry.suffixes}"
        if manifest is None and key not in known:
            known[key] = identity_of(path, entry.suffixes)[1]
        identity = known[key] if manifest is None else manifest.identity
    except HeadwaterError:  # damaged, or altered against its own folder's manifest
        return node | {"state": "changed"}
    if manifest is None:
        return node | {"state": "source" if identity == entry.identity else "changed"}
    state = "complete" if manifest.complete else "incomplete"
    above = above | {path.resolve()}
    return node | {
        "state": state if identity == entry.identity else "changed",
        "command": manifest.command,
        "commands": [*_earlier_commands(manifest), manifest.command],
        "seed": manifest.seed,
        "inputs": [_lineage(inner, inner.path_from(path), above, known) for inner in manifest.inputs],
    }


def _earlier_commands(manifest: Manifest) -> list[str]:
    """Return the commands before the last one that changed the length of a run, each with its end."""
    changes = [change for change in manifest.config.get("changes", []) if "command" in change]
    return [f"{change['command']}  # until update {change['at']:,}" for change in changes]
