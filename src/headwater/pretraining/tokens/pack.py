"""`headwater pack`: encode documents into the token stream that training reads.

Every document is encoded separately and ends with `<|endoftext|>` (GPT-2, section 2; a GPT-1 vocabulary has no
such token, so its books are just concatenated). The training and the held-out part (`corpus/split`) are written in
parallel, `train-00000.npy`, `validation-00000.npy`, …: one row of uint16, or of uint32 for vocabularies of more
than 65,536 rows; `documents-train-00000.npy`, … (int64) has the documents' starts. A shard ends after SHARD_TOKENS
tokens; a document that continues in the next shard has no entry there. `tokenizer/` has the tokenizer's files.

Text is read in batches of a few megabytes; memory does not grow with the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from headwater.corpus import Part, check_fraction, measure, split
from headwater.errors import DataError, MismatchError
from headwater.storage import SILENT, Progress, Stage, save_array
from headwater.tokenizer import END_OF_TEXT, Tokenizer, token_dtype

# The parts of a tokens folder.
PARTS: tuple[Part, Part] = ("train", "validation")
# The tokens of a shard that is full.
SHARD_TOKENS = 100_000_000
# A shorter last shard is appended to the previous one: no training window is longer.
LAST_SHARD_TOKENS = 65_536
# A part needs a few windows of the shortest reasonable context.
MINIMUM_TOKENS = 4 * 64 + 1
_BATCH_BYTES = 2 * 1024**2


def pack(
    corpus: Path,
    tokenizer: str | Path,
    out: Path,
    validation: float = 0.05,
    *,
    minimum: int = MINIMUM_TOKENS,
    progress: Progress = SILENT,
) -> dict[str, dict[str, int]]:
    """Encode `corpus` into the tokens folder `out`, or find it there.

    `tokenizer` is a folder, the name of an original ("gpt2", "gpt1") or of a model that ships; `validation` the
    fraction held out. Returns {"train": {"tokens", "documents", "bytes"}, "validation": {…}}: bytes are UTF-8
    bytes of the packed text, to convert a loss in nats per token to bits per byte. Raises DataError if a part has
    fewer than `minimum` tokens, too few to train or to validate on.
    """
    check_fraction(validation)
    loaded = Tokenizer.load(tokenizer)
    stage = tokens_stage(out, tokenizer, loaded, {"corpus": corpus}, {"validation": validation})
    if not stage.is_complete(progress):
        with stage.write() as work:
            finish_tokens(stage, work, loaded, _fill(work, corpus, loaded, validation, minimum, progress))
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


def finish_tokens(stage: Stage, work: Path, tokenizer: Tokenizer, counts: dict[str, dict[str, int]]) -> None:
    """Write the tokenizer's files and the counts of a tokens folder."""
    (work / "tokenizer").mkdir()
    tokenizer.save(work / "tokenizer")
    stage.config["counts"] = counts


def _fill(
    work: Path, corpus: Path, tokenizer: Tokenizer, validation: float, minimum: int, progress: Progress
) -> dict[str, dict[str, int]]:
    size = measure(corpus)
    progress.start("pack", total=size.bytes / 1e6, unit="MB")
    parts = {part: _PartWriter(work, part, tokenizer) for part in PARTS}
    counts: dict[str, dict[str, int]] = {part: writer.counts for part, writer in parts.items()}
    try:
        for part, document in split(corpus, validation):
            if parts[part].add(document.text):
                parts[part].encode()
                done = sum(count["bytes"] for count in counts.values())
                progress.advance(done / 1e6, tokens=sum(count["tokens"] for count in counts.values()))
        for writer in parts.values():
            writer.encode()
            writer.shards.close()
    finally:
        for writer in parts.values():
            writer.shards.abandon()
    _check_lengths(corpus, counts, validation, minimum)
    tokens = sum(count["tokens"] for count in counts.values())
    progress.finish(f"{tokens:,} tokens, {counts['validation']['tokens']:,} of them held out")
    return counts


