"""Invertible de-tokenizers: natural text from a benchmark's tokenised text, and the tokens from that text.

GPT-2 (Radford et al. 2019, section 3.1) scores the benchmarks through "invertible de-tokenizers", which were never
released. Here a de-tokenizer is a table of rules, written from reading the files. A token is joined to the word
before it only if the tokenizer, `retokenize`, splits the joined word into the same tokens. So every join can be
inverted, except for single tokens that the tokenizer itself would split: `count_exceptions` counts the lines with
such tokens, and an evaluation reports their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

_CLITICS = "'(?:s|re|ve|d|ll|m|S)"


@dataclass(eq=False)
class Detokenizer:
    """Both directions for one benchmark, from what its tokenizer did.

    left: tokens that belong to the word before them. right: tokens that belong to the word after them. inside:
    tokens for a character inside a word, such as `@-@` for `-`. quotes: opening token, closing token, and their
    character.
    spelled: tokens with another spelling in text. clitics: pattern of tokens that belong to the word before them
    too. not_split: words that end in a full stop of their own.
    apostrophes: the token `'` ends a plural possessive, or opens or closes a quotation. headings: a line begins
    and ends with several tokens `=`. padded: every line has a space at both ends.
    """

    left: frozenset[str]
    right: frozenset[str] = frozenset()
    inside: Mapping[str, str] = field(default_factory=dict)
    quotes: Sequence[tuple[str, str, str]] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)
    clitics: str = _CLITICS
    not_split: re.Pattern[str] = re.compile(r"(?:[^\W\d_]\.)+|\.{2,}")
    lower_case: bool = False
    apostrophes: bool = False
    headings: bool = False
    padded: bool = False

    def __post_init__(self) -> None:
        self._split = lru_cache(maxsize=1 << 16)(self._tokens_of)
        starts = {mark: token for token, _, mark in self.quotes}
        ends = {mark: token for _, token, mark in self.quotes}
        for affixes, tokens in ((starts, self.right), (ends, self.left)):
            affixes |= {token: token for token in tokens} | {self._written(token): token for token in tokens}
        if self.apostrophes:
            starts["'"] = ends["'"] = "'"
        self._starts, self._ends = _longest_first(starts), _longest_first(ends)
        self._whole = {written: token for token, written in self.spelled.items()}
        self._whole |= {mark: token for token, _, mark in self.quotes}  # a mark by itself is an opening one
        self._clitic, self._last_clitic = re.compile(self.clitics), re.compile(f"(?<=.)(?:{self.clitics})$")
        self._inside = {
            token: re.compile(
                rf"(?<=\d){re.escape(written)}(?=\d)" if written in ".," else rf"(?<=.){re.escape(written)}(?=.)"
            )
            for token, written in self.inside.items()
        }

    def detokenize(self, line: str) -> str:
        """Return the natural text of one tokenised line."""
        head, tokens, tail = _ends(line)
        if self.padded and (head or " ") == (tail or " ") == " ":
            head = tail = ""
        if self.headings:
            tokens = _joined_heading(tokens)
        words: list[str] = []
        held: list[str] = []  # the tokens of the last word
        open_quotes: set[str] = set()
        glue_next = False
        position = 0
        while position < len(tokens):
            # A token inside a word is joined only together with the next one.
            more = tokens[position : position + 2] if tokens[position] in self.inside else [tokens[position]]
            glue, glue_next = self._joins(tokens, position, glue_next, open_quotes)
            position += len(more)
            word = self._spell([*held, *more]) if glue and held else ""
            if word and list(self._split(word)) == [*held, *more]:
                held += more
                words[-1] = word
                glue_next = glue_next or more[-1] in self.right
            else:
                words += more[:-1]
                held = more[-1:]
                words.append(held[0] if held[0] in self.inside else self._spell(held))
        text = " ".join(words)
        if self.lower_case:
            text = _capitalise(text)
        return head + text + tail

    def retokenize(self, line: str) -> str:
        """Return the tokenised line of a de-tokenized one."""
        head, words, tail = _ends(line)
        if self.lower_case:
            words = [word.lower() for word in words]
        tokens = [token for word in words for token in self._split(word)]
        if self.headings and len(words) > 2 and all(_HEADING.fullmatch(words[end]) for end in (0, -1)):
            tokens = [*words[0], *tokens[1:-1], *words[-1]]
        if self.padded and not head and not tail:
            head, tail = " ", " " if tokens else ""
        return head + " ".join(tokens) + tail

    def count_exceptions(self, lines: Sequence[str]) -> dict[str, int]:
        """Return how many lines `retokenize` does not restore, and of how many, as details of a result."""
        undone = sum(self.retokenize(self.detokenize(line)) != line for line in lines)
        return {"lines that do not come back": undone, "lines": len(lines)}

    def _joins(
        self, tokens: Sequence[str], position: int, glue_next: bool, open_quotes: set[str]
    ) -> tuple[bool, bool]:
        """Return whether no space stands before a token, and whether none stands after it.

        Update `open_quotes`, the quotation marks that are open; `glue_next`: no space follows the token before.
        """
        token = tokens[position]
        for opening, closing, mark in self.quotes:
            if token not in {opening, closing}:
                continue
            closes = mark in open_quotes if opening == closing else token == closing
            if closes:
                open_quotes.discard(mark)
                return True, False
            open_quotes.add(mark)
            return glue_next, True
        if token in self.inside:
            return True, False
        if token == "'" and self.apostrophes:
            ends_word = _apostrophe_ends_word(tokens, position, open_quotes)
            return glue_next or ends_word, not ends_word
        is_left = token in self.left or self._clitic.fullmatch(token) is not None
        return glue_next or is_left, token in self.right

    def _spell(self, tokens: Sequence[str]) -> str:
        return "".join(self._written(token) for token in tokens)

    def _written(self, token: str) -> str:
        for opening, closing, mark in self.quotes:
            if token in {opening, closing}:
                return mark
        return self.inside.get(token) or self.spelled.get(token, token)

    def _tokens_of(self, word: str) -> tuple[str, ...]:
        """Return the tokens of a written word, as the benchmark's tokenizer splits it."""
        word, before = self._strip(word, self._starts, at_end=False)
        word, after = self._strip(word, self._ends, at_end=True)
        while clitic := self._last_clitic.search(word):
            after.append(clitic[0])
            word = word[: clitic.start()]
        core = [self._whole.get(word, word)] if word else []
        for token, pattern in self._inside.items():
            spaced = [piece if piece == token else pattern.sub(f" {token} ", piece) for piece in core]
            core = [part for piece in spaced for part in piece.split(" ")]
        return (*before, *core, *reversed(after))

    def _strip(self, word: str, affixes: Mapping[str, str], *, at_end: bool) -> tuple[str, list[str]]:
        """Remove the affixes of a word one after the other; return the rest, and the affixes' tokens."""
        tokens: list[str] = []
        while not self.not_split.fullmatch(word):
            fits = word.endswith if at_end else word.startswith
            affix = next((affix for affix in affixes if fits(affix) and len(word) > len(affix)), None)
            if affix is None:
                break
            tokens.append(affixes[affix])
            word = word[: -len(affix)] if at_end else word[len(affix) :]
        return word, tokens


