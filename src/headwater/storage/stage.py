"""A stage reads folders and writes one new folder with its manifest: under a temporary name, then renamed.

A stage never overwrites a folder that has other content, and recognises the folder that it would write.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import FolderError, UsageError
from headwater.reading import check_name
from headwater.storage.files import (
    flush,
    new_temporary,
    remove_abandoned,
    require_renames,
    storage_errors,
    temporaries_of,
    use_mode,
    write_json,
)
from headwater.storage.progress import SILENT, Progress
from headwater.storage.provenance import (
    FROM_PYTHON,
    MANIFEST,
    FileRecord,
    Input,
    Manifest,
    check_files,
    content_identity,
    describe_input,
    has_manifest,
    package_versions,
    read_manifest,
    record_files,
)

_DESKTOP = {".DS_Store", "Thumbs.db", "desktop.ini"}  # what file managers leave in a folder that they show
_MOST_CHANGES = 5  # of settings that an error shows


class Stage:
    """One stage that writes one folder: find it if it exists, check whether it may be written, write it.

    config: its key `seed`, if there is one, is the seed in the manifest.
    measured: configuration keys that are known only when the folder is written (counts). The caller sets them in
    `config` before its block ends; those of an existing folder are copied into `config` and not compared.
    inputs: paths, or what describes them already.
    grows: the folder is written in place, not under a temporary name.
    suffixes: of the files that count in an input that is a folder of a user; None if all count.
    """

    def __init__(
        self,
        out: Path,
        *,
        kind: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Path | Input],
        measured: Sequence[str] = (),
        grows: bool = False,
        suffixes: Sequence[str] | None = None,
    ) -> None:
        check_name(out)
        if out.parts[:1] == ("~",):  # a caller's other paths below `out` would not be expanded
            raise UsageError(f"{out} would be a folder named ~", repair=f"Write {out.expanduser()}")
        self.out, self.kind, self.measured, self.grows = out, kind, measured, grows
        self.command = _command()
        # Through JSON, so that it compares equal to what is read back from a file.
        self.config: dict[str, Any] = json.loads(json.dumps(dict(config)))
        self.inputs = [
            source.model_copy(update={"role": role})
            if isinstance(source, Input)
            else describe_input(role, source, out, suffixes)
            for role, source in inputs.items()
        ]

    def find(self) -> Manifest | None:
        """Return the manifest at `out` if it is what this stage would write, complete or not; else None.

        Raises FolderError if `out` contains anything else.
        """
        if not self.out.exists():
            return None
        if not self.out.is_dir():
            raise FolderError(
                f"{self.out} is a file", expected="a folder to write", repair="Choose another output path"
            )
        if not has_manifest(self.out):
            others = set(self.out.iterdir()) - set(temporaries_of(self.out / MANIFEST))
            if any(path.name not in _DESKTOP for path in others):
                raise FolderError(
                    f"{self.out} already contains files that are not Headwater's",
                    expected="a new or empty folder",
                    repair="Choose another output path",
                )
            return None
        manifest = read_manifest(self.out)
        if difference := self.difference(manifest):
            raise FolderError(
                f"{self.out} already contains something else: {difference}",
                repair="Choose another output folder",
            )
        self.config |= {key: manifest.config[key] for key in self.measured if key in manifest.config}
        return manifest

    def is_complete(self, progress: Progress = SILENT, *, hashes: bool | None = None) -> bool:
        """Return whether the folder that this stage would write exists, complete and undamaged; if so, note it.

        Raises FolderError if `out` contains anything else, or cannot be replaced.
        """
        manifest = self.find()
        if manifest is None:
            out = self.out / MANIFEST if self.grows else self._replaceable()
            require_renames(out)
        if manifest is None or not manifest.complete:
            return False
        check_files(self.out, manifest, hashes=hashes)
        progress.note(f"{self.out} is complete already")
        return True

    def changed(self, keys: Collection[str]) -> dict[str, Any]:
        """Return the earlier values of those of `keys` in which the folder at `out` differs from this stage.

        Empty if there is no folder of this stage, or if it differs in anything else.
        """
        if not has_manifest(self.out):
            return {}
        manifest = read_manifest(self.out)
        before = {key: manifest.config.get(key) for key in keys}
        changed = {key: value for key, value in before.items() if value != self.config.get(key)}
        now = manifest.config | {key: self.config.get(key) for key in changed}
        return {} if self.difference(manifest.model_copy(update={"config": now})) else changed

    @contextmanager
    def write(self) -> Iterator[Path]:
        """Yield a folder to fill; it becomes `out`, with its manifest, if the block raises no exception."""
        self.find()
        out = self._replaceable()
        with storage_errors(self.out):
            out.parent.mkdir(parents=True, exist_ok=True)
            with new_temporary(out) as work:
                yield work
                use_mode(work, work)
                files = record_files(work)
                flush(work)
                write_json(work / MANIFEST, self.manifest(files, complete=True).to_dict())
                try:
                    if out.exists():
                        remove_abandoned(out / MANIFEST)
                        for name in _DESKTOP:
                            (out / name).unlink(missing_ok=True)
                        out.rmdir()  # find() found it empty; fails if it was filled since then
                    work.rename(out)
                except OSError:
                    if not self.is_complete():  # else another process wrote the same folder meanwhile
                        raise
                flush(out.parent, deep=False)

    def _replaceable(self) -> Path:
        """Return what the written folder is renamed to: `out`, with a symbolic link resolved.

        Raises FolderError before anything is written if an existing folder cannot be replaced.
        """
        out = self.out.resolve() if self.out.is_symlink() else self.out
        if out.exists():
            here = out.samefile(".")
            if here or os.path.ismount(out):
                raise FolderError(
                    f"{self.out} is {'the current folder' if here else 'a mount point'}, which cannot be replaced",
                    expected="a folder that can be renamed",
                    repair=f"Choose one in it: --out {shlex.quote(str(self.out / self.kind))}",
                )
        return out

    def begin(self) -> Manifest:
        """Create or reopen `out` as a folder that grows; return its manifest, complete or not.

        A folder that exists keeps its command: one that only resumes it may name nothing but the folder.
        """
        manifest = self.find()
        self.command = manifest.command if manifest else self.command
        if manifest is None:
            with storage_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            manifest = self.reopen()
        return manifest

    def reopen(self) -> Manifest:
        """Mark the folder that grows as incomplete, with the present configuration; return its manifest."""
        manifest = self.manifest({}, complete=False)
        write_json(self.out / MANIFEST, manifest.to_dict())
        return manifest

    def finish(self, *, only: Collection[str] = ()) -> None:
        """Flush the folder that grows, or only the files and subfolders `only` in it, and mark it as complete."""
        files = record_files(self.out, only=only)
        with storage_errors(self.out):
            for name in files:
                use_mode(self.out / name, self.out)
                flush(self.out / name)
        manifest = self.manifest(files, complete=True)
        write_json(self.out / MANIFEST, manifest.to_dict())
        check_files(self.out, manifest, hashes=False)

    def manifest(self, files: dict[str, FileRecord], *, complete: bool) -> Manifest:
        """Return the manifest of this stage with `files`."""
        return Manifest(
            kind=self.kind,
            complete=complete,
            identity=content_identity({name: record.sha256 for name, record in files.items()}),
            command=self.command,
            seed=self.config.get("seed"),
            config=self.config,
            inputs=self.inputs,
            versions=package_versions(),
            files=files,
        ).sealed()

    def difference(self, other: Manifest) -> str:
        """Return how `other` differs from what this stage would write; empty if it does not."""
        if other.kind != self.kind:
            return f"a {other.kind}, where a {self.kind} would be written"
        here = {entry.role: entry.identity for entry in self.inputs}
        there = {entry.role: entry.identity for entry in other.inputs}
        for role in here | there:
            if here.get(role) != there.get(role):
                return f"{self.kind} made from another input ({role})"
        changes = list(_changes(other.config, self.config, self.measured))
        if not changes:
            return ""
        shown = ", ".join(
            f"{key} {_shown(before)} → {_shown(now)}" for key, before, now in changes[:_MOST_CHANGES]
        )
        shown += ", …" if len(changes) > _MOST_CHANGES else ""
        return f"{self.kind} made with other settings, then and now: {shown}"


def _changes(
    before: Mapping[str, Any], now: Mapping[str, Any], measured: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key whose value differs, and both values; None for a missing one."""
    for key in [*now, *(key for key in before if key not in now)]:
        if key in measured:
            continue
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from ((f"{key}.{inner}", *values) for inner, *values in _changes(old, new))
        elif old != new:
            yield key, old, new


def _shown(value: Any) -> str:
    return "none" if value is None else repr(value)


def _command() -> str:
    """Return the command line of `headwater`, or FROM_PYTHON in a script that calls its functions."""
    program = Path(sys.argv[0])
    ours = program.name in {"headwater", "headwater.exe"} or program.parts[-2:] == ("headwater", "__main__.py")
    if not ours or not sys.argv[1:]:
        return FROM_PYTHON
    # A name that is not UTF-8 cannot be stored otherwise in JSON.
    return shlex.join(["headwater", *sys.argv[1:]]).encode(errors="backslashreplace").decode()