def _check_lengths(corpus: Path, counts: dict[str, dict[str, int]], validation: float, minimum: int) -> None:
    for part, name in (("train", "training"), ("validation", "held-out")):
        tokens = counts[part]["tokens"]
        if tokens >= minimum:
            continue
        repair = "Gather more text, or continue a shipped model: headwater quickstart FILE"
        total = sum(count["tokens"] for count in counts.values())
        if part == "validation" and total * 0.5 > 2 * minimum:
            needed = min(0.5, max(2 * minimum / total, 2 * validation))  # more is not allowed
            repair += f", or hold out more: --validation {needed:.2g}"
        raise DataError(
            f"{corpus} is too short: its {name} part has {tokens:,} tokens",
            expected=f"at least {minimum}",
            repair=repair,
        )


class _PartWriter:
    """Encoder of one part's documents, in batches."""

    def __init__(self, work: Path, part: Part, tokenizer: Tokenizer) -> None:
        dtype = token_dtype(tokenizer.vocabulary_size)
        self.shards = ShardWriter(work, part, dtype, SHARD_TOKENS, LAST_SHARD_TOKENS)
        self.counts = {"tokens": 0, "documents": 0, "bytes": 0}
        self._tokenizer = tokenizer
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
        end = self._tokenizer.end_of_text
        if end is not None:
            ids = np.insert(ids, offsets[1:], end)
            offsets = offsets + np.arange(len(offsets))
        self.shards.write(ids, offsets[:-1])
        self.counts["tokens"] += len(ids)
        self._texts, self._batch_bytes = [], 0


@dataclass
class ShardWriter:
    """Writer of one part's stream: .npy shards of `shard_tokens` tokens, and their documents' starts.

    The last shard may be longer, by less than `last_shard_tokens`.
    """

    folder: Path
    part: str
    dtype: type[np.uint16] | type[np.uint32]
    shard_tokens: int
    last_shard_tokens: int
    _index: int = 0
    _written: int = 0  # tokens in the open shard
    _starts: list[np.ndarray] = field(default_factory=list)  # document starts in the stream from this shard on
    _held: list[np.ndarray] = field(default_factory=list)  # tokens past the open shard's end
    _held_tokens: int = 0
    _handle: IO[bytes] | None = None

    def write(self, ids: np.ndarray, starts: np.ndarray) -> None:
        """Append ids, (tokens,); starts: (documents,) int64, the documents' starts within them."""
        self._starts.append(starts + (self._written + self._held_tokens))
        free = self.shard_tokens - self._written
        if free > 0:
            self._append(ids[:free])
            ids = ids[free:]
        if not len(ids):
            return
        self._held.append(ids)
        self._held_tokens += len(ids)
        if self._held_tokens >= self.last_shard_tokens:
            self._next_shard()

    def close(self) -> None:
        """Finish the last shard; a part without tokens has one empty shard."""
        for ids in self._held:
            self._append(ids)
        self._held, self._held_tokens = [], 0
        self._append(np.empty(0, self.dtype))
        starts = np.concatenate([np.empty(0, np.int64), *self._starts])
        self._finish_shard(starts)
        self._starts = []

    def abandon(self) -> None:
        """Close the file of an unfinished shard."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _next_shard(self) -> None:
        starts = np.concatenate(self._starts)
        end = self._written
        self._finish_shard(starts[starts < end])
        held = np.concatenate(self._held)
        self._held, self._held_tokens, self._starts = [], 0, []
        self._index, self._written = self._index + 1, 0
        self.write(held, starts[starts >= end] - end)

    def _append(self, ids: np.ndarray) -> None:
        if self._handle is None:
            self._handle = (self.folder / f"{self.part}-{self._index:05d}.npy").open("wb")
            _write_header(self._handle, self.dtype, 0)
        self._handle.write(np.ascontiguousarray(ids, dtype=self.dtype).tobytes())
        self._written += len(ids)

    def _finish_shard(self, starts: np.ndarray) -> None:
        if self._handle is not None:
            self._handle.seek(0)
            _write_header(self._handle, self.dtype, self._written)
            self._handle.close()
            self._handle = None
        name = f"documents-{self.part}-{self._index:05d}.npy"
        save_array(self.folder / name, starts.astype(np.int64))


def _write_header(handle: IO[bytes], dtype: type[np.generic], length: int) -> None:
    """Write a .npy header; NumPy pads it, so that it can be rewritten in place with a larger length."""
    header: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": (length,),
    }
    np.lib.format.write_array_header_1_0(handle, header)
