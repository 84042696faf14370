"""`headwater pack`: encode documents into the token stream that training reads.

Every document is encoded separately and ends with `<|endoftext|>` (GPT-2, section 2; a GPT-1 vocabulary has no
such token, so its books are just concatenated): `PartEncoder`. The training and the held-out part
(`corpus/division`) are `train-00000.npy`, …, and `validation-00000.npy`, … (`ShardWriter`).

| phase | a task reads | and writes |
|---|---|---|
| sizes | a file of the corpus | what the division needs to know of it |
| ids | all sizes and a file | the ids and the documents' starts of each part of it |

Each task writes a folder of its own unless it exists, next to the output, so that packing resumes where it was.
The ids of all files are then joined. Text is read in batches of a few megabytes; memory does not grow with the
corpus.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headwater.corpus import Division, Part, TaskRunner, parts_folder, read_documents, remove_parts
from headwater.errors import DataError, MismatchError
from headwater.pretraining.tokens.shards import ShardWriter
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
from headwater.tokenizer import END_OF_TEXT, Tokenizer, lost_text, token_dtype

# The parts of a tokens folder.
TOKEN_PARTS: tuple[Part, Part] = ("train", "validation")
# A part needs a few windows of the shortest reasonable context.
MINIMUM_TOKENS = 4 * 64 + 1
# What is counted of a part; the last four, a `LostText`, of held-out text alone, whose scores depend on it.
COUNTED = ("tokens", "documents", "bytes", "characters", "lost capitals", "lost white space", "lost other")
_COUNTS, _DIVISION = "counts.json", "division.json"
_BATCH_BYTES = 2 * 1024**2
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
    if not stage.is_complete(progress):
        folder = parts_folder(stage, version("headwater"))
        # The stage has compared the hashes of the corpus.
        names = sorted(open_folder(corpus, "corpus", hashes=False).files)
        files = tuple(name for name in names if name.endswith(".parquet"))
        named = Tokenizer.inputs_of(tokenizer).get("tokenizer")
        known = str(tokenizer if named is None else named.absolute())
        runner = PackRunner(folder, str(corpus), str(corpus.absolute()), files, known, validation, minimum)
        with storage_errors(out):
            folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(folder):
                counts = _do_tasks(runner, workers, engine, address, progress)
                with stage.write() as work:
                    for part in TOKEN_PARTS:
                        _join_files(runner, part, counts[part]["tokens"], work)
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
    runner: PackRunner, workers: int, engine: Literal["local", "ray"], address: str, progress: Progress
) -> Counts:
    """Do all tasks, and return the counts of both parts; raise DataError if one is too short."""
    if runner.missing("sizes", len(runner.files)):
        progress.start("measuring the corpus")

    @cache
    def encoded() -> dict[int, Counts]:
        """Begin to show the progress; return the counts of the files that are encoded, also by earlier runs."""
        progress.start("pack", total=runner.division.bytes / 1e6, unit="MB")
        missing = runner.missing("ids", len(runner.files))
        return {number: runner.counts(number) for number in range(len(runner.files)) if number not in missing}

    def show(file: Counts) -> None:
        """Show the encoded files and the beginning of another one."""
        parts = [part for counts in (*encoded().values(), file) for part in counts.values()]
        progress.advance(sum(part["bytes"] for part in parts) / 1e6, tokens=sum(part["tokens"] for part in parts))

    def on_done(phase: str, number: int) -> None:
        if phase == "ids":
            encoded()[number] = runner.counts(number)
            show({})

    runner.report = show
    runner.run_all(workers=workers, engine=engine, address=address, on_done=on_done)
    show({})
    files = [runner.counts(number) for number in range(len(runner.files))]
    counts: Counts = {}
    for part in TOKEN_PARTS:
        sums = {key: sum(count[part][key] for count in files) for key in COUNTED}
        counts[part] = {key: count for key, count in sums.items() if count or key in COUNTED[:3]}
    _refuse_short_parts(runner, counts)
    tokens = sum(count["tokens"] for count in counts.values())
    progress.finish(f"{tokens:,} tokens, {counts['validation']['tokens']:,} of them held out")
    return counts


@dataclass(eq=False)
class PackRunner(TaskRunner):
    """Does the tasks of packing: files of a corpus, with a tokenizer as `Tokenizer.load` takes it.

    name: the corpus as the user named it, for messages.
    """

    name: str
    corpus: str
    files: tuple[str, ...]
    tokenizer: str
    validation: float
    minimum: int

    def phases(self) -> Iterator[tuple[str, int]]:
        """Yield each phase and the number of its tasks."""
        yield "sizes", len(self.files)
        yield "ids", len(self.files)

    def counts(self, number: int) -> Counts:
        """Return what was counted of a file that is encoded."""
        counts: Counts = read_json(self.output("ids", number) / _COUNTS)
        return counts

    @cached_property
    def encoder(self) -> Tokenizer:
        """The tokenizer."""
        return Tokenizer.load(self.tokenizer)

    @cached_property
    def division(self) -> Division:
        """How the corpus is split, when all its files were measured."""
        whole = Division(self.validation)
        for number in range(len(self.files)):
            measured = read_json(self.output("sizes", number) / _DIVISION)
            whole = whole.joined(Division(**measured | {"sides": tuple(measured["sides"])}))
        return whole

    def make_sizes(self, number: int, work: Path) -> None:
        """Write what the division needs to know of a file."""
        measured = Division(self.validation).with_file(Path(self.corpus, self.files[number]))
        write_json(work / _DIVISION, asdict(measured))

    def make_ids(self, number: int, work: Path) -> None:
        """Write the ids and the documents' starts of each part of a file."""
        with ExitStack() as opened:
            encoders = {part: PartEncoder(work, part, self.encoder, opened) for part in TOKEN_PARTS}
            counts = {part: encoder.counts for part, encoder in encoders.items()}
            for document in read_documents(Path(self.corpus, self.files[number])):
                for part, piece in self.division.parts(document):
                    if encoders[part].add(piece.text):
                        encoders[part].encode()
                        self.report(counts)
            for encoder in encoders.values():
                encoder.close()
        write_json(work / _COUNTS, counts)


