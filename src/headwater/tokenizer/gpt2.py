"""GPT-2's encoding: pre-split and byte-level pairs of Radford et al. 2019, section 2.2.

The `tokenizers` library encodes short texts, as its calls cost less, and gigatoken (extra "fast"), which is about
thirty times as fast, long ones. gigatoken is young: only the release whose ids the tests compare is used.
"""

from __future__ import annotations

import importlib.metadata
import logging
import re
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headwater.reading import cut_text
from headwater.tokenizer.codec import LibraryCodec
from headwater.tokenizer.folder import tokenizer_json
from headwater.tokenizer.vocabulary import Encoded, Vocabulary, as_unicode

# The original's pre-split (encoder.py of the release). It does not match upper-case contractions, an oversight of
# the authors that every GPT-2 vocabulary depends on.
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TESTED = "0.10.0"  # the release of gigatoken; also in pyproject.toml
# Characters of a call from which gigatoken is worth its start: `pack` encodes two megabytes a call.
_LONG = 1_500_000
# Characters in such calls after which its absence is worth a warning: the library encodes them in about a minute.
_MANY = 100_000_000
# The pre-split always has a border between a visible character and a space: a long text may be cut there.
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \n])")
_CUT_CHARACTERS = 1 << 16
_LOG = logging.getLogger(__name__)


class ByteLevelCodec(LibraryCodec):
    """Text to ids and back for a vocabulary of kind "gpt2": decode(encode(x)) == x for every text."""

    _slow = 0  # characters in calls that gigatoken would have encoded

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        size = sum(map(len, texts))
        engine = self._fast if size >= _LONG else None
        if isinstance(engine, GigatokenEngine):
            names = self.names(allowed)
            if not any(name in text for name in names for text in texts):
                try:
                    return engine.encode(texts)
                except TypeError:  # surrogates, which take a search of every text to find
                    return engine.encode(as_unicode(texts))
        elif engine is not None:
            before, self._slow = self._slow, self._slow + size
            if before < _MANY <= self._slow:
                _LOG.warning("%s: much text is encoded slowly", engine)
        return super().encode_array(texts, allowed)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; invalid UTF-8 becomes U+FFFD."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8", errors="replace")

    def cut(self, text: str) -> Iterable[str]:
        """Cut a long text at borders of the pre-split, to limit the library's memory."""
        # An added token with white space in it, or that takes white space after it, may reach across a cut.
        if len(text) <= _CUT_CHARACTERS or any(
            t.rstrip or re.search(r"\s", t.content) for t in self.vocabulary.added
        ):
            return [text]
        return cut_text(text, _CUT_CHARACTERS, _SAFE_CUT)

    @cached_property
    def _fast(self) -> GigatokenEngine | str:
        """gigatoken, or why it is not used."""
        try:
            release = importlib.metadata.version("gigatoken")
            if release == TESTED:
                return GigatokenEngine(self.vocabulary)
            return f"gigatoken {release} is installed, and {TESTED} is tested"
        except importlib.metadata.PackageNotFoundError:
            return "gigatoken is not installed (pip install 'headwater[fast]')"
        except Exception as error:  # whatever the package raises, the library encodes
            return f"gigatoken cannot use this vocabulary ({error})"


class GigatokenEngine:
    """gigatoken for a vocabulary. A lock, because its tokenizer raises "Already borrowed" in a second thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from gigatoken import Tokenizer
        from gigatoken.gigatoken_rs import load_hf_json

        self._tokenizer: Any = Tokenizer(load_hf_json(tokenizer_json(vocabulary, specials=False)))
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts and len(texts) + 1 offsets; special tokens are plain text.

        Raises TypeError for a text with surrogates.
        """
        if len(texts) == 1:
            with self._lock:
                ids = np.asarray(self._tokenizer.encode(texts[0]), np.uint32)
            return ids, np.array([0, len(ids)], np.int64)
        with self._lock:
            layout = self._tokenizer.encode_batch(list(texts)).layout
        offsets = np.asarray(layout.offsets.data, np.int64)
        return np.asarray(layout.content.data, np.uint32)[offsets[0] : offsets[-1]], offsets - offsets[0]
