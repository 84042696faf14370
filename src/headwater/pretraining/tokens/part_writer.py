"""Encode the documents of a part of a corpus in batches, into a file of ids and one of the documents' starts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from headwater.corpus import Part
from headwater.errors import MismatchError
from headwater.storage import save_array
from headwater.tokenizer import Tokenizer, lost_text, token_dtype

_BATCH_BYTES = 2 * 1024**2
# What is counted of a part; the last four, a `LostText`, of held-out text alone, whose scores depend on it.
COUNTED = ("tokens", "documents", "bytes", "characters", "lost capitals", "lost white space", "lost other")


class PartWriter:
    """Encoder of one part's documents in a file, in batches."""

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
