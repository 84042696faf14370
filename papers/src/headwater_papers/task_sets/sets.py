"""Find the files of GPT-1's twelve sets, and read their rows.

If a set's training rows are not available, another file serves as training data, with a remark that the result is
not comparable with the paper's. `divide` makes the parts that are then missing.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csgraph

from headwater.display import counted
from headwater.errors import MALFORMED, DataError, UsageError, suggest
from headwater.finetuning import Raw, TaskName
from headwater_papers.task_sets import hub
from headwater_papers.task_sets.benchmarks import READERS, SETS, Benchmark, SetFiles

# A choice has a document, a question and at least two answers.
_FEWEST_TEXTS = {"classify": 1, "entail": 2, "similarity": 2, "choice": 4}
# GPT-1's sets by name.
BY_NAME = {benchmark.name: benchmark for benchmark in SETS}
# The shares of the rows of one file that becomes several parts.
_VALIDATION, _TEST = 0.1, 0.3
DIVIDED = "divided here into parts that share no text"


@dataclass(frozen=True)
class Found:
    """The available parts of a set, rows and paths; `remarks` say which parts are not the official ones."""

    benchmark: Benchmark
    train: list[Raw]
    validation: list[Raw] | None
    tests: dict[str, list[Raw]]
    paths: dict[str, Path]
    remarks: list[str]


def choose(names: str) -> list[Benchmark]:
    """Return the sets with these names: gpt1 for all twelve, or names separated by commas."""
    if names == "gpt1":
        return list(SETS)
    chosen = []
    for name in names.split(","):
        if name.strip() not in BY_NAME:
            known = ["gpt1", *BY_NAME]
            raise UsageError(f"there is no set {name.strip()!r}", **suggest(name.strip(), known))
        chosen.append(BY_NAME[name.strip()])
    return chosen


def find(benchmark: Benchmark, data: Path) -> Found | None:
    """Read the set below `data`; None if it has no training rows. Raises DataError for damaged files."""
    folder = _folder(benchmark, data)
    if folder is None:
        return None
    paths: dict[str, Path] = {}
    remarks: list[str] = []
    train_source = _first(_train_sources(benchmark), folder)
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
        known = {text for rows in tests.values() for row in rows for text in separate_texts(row, benchmark.task)}
        train = [row for row in train if known.isdisjoint(separate_texts(row, benchmark.task))]
    if validation is None and (train_source.remark or not tests):
        own = {} if tests else {next(iter(benchmark.tests)): _TEST}
        shares = {"train": 1 - _VALIDATION - sum(own.values()), "validation": _VALIDATION} | own
        parts = divide(train, benchmark.task, shares)
        train, validation = parts.pop("train"), parts.pop("validation")
        tests |= parts
        remarks.append(DIVIDED)
    return Found(benchmark, train, validation, tests, paths, remarks)


def separate_texts(row: Raw, task: TaskName) -> list[str]:
    """Return the texts of a row that should be in one part only: all of them, or the document of a choice."""
    return [text.strip() for text in (row.segments[:1] if task == "choice" else row.segments)]


def divide(rows: Sequence[Raw], task: TaskName, shares: Mapping[str, float]) -> dict[str, list[Raw]]:
    """Divide the rows of one file into parts of about these shares, in the order of the file.

    Rows that share a text are in one part: the question, premise or passage of a test row is not in training. The
    largest groups are placed first, and the first part gets the very largest. The parts depend on the rows alone.
    """
    first: dict[str, int] = {}
    texts = ((text, place) for place, row in enumerate(rows) for text in separate_texts(row, task))
    pairs = np.array([(first.setdefault(text, place), place) for text, place in texts], np.int64).reshape(-1, 2)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    edges = coo_array((np.ones(len(pairs), np.int8), tuple(pairs.T)), shape=(len(rows), len(rows)))
    for place, group in enumerate(csgraph.connected_components(edges, directed=False)[1].tolist()):
        groups[group].append(place)

    def order(group: list[int]) -> tuple[int, bytes]:
        return -len(group), hashlib.sha256("\0".join(rows[group[0]].segments).encode()).digest()

    places: dict[str, list[int]] = {part: [] for part in shares}
    for group in sorted(groups.values(), key=order):
        least = min(shares, key=lambda part: len(places[part]) / shares[part])
        places[least] += group
    return {part: [rows[place] for place in sorted(chosen)] for part, chosen in places.items()}


def is_there(benchmark: Benchmark, data: Path) -> bool:
    """Return whether `find` would find the set; read only the first row."""
    return _folder(benchmark, data) is not None


def _folder(benchmark: Benchmark, data: Path) -> Path | None:
    """Return the first of the set's folders below `data` that has training rows."""
    sources = _train_sources(benchmark)
    return next((data / name for name in benchmark.folders if _first(sources, data / name) is not None), None)


def _train_sources(benchmark: Benchmark) -> tuple[SetFiles, ...]:
    return _with_hub(benchmark.train, "train", benchmark.hub.remark if benchmark.hub else "")


def _with_hub(sources: tuple[SetFiles, ...], part: str, remark: str = "") -> tuple[SetFiles, ...]:
    """Insert the files fetched from the hub after the official files and before samples."""
    official = tuple(source for source in sources if not source.remark)
    samples = tuple(source for source in sources if source.remark)
    return (*official, SetFiles(files=(hub.file_name(part),), reader="hub", remark=remark), *samples)


def _first(sources: tuple[SetFiles, ...], folder: Path) -> SetFiles | None:
    """Return the first source whose files exist and begin as its reader expects; None if no source has files.

    Raises DataError if there are files and none of their readers can read them.
    """
    failure: DataError | None = None
    for source in sources:
        paths = [folder / name for name in source.files]
        if not all(path.exists() for path in paths):
            continue
        try:
            next(READERS[source.reader](paths[0]), None)
            return source
        except DataError as error:
            failure = failure or error
        except (OSError, *MALFORMED) as error:
            failure = failure or _unreadable(paths[0], 0, error)
    if failure is not None:
        raise failure
    return None


def _unreadable(path: Path, row: int, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read after row {row:,}: {type(error).__name__}: {error}", repair="Get the set again"
    )


def _rows(
    benchmark: Benchmark, part: str, source: SetFiles, folder: Path, paths: dict[str, Path], remarks: list[str]
) -> Iterator[Raw]:
    if source.remark:
        remarks.append(source.remark)
    number = broken = 0
    for name in source.files:
        paths[part if len(source.files) == 1 else f"{part} {name}"] = folder / name
        try:
            for row in READERS[source.reader](folder / name):
                if not row.segments:
                    broken += 1
                    continue
                if len(row.segments) < _FEWEST_TEXTS[benchmark.task]:
                    raise ValueError(f"the next one has {counted(len(row.segments), 'text')}")
                number += 1
                yield Raw(row.segments, row.label, number)
        except DataError:
            raise
        except (OSError, *MALFORMED) as error:
            raise _unreadable(folder / name, number, error) from None
    if broken:
        remarks.append(f"{counted(broken, 'line')} of {part} with too few fields left out")
