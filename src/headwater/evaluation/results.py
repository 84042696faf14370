"""`results.json`: the results of an evaluation, and files with every example.

`results.json` has one entry for each protocol and metric, with the papers' values, and what was skipped and why.
`examples/PROTOCOL.jsonl` has a line for each example with all its log-probabilities, from which every figure can
be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwater.display import counted_examples
from headwater.errors import FolderError
from headwater.evaluation.figures import Figure
from headwater.reading import parse_json, read_json
from headwater.storage import atomic_write, open_folder, to_json

KIND = "results"
FILE = "results.json"


@dataclass(frozen=True, kw_only=True)
class Result(Figure):
    """A figure of one protocol; `chance` is the value of random guessing, None if it is not defined."""

    task: str
    protocol: str
    seconds: float
    published: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None
    higher_is_better: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def examples(self) -> str:
        """Return the number of examples, and of how many they are the first: `200 of 5,153 examples`."""
        return counted_examples(self.count, self.details)


@dataclass(frozen=True)
class Skipped:
    """A protocol that could not be evaluated, or examples of one that could not be asked."""

    task: str
    protocol: str
    reason: str
    examples: int | None = None  # None: all
    failed: bool = False  # although its files were found and the model suits it


@dataclass(frozen=True)
class Results:
    """The results of one evaluation, and what it skipped."""

    model: str
    results: Sequence[Result]
    skipped: Sequence[Skipped] = ()

    def __repr__(self) -> str:
        """Return the figures in one line each: settings and details of a result fill pages."""
        lines = [f"  {r.protocol} {r.metric} {r.value:.4g} ({r.count:,} examples)" for r in self.results]
        lines += [f"  {s.protocol} skipped: {s.reason}" for s in self.skipped if s.examples is None]
        return "\n".join([f"Results of {self.model}:", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return the content of results.json."""
        results = [{"task": r.task, "protocol": r.protocol, **asdict(r)} for r in self.results]
        return {"model": self.model, "results": results, "skipped": [asdict(entry) for entry in self.skipped]}

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read a results folder; raise FolderError if it is damaged or of another kind."""
        open_folder(folder, KIND)
        content = read_json(folder / FILE)
        try:
            return cls(
                model=content["model"],
                results=[Result(**entry) for entry in content["results"]],
                skipped=[Skipped(**entry) for entry in content["skipped"]],
            )
        except (KeyError, TypeError) as error:
            raise FolderError(f"{folder / FILE} has another format: {error}", repair="Evaluate again") from None


@contextmanager
def examples_writer(protocol: str, folder: Path) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """Yield a function that appends a record to examples/PROTOCOL.jsonl, which an error in the block removes."""
    path = examples_path(folder, protocol)
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as file:
        yield lambda record: file.write(to_json(record))


def read_examples(folder: Path, protocol: str) -> Iterator[dict[str, Any]]:
    """Yield the stored examples of a protocol in their order; none if the folder does not have the protocol."""
    path = examples_path(folder, protocol)
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield parse_json(line)


def examples_path(folder: Path, protocol: str) -> Path:
    """Return the path of a protocol's examples."""
    return folder / "examples" / f"{protocol}.jsonl"
