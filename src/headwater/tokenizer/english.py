"""spaCy's English word rules in linear time for most texts, with the same words.

spaCy strips affixes from a string one at a time and reads the whole rest each time, so that a run of n signs takes
n² steps. Its affix rules depend on a few characters. `EnglishWords` applies them to a window of the string's start
or end. The rules are read from `spacy.blank("en").tokenizer`, and the words are equal. A line in which a special
case could span a space is split by spaCy itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headwater.errors import require_extra

# Characters of a string's start or end that an affix rule reads first. Every rule except a run of dots needs
# fewer; if a match comes near the window's border, the window grows.
_WINDOW = 12


class EnglishWords:
    """Split chunks, parts of a line without white space, and whole lines into spaCy's words."""

    def __init__(self) -> None:
        with require_extra("gpt1", "GPT-1's tokenizer"):
            import spacy
            from spacy.symbols import ORTH
        tokenizer: Any = spacy.blank("en").tokenizer
        self._prefix: Any = tokenizer.prefix_search.__self__
        self._suffix: Any = tokenizer.suffix_search.__self__
        self._infixes: Any = tokenizer.infix_finditer
        self._is_url: Any = tokenizer.url_match
        self.cases: Mapping[str, tuple[str, ...]] = {
            case: tuple(part[ORTH] for part in parts) for case, parts in tokenizer.rules.items()
        }
        self._longest_case = max(map(len, self.cases))
        self._english = tokenizer
        # spaCy searches the words of a line again for special cases that have an affix. These are the first two
        # words of such cases, split without special cases.
        self._starts: set[tuple[str, ...]] = set()
        for case, words in self.cases.items():
            affixed = tokenizer.find_prefix(case) or tokenizer.find_infix(case) or tokenizer.find_suffix(case)
            sequence = tuple(self._split(case, {}))
            # A case that is split in the same way without it has no effect.
            if affixed and not any(map(str.isspace, case)) and sequence not in (words, words[:1]):
                self._starts.add(sequence[:2])

    def of_chunk(self, chunk: str) -> list[str] | None:
        """Return the words of a chunk, or None if they may depend on the chunks next to it."""
        words = self._split(chunk, self.cases)
        starts = {*pairwise(words), *((word,) for word in words)}
        return words if self._starts.isdisjoint(starts) else None

    def of_line(self, chunks: Iterable[str]) -> list[str]:
        """Return the words of a line, given as its chunks, split by spaCy."""
        return [token.text for token in self._english(" ".join(chunks))]

    def _split(self, chunk: str, cases: Mapping[str, Sequence[str]]) -> list[str]:
        """Split off affixes until none is left or a special case remains, then split what remains."""
        start, end = 0, len(chunk)
        before: list[str] = []
        after: list[str] = []  # from the end inwards
        while start < end and not self._is_case(chunk, start, end, cases):
            kept = start + self._prefix_length(chunk, start, end)
            if self._is_case(chunk, kept, end, cases):
                before.append(chunk[start:kept])
                start = kept
                break
            left = end - self._suffix_length(chunk, kept, end)
            if self._is_case(chunk, start, left, cases):
                after.append(chunk[left:end])
                end = left
                break
            if kept == start and left == end:
                break
            if kept > start:
                before.append(chunk[start:kept])
            if left < end:
                after.append(chunk[left:end])
            start, end = kept, left
        return [*before, *self._middle(chunk[start:end], cases), *reversed(after)]

    def _is_case(self, chunk: str, start: int, end: int, cases: Mapping[str, Sequence[str]]) -> bool:
        return 0 < end - start <= self._longest_case and chunk[start:end] in cases

    def _prefix_length(self, chunk: str, start: int, end: int) -> int:
        size = _WINDOW
        while True:
            match = self._prefix.match(chunk[start : min(end, start + size)])
            length = match.end() if match else 0
            # Beyond its match a rule looks at one character at most.
            if start + size >= end or length < size - 1:
                return length
            size *= 2

    def _suffix_length(self, chunk: str, start: int, end: int) -> int:
        size = _WINDOW
        while True:
            match = self._suffix.search(chunk[max(start, end - size) : end])
            length = match.end() - match.start() if match else 0
            # Before its match a rule looks at two characters at most.
            if end - size <= start or length < size - 2:
                return length
            size *= 2

    def _middle(self, text: str, cases: Mapping[str, Sequence[str]]) -> Sequence[str]:
        """Split the rest without affixes: a special case, a URL, or words with infixes between them."""
        if not text:
            return ()
        if text in cases:
            return cases[text]
        if "." in text and self._is_url(text):
            return (text,)
        words = []
        start = 0
        for infix in self._infixes(text):
            if infix.start() == 0:
                continue
            words += [text[start : infix.start()], infix.group()]
            start = infix.end()
        return [word for word in (*words, text[start:]) if word]
