"""`headwater pack`: encode documents into the token stream that training reads.

Every document is encoded separately and ends with `<|endoftext|>` (GPT-2, section 2; a GPT-1 vocabulary has no
such token, so its books are just concatenated). The training and the held-out part (`corpus/division`) are
`train-00000.npy`, …, and `validation-00000.npy`, … (`write_shard`).

| phase | a task reads | and writes |
|---|---|---|
| sizes | a file of the corpus | what the division needs to know of it |
| division | all sizes | how the corpus is split |
| ids | a file | the ids and the documents' starts of each part of it |
| bounds | the numbers of ids | where each file begins in each part's stream |
| shard | the ids of some files | a shard of a part |

Each task writes a folder of its own unless it exists, next to the output, so that packing resumes where it was.
Text is read in batches of a few megabytes; memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.corpus import Division, Part, Phase, TaskRunner, read_documents, remove_parts
from headwater.errors import DataError
from headwater.pretraining.tokens.part_writer import COUNTED, PartWriter
from headwater.reading import read_json
from headwater.storage import (
    INTERACTIVE,
    Progress,
    Stage,
    folder_lock,
    open_folder,
    save_array,
    storage_errors,
    write_json,
)
from headwater.tokenizer import END_OF_TEXT, Tokenizer, token_dtype

# The parts of a tokens folder.
TOKEN_PARTS: tuple[Part, Part] = ("train", "validation")
# The tokens of a shard that is full.
SHARD_TOKENS = 100_000_000
# A shorter last shard is appended to the previous one: no training window is longer.
LAST_SHARD_TOKENS = 65_536
# A part needs a few windows of the shortest reasonable context.
MINIMUM_TOKENS = 4 * 64 + 1
_COUNTS, _DIVISION = "counts.json", "division.json"
Counts = dict[str, dict[str, int]]  # {part: {"tokens", "documents", "bytes"}}


def pack(
    corpus: Path,
    tokenizer: str | Path,
    out: Path,
    validation: float = 0.05,
    *,
    minimum: int = MINIMUM_TOKENS,
    workers: int = 1,
    engine: Literal["local", "ray"] = "local",
    address: str = "",
    progress: Progress = INTERACTIVE,
) -> Counts:
    """Encode `corpus` into the tokens folder `out`, or find it there; resume what was killed.

    `tokenizer` is a folder, the name of an original ("gpt2", "gpt1") or of a model that ships; `validation` the
    fraction held out. `engine` "ray" does the tasks on the cluster at `address` (empty: started here), which must
    share the disk. Returns {"train": {"tokens", "documents", "bytes"}, "validation": {…}}: bytes are UTF-8 bytes
    of the packed text, to convert a loss in nats per token to bits per byte. Raises DataError if a part has fewer
    than `minimum` tokens, too few to train or to validate on.
    """
    Division(validation)  # raises UsageError
    loaded = Tokenizer.load(tokenizer)
    stage = tokens_stage(out, tokenizer, loaded, {"corpus": corpus}, {"validation": validation})
    inputs = [(entry.role, entry.identity) for entry in stage.inputs]
    key = json.dumps([version("headwater"), stage.config, inputs], sort_keys=True)
    folder = out.parent / f".{out.name}.{hashlib.sha256(key.encode()).hexdigest()[:12]}.parts"
    if not stage.is_complete(progress):
        # The stage has compared the hashes of the corpus.
        names = sorted(open_folder(corpus, "corpus", hashes=False).files)
        files = tuple(name for name in names if name.endswith(".parquet"))
        named = Tokenizer.inputs_of(tokenizer).get("tokenizer")
        known = str(tokenizer if named is None else named.absolute())
        plan = PackPlan(folder, str(corpus), str(corpus.absolute()), files, known, validation, minimum)
        with storage_errors(out):
            folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(folder):
                try:
                    counts = _do_tasks(plan, workers, engine, address, progress)
                except PartTooShortError:  # the same command would fail again
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                with stage.write() as work:
                    for number in range(_shards(plan)):
                        for path in plan.output("shard", number).glob("*.npy"):
                            shutil.move(path, work / path.name)
                    finish_tokens(stage, work, loaded, counts)
                    shards = [path for part in TOKEN_PARTS for path in work.glob(f"{part}-*.npy")]
                    if note := loaded.note_of_unknown(np.load(path, mmap_mode="r") for path in shards):
                        progress.note(note)
    remove_parts(out)
    return dict(stage.config["counts"])


def tokens_stage(
    out: Path, name: str | Path, tokenizer: Tokenizer, inputs: dict[str, Path], config: dict[str, Any]
) -> Stage:
    """Return the stage of a tokens folder; name: what `tokenizer` was loaded by."""
    inputs = inputs | Tokenizer.inputs_of(name)
    identity: dict[str, Any] = {
        "tokenizer_kind": tokenizer.kind,
        "vocabulary_size": tokenizer.vocabulary_size,
        "tokenizer_identity": tokenizer.identity,
    }
    if tokenizer.end_of_text != tokenizer.special_tokens.get(END_OF_TEXT):
        identity["end_of_text"] = tokenizer.end_of_text
    return Stage(out, kind="tokens", config=identity | config, inputs=inputs, measured=["counts"])


def finish_tokens(stage: Stage, work: Path, tokenizer: Tokenizer, counts: Counts) -> None:
    """Write the tokenizer's files and the counts of a tokens folder."""
    (work / "tokenizer").mkdir()
    tokenizer.save(work / "tokenizer")
    stage.config["counts"] = counts


