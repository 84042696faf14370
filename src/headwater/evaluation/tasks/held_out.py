"""Bits per byte on the held-out part of a tokens folder: the same text for a model and its yardsticks.

Each document is scored by itself, after `<|endoftext|>`. Every token and the final `<|endoftext|>` are scored
once, in windows of the model's context that advance by half of it. GPT-1's vocabulary has no end of text: there
the first token of a document costs as much as a uniform draw from the vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwater.errors import MismatchError
from headwater.evaluation.compression import END_OF_TEXT, NGRAM_BYTES, XZ_BYTES, yardsticks
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.data_files import Source
from headwater.evaluation.figures import Figure
from headwater.evaluation.protocols import Answer, Example, Metric, Scored, Task
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.pretraining import check_ids, shard_paths
from headwater.storage import Progress, read_manifest
from headwater.tokenizer import LostText, Tokenizer

Part = Literal["train", "validation"]

_PIECE_TOKENS = 65_536  # a sample of a long stream is the beginning of every piece of this length


class Alphabet:
    """The bytes of every token of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocabulary_size)]
        if tokenizer.end_of_text is not None:
            self._tokens[tokenizer.end_of_text] = END_OF_TEXT
        self.lengths = np.array([len(token) for token in self._tokens], dtype=np.int64)

    def decode(self, ids: NDArray[np.unsignedinteger]) -> bytes:
        """Return the bytes of a stream of ids; an end of text is the byte 0xFF."""
        return b"".join(map(self._tokens.__getitem__, ids.tolist()))


def document_ids(tokens: Path, part: Part) -> list[NDArray[np.unsignedinteger]]:
    """Return the ids of each document of a part with its end of text; a single shard is memory-mapped.

    Raises DataError for an id beyond the vocabulary.
    """
    manifest, shards = read_manifest(tokens, "tokens"), []
    for path in shard_paths(tokens, manifest, part):
        shards.append(np.load(path, mmap_mode="r"))
        check_ids(shards[-1], int(manifest.config["vocabulary_size"]), path)
    starts = [np.load(path) for path in shard_paths(tokens, manifest, f"documents-{part}")]
    before = np.cumsum([0, *(len(shard) for shard in shards[:-1])])
    ids = shards[0] if len(shards) == 1 else np.concatenate(shards)
    positions = np.concatenate([s + b for s, b in zip(starts, before, strict=True)])
    return [document for document in np.split(ids, positions[1:]) if len(document)]


