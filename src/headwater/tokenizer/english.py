"""spaCy's English word rules in linear time, with spaCy's own words.

spaCy strips affixes off a string one at a time and looks at the whole rest each time, so that a run of n signs
costs n² steps. Its affix rules look at a few characters only. `EnglishWords` gives them a window of the string's
start or end, repeats a step over a run of one character, and matches a URL without trying every split into user
and password. The words are those of `spacy.blank("en").tokenizer`, from which the rules are read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from headwater.errors import ResourceError

# Characters of a string's start or end that an affix rule is given first. Every rule but a run of dots looks at
# fewer; where a match comes near the window's border, the window grows.
_WINDOW = 12
# The start of spaCy's URL rule. Its way to find a user takes cubic time.
_SCHEME = r"(?:(?:[\w\+\-\.]{2,})://)?"
_URL_START = "^" + _SCHEME + r"(?:\S+(?::\S*)?@)?"


class EnglishWords:
    """Split chunks of a line, which hold no white space, and whole lines into spaCy's words."""

    def __init__(self, window: int = _WINDOW) -> None:
        try:
            import spacy
            from spacy.lang.tokenizer_exceptions import URL_PATTERN
        except ModuleNotFoundError as error:
            raise ResourceError(
                f"GPT-1's tokenizer needs the package {error.name}", repair="pip install 'headwater[gpt1]'"
            ) from None
        tokenizer: Any = spacy.blank("en").tokenizer
        self._window = window
        self._prefix: Any = tokenizer.prefix_search.__self__
        self._suffix: Any = tokenizer.suffix_search.__self__
        self._infixes: Any = tokenizer.infix_finditer
        self._url = _UrlRule(URL_PATTERN, tokenizer.url_match)
        self.cases: Mapping[str, tuple[str, ...]] = {
            case: tuple(_texts(parts)) for case, parts in tokenizer.rules.items()
        }
        self._longest_case = max(map(len, self.cases))
        affixed = (
            case
            for case in self.cases
            if tokenizer.find_prefix(case) or tokenizer.find_infix(case) or tokenizer.find_suffix(case)
        )
        # Special cases that hold an affix are looked for once more among the words of a line. This holds the words
        # that they are split into without the special cases, by the first two of these, and the case's own words.
        self._sequences: dict[tuple[str, ...], list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
        for case in affixed:
            sequence = tuple(self._split(case, {}))
            # One word that stays as it is changes nothing and keeps no other case from its place.
            if not any(map(str.isspace, case)) and sequence != self.cases[case][:1]:
                self._sequences.setdefault(sequence[:2], []).append((sequence, self.cases[case]))
        self._has_single = any(len(start) == 1 for start in self._sequences)
        parts = {word for found in self._sequences.values() for sequence, _ in found for word in sequence}
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
            steps = self._repetitions(chunk, start, kept, left, end)
            if kept > start:
                before += [chunk[start:kept]] * steps
            if left < end:
                after += [chunk[left:end]] * steps
            start, end = start + steps * (kept - start), end - steps * (end - left)
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

    def _repetitions(self, chunk: str, start: int, kept: int, left: int, end: int) -> int:
        """How often the step that took [start, kept) and [left, end) can be made at once, at least 1.

        It is the same step as long as the windows at both ends look the same and no special case can remain.
        """
        prefix, suffix, size = kept - start, end - left, self._window
        if end - start < 16 * max(size, self._longest_case, prefix, suffix):
            return 1
        length = size  # both ends repeat for that many characters: the work is in proportion to what is gained
        while (
            4 * length < end - start
            and chunk[start : start + length] == chunk[kept : kept + length]
            and chunk[end - length : end] == chunk[left - length : left]
        ):
            length *= 2
        return max(1, (length // 2 - size) // max(prefix, suffix))

    def _middle(self, text: str, cases: Mapping[str, Sequence[str]]) -> Sequence[str]:
        """Split what the affixes leave: a special case, a URL, or words with infixes between them."""
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
        """Replace the words that together are an affixed special case by its own.

        As in spaCy, longer matches go first. A match across white space replaces nothing, but keeps others from
        its place, as does one that overlaps a match before it.
        """
        words = [word for chunk in chunks for word in chunk]
        candidates = self._candidates(words)
        if not candidates:
            return words
        chunk_ends = list(accumulate(map(len, chunks)))
        letters = "".join([self._letters.get(word, " ") for word in words])
        matches: dict[int, list[tuple[int, int, tuple[str, ...]]]] = {}
        for sequence, case in candidates:
            found = self._matches(letters, sequence)
            matches.setdefault(len(sequence), []).extend((start, end, case) for start, end in found)
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
        place = 0
        for start in sorted(replaced):
            result += words[place:start]
            place, case = replaced[start]
            result += case
        return result + words[place:]

    def _candidates(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Affixed special cases whose first two words are among these: (affixed words, own words)."""
        starts = self._sequences.keys() & set(pairwise(words))
        if self._has_single:
            starts |= self._sequences.keys() & set(zip(words, strict=True))
        return [found for start in starts for found in self._sequences[start]]

    def _matches(self, letters: str, sequence: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of a sequence among words, given as letters; a run of one word is one match."""
        wanted = "".join([self._letters[word] for word in sequence])
        if len(set(wanted)) == 1:
            yield from (run.span() for run in re.finditer(f"{wanted}{wanted[0]}*", letters))
        else:
            yield from ((at.start(), at.start() + len(wanted)) for at in re.finditer(f"(?={wanted})", letters))


class _UrlRule:
    """spaCy's URL rule, tried once at each place where a host can begin."""

    def __init__(self, pattern: str, match: Any) -> None:
        self._whole, self._rest = match, None
        if pattern.startswith(_URL_START):
            self._rest = re.compile(pattern.removeprefix(_URL_START))
        self._scheme = re.compile(_SCHEME)

    @property
    def is_linear(self) -> bool:
        """Whether this version of spaCy has the rule that is known here."""
        return self._rest is not None

    def matches(self, text: str) -> bool:
        """Return whether the text is a URL, a host or an address, with a scheme or without."""
        if "." not in text:
            return False
        if self._rest is None:
            return self._whole(text) is not None
        scheme = self._scheme.match(text)
        assert scheme is not None
        if self._rest.match(text) or (scheme.end() and self._rest.match(text, scheme.end())):
            return True
        return any(self._rest.match(text, at.end()) for at in re.finditer("@", text) if at.start())


def _texts(parts: Iterable[Mapping[Any, Any]]) -> list[str]:
    """The words of a special case of spaCy's."""
    from spacy.symbols import ORTH

    return [part[ORTH] for part in parts]
