"""A part of a tokens folder as documents of token ids, or as bytes of text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headwater.evaluation.yardsticks import END_OF_TEXT
from headwater.pretraining import check_ids, shard_paths
from headwater.storage import open_folder
from headwater.tokenizer import Tokenizer

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

    Raises FolderError for another folder, DataError for an id beyond the vocabulary.
    """
    shards, vocabulary = [], _vocabulary(tokens)
    for path in shard_paths(tokens, open_folder(tokens, "tokens"), part):
        shards.append(np.load(path, mmap_mode="r"))
        check_ids(shards[-1], vocabulary, path)
    starts = [np.load(path) for path in shard_paths(tokens, open_folder(tokens, "tokens"), f"documents-{part}")]
    before = np.cumsum([0, *(len(shard) for shard in shards[:-1])])
    ids = shards[0] if len(shards) == 1 else np.concatenate(shards)
    positions = np.concatenate([s + b for s, b in zip(starts, before, strict=True)])
    return [document for document in np.split(ids, positions[1:]) if len(document)]


def read_text(tokens: Path, part: Part, alphabet: Alphabet, size: int) -> bytes:
    """Return the text of a part, or if it is longer, about `size` bytes of it in evenly spaced pieces.

    Raises DataError for an id beyond the vocabulary.
    """
    share = min(1.0, size / max(1, counted_bytes(tokens, part)))
    text, vocabulary = [], _vocabulary(tokens)
    for path in shard_paths(tokens, open_folder(tokens, "tokens"), part):
        shard = np.load(path, mmap_mode="r")
        count = max(1, len(shard) // _PIECE_TOKENS)
        for number in range(count):
            start, end = (len(shard) * n // count for n in (number, number + 1))
            length = max(1, int((end - start) * share))  # at least one token, however small the share
            ids = np.asarray(shard[start : start + length])
            check_ids(ids, vocabulary, path, start)
            text.append(alphabet.decode(ids))
    return b"".join(text)


def counted_bytes(tokens: Path, part: Part) -> int:
    """Return the number of UTF-8 bytes of the text that was packed into a part."""
    return int(open_folder(tokens, "tokens").config["counts"][part]["bytes"])


def _vocabulary(tokens: Path) -> int:
    return int(open_folder(tokens, "tokens").config["vocabulary_size"])