def read_text(tokens: Path, part: Part, alphabet: Alphabet, size: int) -> bytes:
    """Return the text of a part, or if it is longer, up to `size` bytes of it in evenly spaced pieces.

    Raises DataError for an id beyond the vocabulary.
    """
    manifest, text = read_manifest(tokens, "tokens"), []
    share = min(1.0, size / max(1, manifest.config["counts"][part]["bytes"]))
    for path in shard_paths(tokens, manifest, part):
        shard = np.load(path, mmap_mode="r")
        count = max(1, len(shard) // _PIECE_TOKENS)
        for number in range(count):
            start, end = (len(shard) * n // count for n in (number, number + 1))
            length = max(1, int((end - start) * share))  # at least one token, however small the share
            ids = np.asarray(shard[start : start + length])
            check_ids(ids, int(manifest.config["vocabulary_size"]), path, start)
            text.append(alphabet.decode(ids))
    return b"".join(text)[:size]


class Documents(Sequence[Example]):
    """The held-out documents of a tokens folder, each decoded when it is used."""

    def __init__(self, tokens: Path) -> None:
        self._tokenizer = Tokenizer.load(tokens / "tokenizer")
        self._alphabet, self._ids = Alphabet(self._tokenizer), document_ids(tokens, "validation")
        self._sizes = [
            int(self._alphabet.lengths[ids].sum()) - int((ids == self._tokenizer.end_of_text).sum())
            for ids in self._ids
        ]
        # Kind gpt1 loses spaces and case; the bytes are those of the packed text.
        counts = read_manifest(tokens).config["counts"]["validation"]
        self._scale = counts["bytes"] / sum(self._sizes)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        ids = self._ids[index]
        text = self._alphabet.decode(ids).decode("utf-8", errors="ignore")  # without the 0xFF of an end of text
        content = {
            "ids": ids,
            "bytes": self._sizes[index] * self._scale,
            "tokenizer": self._tokenizer.identity,
            "text": _digest(text),
        }
        return Example(str(index), content, text=text)


class HeldOut(Task):
    """Total −log2 probability of the held-out tokens over the UTF-8 bytes of their text."""

    benchmark = "heldout"
    protocol = "heldout.bits-per-byte"
    summary = "held-out text, every token and end of document, over its UTF-8 bytes; with xz and an n-gram model"
    metrics = (Metric("bits per byte", higher_is_better=False),)
    in_windows = True
    sources = (
        Source("tokens", kind="tokens", where="Make one with: headwater pack CORPUS --tokenizer T --out DIR"),
    )

    def limited(self, examples: Sequence[Example], limit: int | None) -> Sequence[Example]:
        """Return `limit` evenly spaced documents, since the start of the part may be from one source."""
        if limit is None or limit >= len(examples):
            return examples
        return [examples[number * len(examples) // limit] for number in range(limit)]

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example per held-out document."""
        return Documents(files["tokens"])

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[ContinuationRequest]:
        """Return the windows of one document."""
        if example.content["tokenizer"] != encoder.tokenizer.identity:
            raise MismatchError(
                "the tokens were made with another tokenizer than the model's",
                expected="one tokenizer for both",
                repair="Pack the corpus with the tokenizer in the model's folder",
            )
        return encoder.windows(example.content["ids"].tolist())

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return bits and bytes of one document."""
        nats = -math.fsum(answer.total for answer in answers if isinstance(answer, Scored))
        if encoder.tokenizer.start_of_text is None:
            nats += math.log(encoder.tokenizer.vocabulary_size)
        count = len(example.content["ids"])
        return {"bits": nats / math.log(2), "bytes": example.content["bytes"], "tokens": count}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return bits per byte with its error over documents, and the loss per token."""
        bits, sizes = ([float(record[key]) for record in records] for key in ("bits", "bytes"))
        tokens = sum(record["tokens"] for record in records)
        loss = math.fsum(bits) * math.log(2) / tokens
        details = {"bytes": round(math.fsum(sizes)), "tokens": tokens, "nats per token": loss}
        return [Figure.ratio("bits per byte", bits, sizes, **details)]

    def details(
        self, files: Mapping[str, Path], examples: Sequence[Example], config: EvaluateConfig, progress: Progress
    ) -> dict[str, Any]:
        """Return the shares of the packed text that the tokenizer loses, and the yardsticks on the scored text."""
        tokens = files["tokens"]
        counts = read_manifest(tokens).config["counts"]
        kinds = ("characters", "lost capitals", "lost white space", "lost other")
        lost = LostText(*(counts["validation"].get(kind, 0) for kind in kinds)).shares()
        details: dict[str, Any] = {"lost text": lost} if lost else {}
        limit = config.yardstick_bytes
        if limit == 0:
            return details
        alphabet = Alphabet(Tokenizer.load(tokens / "tokenizer"))
        held_out = b"".join(alphabet.decode(example.content["ids"]) for example in examples)
        counted, packed = (
            read_text(tokens, "train", alphabet, size if limit is None else min(size, limit))
            for size in (NGRAM_BYTES, XZ_BYTES)
        )
        divisor = round(sum(example.content["bytes"] for example in examples))
        baselines = yardsticks(counted, packed, held_out, divisor, progress)
        return details | {
            "training text bytes": counts["train"]["bytes"],
            "yardsticks": [asdict(yardstick) for yardstick in baselines],
        }


def _digest(text: str) -> str:
    """Return a hash of a text's letters and digits, which all tokenizers keep."""
    return hashlib.sha256("".join(filter(str.isalnum, text.casefold())).encode()).hexdigest()[:16]


TASKS = [HeldOut()]
