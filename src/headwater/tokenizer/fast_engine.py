"""gigatoken, the faster engine for kind "gpt2", and the check that decides whether it is used.

gigatoken (extra "fast") is about thirty times as fast as `tokenizers`, the reference, and young: before it is
used for a vocabulary, both encode a probe with every border between categories of characters, the spelled-out
vocabulary and long runs. It is not used if a single id differs.
"""

from __future__ import annotations

import logging
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.tokenizer.files import tokenizer_json
from headwater.tokenizer.vocabulary import Encoded, Vocabulary, characters_to_bytes

if TYPE_CHECKING:
    from headwater.tokenizer.gpt2 import LibraryEngine

_LOG = logging.getLogger(__name__)
# The probe includes code points below this and a few of the unassigned and private ones above.
_PROBED = 0x32400
_PROBED_BEYOND = (0xE0001, 0xE0100, 0xF0000, 0x10FFFD)
_PROBED_STEP = 257


class GigatokenEngine:
    """gigatoken; raises ModuleNotFoundError if it is not installed.

    A lock, because its tokenizer raises "Already borrowed" in a second thread.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from gigatoken import Tokenizer
        from gigatoken.gigatoken_rs import load_hf_json

        self._tokenizer: Any = Tokenizer(load_hf_json(tokenizer_json(vocabulary, specials=False)))
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return the ids of all texts and len(texts) + 1 offsets; special tokens are plain text."""
        if len(texts) == 1:
            with self._lock:
                ids = np.asarray(self._tokenizer.encode(texts[0]), np.uint32)
            return ids, np.array([0, len(ids)], np.int64)
        if not texts:
            return np.zeros(0, np.uint32), np.zeros(1, np.int64)
        with self._lock:
            layout = self._tokenizer.encode_batch(list(texts)).layout
        offsets = np.asarray(layout.offsets.data, np.int64)
        return np.asarray(layout.content.data, np.uint32)[offsets[0] : offsets[-1]], offsets - offsets[0]


def fast_engine(vocabulary: Vocabulary, reference: LibraryEngine) -> GigatokenEngine | None:
    """Return gigatoken if it is installed and its ids for the probe equal the reference's, else None."""
    try:
        engine = GigatokenEngine(vocabulary)
        differing = first_difference(engine, reference, vocabulary)
    except ModuleNotFoundError:
        _note("gigatoken is not installed: long texts are encoded slowly. pip install 'headwater[fast]'")
        return None
    except Exception as error:  # whatever the package raises, the other engine encodes
        _note(f"gigatoken cannot use this vocabulary ({error}): the slower engine is used")
        return None
    if differing is not None:
        _note(f"gigatoken gives other ids for {differing!r}: the slower engine is used")
        return None
    return engine


def first_difference(engine: GigatokenEngine, reference: LibraryEngine, vocabulary: Vocabulary) -> str | None:
    """Return the first text of the probe that the engines encode differently, alone or in a batch."""
    texts = list(probe(vocabulary))
    data = [text.encode() for text in texts]
    ids, offsets = engine.encode(data)
    right, right_offsets = reference.encode(data)
    for number, text in enumerate(texts):
        given = ids[offsets[number] : offsets[number + 1]]
        expected = right[right_offsets[number] : right_offsets[number + 1]]
        if not np.array_equal(given, expected) or not np.array_equal(engine.encode([data[number]])[0], given):
            return text
    return None if len(offsets) == len(right_offsets) else texts[0]


def probe(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield the texts on which the engines are compared."""
    yield ""
    yield from _borders()
    yield from (
        " " * 70_000 + "x",
        "\n" * 5_000 + " a",
        "a" * 40_000,
        "=" * 20_000,
        "7" * 20_000,
        "\u00e9" * 9_000,
    )
    yield "I'm we'll they've you're he'd it's don't I'M WE'LL THEY'VE 's't're've'm'll'd ''s ' s \u2019s"
    yield "  two   three\t\ttabs \r\n\r\n lines \n \n \u3000\u00a0 x \x1c\x1d\x1e\x1f \x85 \u2028 \u180e ."
    yield " ".join(vocabulary.specials) + "".join(vocabulary.specials)
    ordinary = [token for token in vocabulary.tokens if token not in vocabulary.specials]
    spelled = [characters_to_bytes(token).decode(errors="ignore") for token in ordinary]
    yield "".join(spelled[::3])
    yield "\u00a7".join(spelled[1::9])


@lru_cache(maxsize=1)
def _borders() -> tuple[str, ...]:
    """Return code points at every border of a category, and some between, next to letters, numbers and signs."""
    chosen: list[int] = list(_PROBED_BEYOND)
    before = ""
    for code in range(_PROBED):
        category = unicodedata.category(chr(code))
        if category != "Cs" and (category[0] != before or code % _PROBED_STEP == 0):
            chosen.append(code)
            if code and not 0xD800 <= code - 1 <= 0xDFFF:
                chosen.append(code - 1)
        before = category[0]
    texts = [f"a{c}1{c} {c} !{c}" for c in map(chr, chosen)]
    return tuple("".join(texts[start : start + 500]) for start in range(0, len(texts), 500))


@lru_cache(maxsize=8)
def _note(text: str) -> None:
    _LOG.warning(text)