class PartEncoder:
    """Encodes the documents of a part in batches, into a file of ids and one of the documents' starts."""

    def __init__(self, work: Path, part: Part, tokenizer: Tokenizer, opened: ExitStack) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)
        self._is_scored = part == "validation"
        self._ids = opened.enter_context((work / f"{part}.ids").open("wb"))
        self._starts_file, self._starts = work / f"{part}.starts.npy", [np.empty(0, np.int64)]
        self._tokenizer, self._dtype = tokenizer, token_dtype(tokenizer.vocabulary_size)
        self._texts: list[str] = []
        self._batch_bytes = 0

    def add(self, text: str) -> bool:
        """Add a document; return whether the batch is full."""
        size = len(text.encode("utf-8"))
        self._texts.append(text)
        self._batch_bytes += size
        self.counts["bytes"] += size
        self.counts["documents"] += 1
        return self._batch_bytes >= _BATCH_BYTES

    def encode(self) -> None:
        """Encode the batch."""
        if not self._texts:
            return
        encoded, offsets = self._tokenizer.encode_array(self._texts, None)
        ids: np.ndarray = encoded
        if len(ids) and int(ids.max()) >= self._tokenizer.vocabulary_size:
            raise MismatchError(
                f"the tokenizer gave id {int(ids.max()):,}",
                expected=f"ids below its vocabulary size, {self._tokenizer.vocabulary_size:,}",
                repair="Check the tokenizer's files",
            )
        if self._is_scored and self._tokenizer.kind != "gpt2":
            for text, start, stop in zip(self._texts, offsets[:-1], offsets[1:], strict=True):
                loss = lost_text(self._tokenizer, text, ids[start:stop].tolist())
                for key, count in zip(COUNTED[3:], loss, strict=True):
                    self.counts[key] += count
        end = self._tokenizer.end_of_text
        if end is not None:
            ids = np.insert(ids, offsets[1:], end)
            offsets = offsets + np.arange(len(offsets))
        self._ids.write(np.ascontiguousarray(ids, dtype=self._dtype).data)
        self._starts.append(offsets[:-1] + self.counts["tokens"])
        self.counts["tokens"] += len(ids)
        self._texts, self._batch_bytes = [], 0

    def close(self) -> None:
        """Encode the last batch."""
        self.encode()
        save_array(self._starts_file, np.concatenate(self._starts))


def _refuse_short_parts(runner: PackRunner, counts: Counts) -> None:
    """Raise DataError if the training or the held-out part is too short, after removing what was encoded."""
    for part, name in (("train", "training"), ("validation", "held-out")):
        tokens = counts[part]["tokens"]
        if tokens >= runner.minimum:
            continue
        repair = "Gather more text"
        total = sum(count["tokens"] for count in counts.values())
        if part == "validation" and total * 0.5 > 2 * runner.minimum:
            needed = min(0.5, max(2 * runner.minimum / total, 2 * runner.validation))  # more is not allowed
            repair += f", or hold out more: --validation {needed:.2g}"
        shutil.rmtree(runner.folder, ignore_errors=True)  # the same command would fail again
        raise DataError(
            f"{runner.name} is too short: its {name} part has {tokens:,} tokens",
            expected=f"at least {runner.minimum}",
            repair=repair,
        )


def _join_files(runner: PackRunner, part: Part, tokens: int, work: Path) -> None:
    """Write the shards of a part from the ids of all files."""
    dtype = token_dtype(runner.encoder.vocabulary_size)
    with closing(ShardWriter(work, part, tokens, dtype)) as shards:
        for number in range(len(runner.files)):
            output = runner.output("ids", number)
            shards.add(np.fromfile(output / f"{part}.ids", dtype), np.load(output / f"{part}.starts.npy"))