def _do_tasks(
    plan: PackPlan, workers: int, engine: Literal["local", "ray"], address: str, progress: Progress
) -> Counts:
    """Do all tasks, and return the counts of both parts."""
    runner = PackRunner(plan)
    shown = _Shown(plan, progress)

    def on_done(phase: str, number: int) -> None:
        if phase == "division":
            shown.start(runner)
        elif phase == "ids":
            shown.add(number)
            shown.advance({})

    if runner.missing("division"):
        progress.start("pack")
    else:
        shown.start(runner)
    runner.report = shown.advance
    runner.run_all(workers=workers, engine=engine, address=address, on_done=on_done)
    counts: Counts = read_json(plan.output("bounds", 0) / _COUNTS)
    tokens = sum(count["tokens"] for count in counts.values())
    progress.finish(f"{tokens:,} tokens, {counts['validation']['tokens']:,} of them held out")
    return counts


class _Shown:
    """The progress that is shown: megabytes and tokens of the files that are encoded."""

    def __init__(self, plan: PackPlan, progress: Progress) -> None:
        self._plan, self._progress = plan, progress
        self._bytes = self._tokens = 0  # of whole files

    def start(self, runner: PackRunner) -> None:
        """Begin with the size, which the division tells, and with what earlier runs encoded."""
        self._progress.start("pack", total=self._plan.division.bytes / 1e6, unit="MB")
        for number in set(range(len(self._plan.files))).difference(runner.missing("ids")):
            self.add(number)
        self.advance({})

    def add(self, number: int) -> None:
        """Add a file."""
        counts = read_json(self._plan.output("ids", number) / _COUNTS).values()
        self._bytes += sum(count["bytes"] for count in counts)
        self._tokens += sum(count["tokens"] for count in counts)

    def advance(self, file: Counts) -> None:
        """Show the whole files and the beginning of another one."""
        tokens = self._tokens + sum(count["tokens"] for count in file.values())
        size = self._bytes + sum(count["bytes"] for count in file.values())
        self._progress.advance(size / 1e6, tokens=tokens)


