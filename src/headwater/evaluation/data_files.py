"""Find a task's files below the `--data` folders, by their names or as Headwater folders, and read their rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import MALFORMED, DataError, HeadwaterError, ResourceError
from headwater.reading import open_table, sha256_of
from headwater.storage import has_manifest, open_folder, read_manifest

if TYPE_CHECKING:
    from headwater.evaluation.protocols import Task

Taken = TypeVar("Taken")
_DEEPEST = 6  # levels of folders below `--data` that are searched


@dataclass(frozen=True)
class Source:
    """A file or folder that a task reads: its role, its possible names, and where to download it.

    names: endings of paths, best first, such as `lambada_test.jsonl` or `wikitext-2/wiki.test.tokens`; the name of
    a folder ends in "/". kind: a Headwater folder of this kind.
    """

    role: str
    names: tuple[str, ...] = ()
    kind: str = ""
    where: str = ""
    needed: bool = True


class DataFiles:
    """The files below some folders, listed once in a stable order. Raises ResourceError for a missing folder.

    suits: whether the model can be asked about a Headwater folder; it chooses among several.
    """

    def __init__(self, data: Sequence[Path], suits: Callable[[Path], bool] = lambda folder: True) -> None:
        for folder in data:
            if not folder.exists():
                raise ResourceError(f"{folder} does not exist", expected="a folder with data")
        self._data, self._suits = data, suits
        self._below = [list(_below(folder, 0)) for folder in data]

    def locate(self, sources: Sequence[Source]) -> dict[str, Path]:
        """Return the path of each source by role: a named Headwater folder, else in the first folder that has it.

        Raises ResourceError if a needed one is missing, or if several Headwater folders of its kind suit the
        model; FolderError if the folder is damaged.
        """
        paths: dict[str, Path] = {}
        for source in sources:
            path = self._find(source)
            if path is not None:
                paths[source.role] = path
            elif source.needed:
                wanted = f"a folder of kind {source.kind}" if source.kind else " or ".join(source.names)
                where = f"in {', '.join(map(str, self._data))}" if self._data else "without a --data folder"
                raise ResourceError(f"{wanted} was not found {where}", repair=source.where)
        return paths

    def locate_tasks(self, tasks: Iterable[Task]) -> tuple[dict[Task, dict[str, Path]], dict[Task, str]]:
        """Return the files of each task by role, and why the others are left out: a file is missing."""
        located: dict[Task, dict[str, Path]] = {}
        missing: dict[Task, str] = {}
        for task in tasks:
            try:
                located[task] = self.locate(task.sources)
            except HeadwaterError as error:
                missing[task] = str(error)
        return located, missing

    def _find(self, source: Source) -> Path | None:
        named = [path for path in self._data if has_manifest(path)]
        below = (list(dict.fromkeys(p.parent for p in paths)) for paths in self._below)
        for several in [named, *below] if source.kind else []:
            folders = [path for path in several if has_manifest(path) and read_manifest(path).kind == source.kind]
            if len(folders) > 1:
                folders = [path for path in folders if self._suits(path)] or folders
            if len(folders) > 1:
                raise ResourceError(
                    f"{folders[0]} and {folders[1]} are both of kind {source.kind}",
                    expected="one such folder",
                    repair=f"Name it: --data {shlex.quote(str(folders[0]))}",
                )
            if folders:
                open_folder(folders[0], source.kind)  # raises FolderError
                return folders[0]
        for name in source.names:
            for paths in self._below:
                if named := list(_with_name(name, paths)):
                    return _only(named)
        return None


def _with_name(name: str, paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the different paths that end in `name`; that of a folder, which ends in "/", has files below it."""
    wanted = Path(name).parts
    seen: set[Path] = set()
    for path in paths:
        for candidate in path.parents if name.endswith("/") else [path]:
            if candidate.parts[-len(wanted) :] == wanted and candidate.resolve() not in seen:
                seen.add(candidate.resolve())
                yield candidate


def _only(paths: Sequence[Path]) -> Path:
    """Return the first path; raise ResourceError if another one is a file of the same name with other content."""
    first, *others = paths
    if first.is_file():
        for other in others:
            if other.stat().st_size != first.stat().st_size or sha256_of(other) != sha256_of(first):
                raise ResourceError(
                    f"{first} and {other} have one name and different contents",
                    expected="one such file in a folder",
                    repair=f"Name it: --data {shlex.quote(str(first))}",
                )
    return first


def _below(folder: Path, depth: int) -> Iterable[Path]:
    if folder.is_file():
        return [folder]
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        return []
    files = [entry for entry in entries if entry.is_file()]
    if depth == _DEEPEST:
        return files
    above = {folder.resolve(), *folder.resolve().parents}  # a link to one of these would list its files again
    folders = [e for e in entries if e.is_dir() and not e.name.startswith(".") and e.resolve() not in above]
    return [*files, *(path for inner in folders for path in _below(inner, depth + 1))]


def text_of(row: Mapping[str, Any], key: str) -> str:
    """Return a text of a row; raise TypeError for another value, such as null."""
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r:.60}, not text")
    return value


def texts_of(row: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of texts of a row; raise TypeError for another value, such as a single text."""
    values = row[key]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{key} is {values!r:.60}, not a list of texts")
    return values


def read_json_rows(path: Path, take: Callable[[Mapping[str, Any]], Taken], expected: str) -> list[Taken]:
    """Return `take(row)` of each row of a JSON Lines file; raise DataError for the first row that it rejects."""
    values = []
    for number, row in open_table(path).rows:
        try:
            values.append(take(row))
        except DataError:
            raise
        except MALFORMED as error:
            raise another_format(f"{path} row {number:,}", error, expected) from None
    return values


def another_format(where: str, error: BaseException, expected: str) -> DataError:
    """Return the error about a row. A set is not scored without it: fewer questions are another benchmark."""
    why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return DataError(
        f"{where} has another format: {why}",
        expected=expected,
        repair="Correct that line; none is left out of a set",
    )