def _longest_first(affixes: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(affixes.items(), key=lambda affix: -len(affix[0])))


_HEADING = re.compile("={2,}")


def _joined_heading(tokens: Sequence[str]) -> list[str]:
    """Join the tokens `=` at both ends of a heading; a heading of one `=` stays as it is."""
    depth = next((number for number, token in enumerate(tokens) if token != "="), 0)
    marks = ["="] * depth
    if depth < 2 or len(tokens) <= 2 * depth or list(tokens[-depth:]) != marks:
        return list(tokens)
    return ["=" * depth, *tokens[depth:-depth], "=" * depth]


# Words that end in s, after which `'` opens a quotation.
_NO_PLURALS = frozenset({"as", "is", "was", "has", "this", "thus", "its", "his", "us", "versus", "always"})


def _apostrophe_ends_word(tokens: Sequence[str], position: int, open_quotes: set[str]) -> bool:
    """Return whether the token `'` belongs to the word before it; update `open_quotes`."""
    before, after = tokens[position - 1] if position else "", tokens[position + 1 : position + 2]
    if "'" in open_quotes:
        open_quotes.discard("'")
        return True
    if after and re.fullmatch(r"\d\ds", after[0]):  # the '90s
        return False
    if before.endswith("s") and before.lower() not in _NO_PLURALS:
        return True
    if "'" in tokens[position + 1 :]:
        open_quotes.add("'")
        return False
    return before[-1:].isalnum() or before.endswith(">")


