"""Which of the twelve sets are there, and their rows.

A set without training rows at hand is trained on a part of what there is, and its table row says that it is not
comparable with the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.datasets import hub
from headwater.datasets.benchmarks import SETS, Benchmark, SetFiles
from headwater.datasets.rows import Raw
from headwater.errors import DataError, UsageError, counted, nearest
from headwater.storage.files import MALFORMED

# A choice is a document, a question and two answers.
_FEWEST_TEXTS = {"classify": 1, "entail": 2, "similarity": 2, "choice": 4}
BY_NAME = {benchmark.name: benchmark for benchmark in SETS}


@dataclass(frozen=True)
class Found:
    """The parts of a set that are there: paths and rows; `remarks` say where they are not the official ones."""

    benchmark: Benchmark
    train: list[Raw]
    validation: list[Raw] | None
    tests: dict[str, list[Raw]]
    paths: dict[str, Path]
    remarks: list[str]


def choose(names: str) -> list[Benchmark]:
    """The sets that `--task-set` names: gpt1 for all twelve, or some by name, separated by commas."""
    if names == "gpt1":
        return list(SETS)
    chosen = []
    for name in names.split(","):
        if name.strip() not in BY_NAME:
            raise UsageError(
                f"--task-set {name.strip()!r} is no set",
                repair=nearest(name.strip(), ["gpt1", *BY_NAME]).capitalize(),
            )
        chosen.append(BY_NAME[name.strip()])
    return chosen


def find(benchmark: Benchmark, data: Path) -> Found | None:
    """The set below `data`, or None where no training rows are there; raises DataError for damaged files."""
    folder = _folder(benchmark, data)
    if folder is None:
        return None
    paths: dict[str, Path] = {}
    remarks: list[str] = []
    train_source = _first(_with_hub(benchmark.train, "train"), folder)
    assert train_source is not None
    train = list(_rows(benchmark, "train", train_source, folder, paths, remarks))
    validation = None
    held = _first(_with_hub(benchmark.validation, "validation"), folder)
    if held is not None and held.files != train_source.files:
        validation = list(_rows(benchmark, "validation", held, folder, paths, remarks))
    tests = {}
    for name, test in benchmark.tests.items():
        source = _first(_with_hub(test.sources, name), folder)
        if source is not None:
            tests[name] = list(_rows(benchmark, name, source, folder, paths, remarks))
    if benchmark.name == "race":
        known = {row.segments[0].strip() for rows in tests.values() for row in rows}
        train = [row for row in train if row.segments[0].strip() not in known]
    return Found(benchmark, train, validation, tests, paths, remarks)


def is_there(benchmark: Benchmark, data: Path) -> bool:
    """Whether `find` would find the set; no rows but the first are read."""
    return _folder(benchmark, data) is not None


def _folder(benchmark: Benchmark, data: Path) -> Path | None:
    """The first of the set's folders below `data` that holds training rows."""
    sources = _with_hub(benchmark.train, "train")
    return next((data / name for name in benchmark.folders if _first(sources, data / name) is not None), None)


def _with_hub(sources: tuple[SetFiles, ...], part: str) -> tuple[SetFiles, ...]:
    """What was fetched from the hub on purpose comes before a sample that lies there."""
    official = tuple(source for source in sources if not source.remark)
    samples = tuple(source for source in sources if source.remark)
    return (*official, SetFiles((hub.file_name(part),), hub.read), *samples)


def _first(sources: tuple[SetFiles, ...], folder: Path) -> SetFiles | None:
    """The first source whose files are there and begin as its reader expects."""
    for source in sources:
        paths = [folder / name for name in source.files]
        if all(path.exists() for path in paths) and _readable(source, paths[0]):
            return source
    return None


def _readable(source: SetFiles, path: Path) -> bool:
    try:
        next(source.read(path), None)
    except (DataError, OSError, *MALFORMED):
        return False
    return True


def _rows(
    benchmark: Benchmark, part: str, source: SetFiles, folder: Path, paths: dict[str, Path], remarks: list[str]
) -> Iterator[Raw]:
    if source.remark:
        remarks.append(source.remark)
    number = 0
    for name in source.files:
        paths[part if len(source.files) == 1 else f"{part} {name}"] = folder / name
        try:
            for row in source.read(folder / name):
                number += 1
                if len(row.segments) < _FEWEST_TEXTS[benchmark.task]:
                    raise ValueError(f"it has {counted(len(row.segments), 'text')}")
                yield Raw(row.segments, row.label, number)
        except (OSError, *MALFORMED) as error:
            raise DataError(
                f"{folder / name} cannot be read behind row {number:,}: {type(error).__name__}: {error}",
                repair="Get the set again",
            ) from None


__all__ = ["BY_NAME", "SETS", "Found", "choose", "find", "is_there"]
