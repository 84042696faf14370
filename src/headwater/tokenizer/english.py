"""spaCy's English word rules in linear time, with the same words.

spaCy strips affixes from a string one at a time and reads the whole rest each time, so that a run of n signs takes
n² steps. Its affix rules depend on a few characters. `EnglishWords` applies them to a window of the string's start
or end, and matches a URL without trying every split into user and password. The rules are read from
`spacy.blank("en").tokenizer`, and the words are equal.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from headwater.errors import require_extra

# Characters of a string's start or end that an affix rule reads first. Every rule except a run of dots needs
# fewer; if a match comes near the window's border, the window grows.
_WINDOW = 12
# The start of spaCy's URL rule, which takes cubic time to find a user.
_SCHEME = r"(?:(?:[\w\+\-\.]{2,})://)?"
_URL_START = "^" + _SCHEME + r"(?:\S+(?::\S*)?@)?"


class EnglishWords:
    """Split chunks, parts of a line without white space, and whole lines into spaCy's words."""

    def __init__(self, window: int = _WINDOW) -> None:
        with require_extra("gpt1", "GPT-1's tokenizer"):
            import spacy
            from spacy.lang.tokenizer_exceptions import URL_PATTERN
            from spacy.symbols import ORTH
        tokenizer: Any = spacy.blank("en").tokenizer
        self._window = window
        self._prefix: Any = tokenizer.prefix_search.__self__
        self._suffix: Any = tokenizer.suffix_search.__self__
        self._infixes: Any = tokenizer.infix_finditer
        self._url = _UrlRule(URL_PATTERN, tokenizer.url_match)
        self.cases: Mapping[str, tuple[str, ...]] = {
            case: tuple(part[ORTH] for part in parts) for case, parts in tokenizer.rules.items()
        }
        self._longest_case = max(map(len, self.cases))
        affixed = (
            case
            for case in self.cases
            if tokenizer.find_prefix(case) or tokenizer.find_infix(case) or tokenizer.find_suffix(case)
        )
        # spaCy searches the words of a line again for special cases that have an affix. The key is the first two
        # words of such a case, split without special cases; the value is all of these words and the case's own.
        self._sequences: dict[tuple[str, ...], list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
        for case in affixed:
            sequence = tuple(self._split(case, {}))
            # A case of one unchanged word has no effect.
            if not any(map(str.isspace, case)) and sequence != self.cases[case][:1]:
                self._sequences.setdefault(sequence[:2], []).append((sequence, self.cases[case]))
        self._has_single = any(len(start) == 1 for start in self._sequences)
        parts = {word for cases in self._sequences.values() for sequence, _ in cases for word in sequence}
        self._letters = {word: chr(number) for number, word in enumerate(sorted(parts), 0x4E00)}

    def of_chunk(self, chunk: str) -> list[str] | None:
        """Return the words of a chunk, or None if they may depend on the chunks next to it."""
        words = self._split(chunk, self.cases)
        return None if any(sequence != case for sequence, case in self._candidates(words)) else words

    def of_line(self, chunks: Iterable[str]) -> list[str]:
        """Return the words of a line, given as its chunks."""
        return self._with_cases([self._split(chunk, self.cases) for chunk in chunks])

    def _split(self, chunk: str, cases: Mapping[str, Sequence[str]]) -> list[str]:
        """Split off affixes until none is left or a special case remains, then split what remains."""
        start, end = 0, len(chunk)
        before: list[str] = []
        after: list[str] = []  # from the end inwards
        while start < end and not self._is_case(chunk, start, end, cases):
            inner = start + self._prefix_length(chunk, start, end)
            if self._is_case(chunk, inner, end, cases):
                before.append(chunk[start:inner])
                start = inner
                break
            left = end - self._suffix_length(chunk, inner, end)
            if self._is_case(chunk, start, left, cases):
                after.append(chunk[left:end])
                end = left
                break
            if inner == start and left == end:
                break
            if inner > start:
                before.append(chunk[start:inner])
            if left < end:
                after.append(chunk[left:end])
            start, end = inner, left
        return [*before, *self._middle(chunk[start:end], cases), *reversed(after)]

    def _is_case(self, chunk: str, start: int, end: int, cases: Mapping[str, Sequence[str]]) -> bool:
        return 0 < end - start <= self._longest_case and chunk[start:end] in cases

    def _prefix_length(self, chunk: str, start: int, end: int) -> int:
        size = self._window
        while True:
            match = self._prefix.match(chunk[start : min(end, start + size)])
            length = match.end() if match else 0
            # Beyond its match a rule looks at one character at most.
            if start + size >= end or length < size - 1:
                return length
            size *= 2

    def _suffix_length(self, chunk: str, start: int, end: int) -> int:
        size = self._window
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
        if self._url.matches(text):
            return (text,)
        words = []
        start = 0
        for infix in self._infixes(text):
            if infix.start() == 0:
                continue
            words += [text[start : infix.start()], infix.group()]
            start = infix.end()
        return [word for word in (*words, text[start:]) if word]

    def _with_cases(self, chunks: Sequence[Sequence[str]]) -> list[str]:
        """Replace words that together are a special case with an affix by the case's words.

        As in spaCy, longer matches come first. A match across white space, or one that overlaps an earlier match,
        replaces nothing but blocks its place for others.
        """
        words = [word for chunk in chunks for word in chunk]
        candidates = self._candidates(words)
        if not candidates:
            return words
        chunk_ends = list(accumulate(map(len, chunks)))
        letters = "".join([self._letters.get(word, " ") for word in words])
        matches: dict[int, list[tuple[int, int, tuple[str, ...]]]] = {}
        for sequence, case in candidates:
            spans = self._matches(letters, sequence)
            matches.setdefault(len(sequence), []).extend((start, end, case) for start, end in spans)
        taken = bytearray(len(words))
        replaced: dict[int, tuple[int, tuple[str, ...]]] = {}
        for length in sorted(matches, reverse=True):
            for start, end, case in sorted(matches[length]):
                last = start + length - 1
                is_within = bisect_right(chunk_ends, start) == bisect_right(chunk_ends, last)
                if is_within and not taken[start] and not taken[last]:
                    replaced[start] = (last + 1, case)
                taken[start:end] = b"\1" * (end - start)
        result: list[str] = []
        position = 0
        for start in sorted(replaced):
            result += words[position:start]
            position, case = replaced[start]
            result += case
        return result + words[position:]

    def _candidates(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return special cases with an affix whose first two words are among these: (split words, own words)."""
        starts = self._sequences.keys() & set(pairwise(words))
        if self._has_single:
            starts |= self._sequences.keys() & set(zip(words, strict=True))
        return [case for start in starts for case in self._sequences[start]]

    def _matches(self, letters: str, sequence: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of a sequence among words, given as letters; a run of one word is one match."""
        wanted = "".join([self._letters[word] for word in sequence])
        if len(set(wanted)) == 1:
            yield from (run.span() for run in re.finditer(f"{wanted}{wanted[0]}*", letters))
        else:
            yield from ((at.start(), at.start() + len(wanted)) for at in re.finditer(f"(?={wanted})", letters))


class _UrlRule:
    """spaCy's URL rule, tried once at each possible start of a host."""

    def __init__(self, pattern: str, match: Any) -> None:
        self._whole, self._rest = match, None
        if pattern.startswith(_URL_START):
            self._rest = re.compile(pattern.removeprefix(_URL_START))
        self._scheme = re.compile(_SCHEME)

    def matches(self, text: str) -> bool:
        if "." not in text:
            return False
        if self._rest is None:
            return self._whole(text) is not None
        scheme = self._scheme.match(text)
        assert scheme is not None
        if self._rest.match(text) or (scheme.end() and self._rest.match(text, scheme.end())):
            return True
        return any(self._rest.match(text, at.end()) for at in re.finditer("@", text) if at.start())