def _ends(line: str) -> tuple[str, list[str], str]:
    """Return the leading white space, the words, and the trailing white space."""
    inner = line.strip()
    if not inner:
        return line, [], ""
    start = line.index(inner)
    return line[:start], inner.split(" "), line[start + len(inner) :]


_SENTENCE_START = re.compile(r"(^|[.!?]\"? )(\"?)([^\W\d_])")
_LONE_I = re.compile(r"\bi\b(?=[ '.,!?;:\"]|$)")


def _capitalise(text: str) -> str:
    """Capitalize the beginnings of sentences and the word I."""
    text = _SENTENCE_START.sub(lambda match: match[1] + match[2] + match[3].upper(), text)
    return _LONE_I.sub("I", text)


_STOPS = frozenset([".", ",", ";", ":", "!", "?", ")", "]", "}"])
_TITLES = (
    r"(?:[^\W\d_]\.)+|\.{2,}|(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Nos?|vs|Co|Corp|Inc|Ltd|Gen|Col|Lt|Capt|Sgt|Rev|Prof|Gov|Sen"
    r"|Rep|Mt|Ft|U\.S|etc|al|ca|pp|Bros)\."
)

_SHOUTS = frozenset(["?!", "!?", "!!", "??", "!!!", "!!!!", "???", "!?!", "?!?"])
_BARE = "|'(?:em|til|tis|twas|cause|bout|round|n|cept|course|kay|fore|nother|ere|twere|twould|ve|re|ll|s|d|m|nuff)"
_TREEBANK_QUOTES = [("``", "''", '"'), ("`", "'", "'")]
DetokenizerName = Literal["wikitext", "ptb", "1bw", "lambada", "cbt"]
# The inverses of the data sets' tokenizers, by name.
DETOKENIZERS: Mapping[DetokenizerName, Detokenizer] = {
    "wikitext": Detokenizer(
        left=_STOPS | {"%", "°"},
        right=frozenset(["(", "[", "$", "£", "€"]),
        inside={"@-@": "-", "@,@": ",", "@.@": "."},
        quotes=[('"', '"', '"')],
        not_split=re.compile(_TITLES),
        clitics=r"'[^\W\d_]+",
        apostrophes=True,
        headings=True,
        padded=True,
    ),
    "ptb": Detokenizer(
        left=frozenset({"n't", "%"}), right=frozenset({"$", "#"}), clitics=f"{_CLITICS}|'", padded=True
    ),
    "1bw": Detokenizer(
        left=_STOPS | {"%", "'t"},
        right=frozenset(["(", "[", "$", "£", "€"]),
        quotes=[('"', '"', '"')],
        not_split=re.compile(_TITLES),
    ),
    "lambada": Detokenizer(
        left=_STOPS | _SHOUTS | {"n't"},
        right=frozenset(["(", "["]),
        quotes=_TREEBANK_QUOTES,
        not_split=re.compile(_TITLES + _BARE, re.IGNORECASE),
        lower_case=True,
    ),
    "cbt": Detokenizer(
        left=(_STOPS - {")"}) | _SHOUTS | {"n't", "-RRB-"},
        right=frozenset({"-LRB-", "["}),
        quotes=_TREEBANK_QUOTES,
        spelled={"-LRB-": "(", "-RRB-": ")"},
        not_split=re.compile(_TITLES + _BARE, re.IGNORECASE),
    ),
}