@dataclass(frozen=True)
class PackPlan:
    """What is packed: files of a corpus, with a tokenizer as `Tokenizer.load` takes it.

    name: the corpus as the user named it, for messages.
    """

    folder: Path
    name: str
    corpus: str
    files: tuple[str, ...]
    tokenizer: str
    validation: float
    minimum: int

    def output(self, phase: str, number: int) -> Path:
        """Return the folder of a task's output; it exists when the task is done."""
        return self.folder / f"{phase}-{number:06d}"

    @cached_property
    def encoder(self) -> Tokenizer:
        """The tokenizer."""
        return Tokenizer.load(self.tokenizer)

    @cached_property
    def division(self) -> Division:
        """How the corpus is split, when all its files were measured."""
        return _read_division(self.output("division", 0))

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The type of the ids."""
        return token_dtype(self.encoder.vocabulary_size)


class PackRunner(TaskRunner):
    """Does the tasks of packing."""

    def __init__(self, plan: PackPlan) -> None:
        phases = (
            Phase("sizes", lambda plan: len(plan.files), _measure),
            Phase("division", lambda plan: 1, _divide),
            Phase("ids", lambda plan: len(plan.files), self._encode),
            Phase("bounds", lambda plan: 1, _bound),
            Phase("shard", _shards, _shard),
        )
        super().__init__(plan, phases)

    def _encode(self, plan: PackPlan, number: int, work: Path) -> None:
        with ExitStack() as opened:
            writers = {part: PartWriter(work, part, plan.encoder, opened) for part in TOKEN_PARTS}
            counts = {part: writer.counts for part, writer in writers.items()}
            for document in read_documents(Path(plan.corpus, plan.files[number])):
                for part, piece in plan.division.parts(document):
                    if writers[part].add(piece.text):
                        writers[part].encode()
                        self.report(counts)
            for writer in writers.values():
                writer.close()
        write_json(work / _COUNTS, counts)


def _shards(plan: PackPlan) -> int:
    counts = read_json(plan.output("bounds", 0) / _COUNTS)
    return sum(count_shards(counts[part]["tokens"]) for part in TOKEN_PARTS)


def _measure(plan: PackPlan, number: int, work: Path) -> None:
    measured = Division(plan.validation).with_file(Path(plan.corpus, plan.files[number]))
    write_json(work / _DIVISION, asdict(measured))


def _read_division(output: Path) -> Division:
    content = read_json(output / _DIVISION)
    return Division(**{**content, "sides": tuple(content["sides"])})


def _divide(plan: PackPlan, number: int, work: Path) -> None:
    whole = Division(plan.validation)
    for file in range(len(plan.files)):
        whole = whole.joined(_read_division(plan.output("sizes", file)))
    write_json(work / _DIVISION, asdict(whole))


def _bound(plan: PackPlan, number: int, work: Path) -> None:
    """Write where the ids of each file begin in each part; raise PartTooShortError."""
    counts = [read_json(plan.output("ids", file) / _COUNTS) for file in range(len(plan.files))]
    totals: Counts = {}
    for part in TOKEN_PARTS:
        save_array(work / f"{part}.npy", np.cumsum([0, *(count[part]["tokens"] for count in counts)]))
        sums = {key: sum(count[part][key] for count in counts) for key in COUNTED}
        totals[part] = {key: count for key, count in sums.items() if count or key in COUNTED[:3]}
    _check_lengths(plan, totals)
    write_json(work / _COUNTS, totals)


class PartTooShortError(DataError):
    """A part has too few tokens to train or to validate on."""


def _check_lengths(plan: PackPlan, counts: Counts) -> None:
    for part, name in (("train", "training"), ("validation", "held-out")):
        tokens = counts[part]["tokens"]
        if tokens >= plan.minimum:
            continue
        repair = "Gather more text"
        total = sum(count["tokens"] for count in counts.values())
        if part == "validation" and total * 0.5 > 2 * plan.minimum:
            needed = min(0.5, max(2 * plan.minimum / total, 2 * plan.validation))  # more is not allowed
            repair += f", or hold out more: --validation {needed:.2g}"
        raise PartTooShortError(
            f"{plan.name} is too short: its {name} part has {tokens:,} tokens",
            expected=f"at least {plan.minimum}",
            repair=repair,
        )


def _shard(plan: PackPlan, number: int, work: Path) -> None:
    counts = read_json(plan.output("bounds", 0) / _COUNTS)
    train = count_shards(counts["train"]["tokens"])
    part, index = (TOKEN_PARTS[0], number) if number < train else (TOKEN_PARTS[1], number - train)
    bounds = np.load(plan.output("bounds", 0) / f"{part}.npy")

    def piece(file: int) -> StreamPiece:
        output = plan.output("ids", file)
        empty = bounds[file] == bounds[file + 1]  # which cannot be mapped
        ids = np.empty(0, plan.dtype) if empty else np.memmap(output / f"{part}.ids", plan.dtype, mode="r")
        return StreamPiece(ids, np.load(output / f"{part}.starts.npy"))

    write_shard(work, part, index, bounds, piece, plan.dtype)


class StreamPiece(NamedTuple):
    """Consecutive ids of a stream, (tokens,), and the starts of the documents in them, (documents,) int64."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]


def count_shards(tokens: int) -> int:
    """Return the number of shards of a stream."""
    return max(1, (tokens - LAST_SHARD_TOKENS) // SHARD_TOKENS + 1)


def write_shard(
    folder: Path,
    part: str,
    index: int,
    bounds: npt.NDArray[np.int64],
    piece: Callable[[int], StreamPiece],
    dtype: type[np.uint16] | type[np.uint32],
) -> None:
    """Write a shard of a part: `PART-00000.npy`, one row of ids, and `documents-PART-00000.npy`, int64.

    The latter has the starts of the documents in the shard; one that continues in the next shard has no entry
    there. A shard has SHARD_TOKENS ids, the last one all that remain. bounds: where each piece begins in the
    stream, and its end; a part without tokens has one empty shard.
    """
    begin, total = index * SHARD_TOKENS, int(bounds[-1])
    is_last = index + 1 == count_shards(total)
    end = total if is_last else begin + SHARD_TOKENS
    starts = [np.empty(0, np.int64)]
    header: Mapping[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": (end - begin,),
    }
    with (folder / f"{part}-{index:05d}.npy").open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, dict(header))
        for number in range(int(np.searchsorted(bounds[1:], begin)), len(bounds) - 1):
            base = int(bounds[number])
            if base > end or (base == end and not is_last):
                break
            ids, own = piece(number)
            own_ids = ids[max(0, begin - base) : max(0, end - base)]
            handle.write(np.ascontiguousarray(own_ids, dtype=dtype).data)
            own = own + (base - begin)
            starts.append(own[(own >= 0) & (is_last | (own < end - begin))])
    save_array(folder / f"documents-{part}-{index:05d}.npy", np.concatenate(starts))
