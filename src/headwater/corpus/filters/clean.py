"""Remove texts that are not prose, by named rules.

GPT-2's paper only says "heuristic based cleaning" (section 2.1). The rules and thresholds here were published
later (Rae et al. 2021, "Gopher", table A1; Raffel et al. 2020, "C4", section 2.2). Rules that count words or look
for English words apply only to English texts.

| rule | removes | threshold | source |
|---|---|---|---|
| short | texts with fewer characters | 200 | ours, for every language; Gopher: 50 words |
| letters | texts with a smaller share of letters and marks among visible characters | 0.6 | ours |
| repeated lines | a larger share of lines that repeat an earlier one | 0.3 | Gopher: 0.30 |
| repeated paragraphs | the same for paragraphs | 0.3 | Gopher: 0.30 |
| bullets | a larger share of lines that begin with a bullet | 0.9 | Gopher: 0.9 |
| ellipses | a larger share of lines that end in an ellipsis | 0.3 | Gopher: 0.3 |
| placeholder | texts with "lorem ipsum" | once | C4 |
| script notice | short texts that request JavaScript or cookies | 1,000 characters | C4, there by line |
| few words (en) | texts with fewer words | 50 | Gopher: 50 |
| word length (en) | a mean word length outside | 3 to 10 | Gopher: 3 to 10 |
| symbols (en) | more `#` and `…` a word | 0.1 | Gopher: 0.1 |
| no letters (en) | a smaller share of words with a letter | 0.8 | Gopher: 0.8 |
| stop words (en) | fewer of: the be to of and that have with | 2 | Gopher: 2 |
| repeated phrases (en) | one 2-, 3- or 4-gram that makes up more of the characters | 0.20, 0.18, 0.16 | Gopher |
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable

from headwater.corpus.filters import Step
from headwater.corpus.folder import Document

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
PHRASES = ((2, 0.20), (3, 0.18), (4, 0.16))
_BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*")
_NOTICE = re.compile(
    r"(?:enable|activate|turn on|requires?|without|disabled?) (?:your )?(?:javascript|cookies)"
    r"|(?:javascript|cookies) (?:is|are|must|has|need)",
    re.I,
)
# Beyond ASCII: runs of letters, and of all characters after the Latin blocks except white space.
_LETTERS = re.compile(r"(?:[^\W\d_²³¹¼½¾]|(?!\s)[\u0300-\U0010ffff])+")
_ASCII_LETTERS = string.ascii_letters.encode()
_ASCII = bytes(range(128))
_PHRASE_WORDS = 20_000  # words that are checked: a novel that repeats itself does so in its first chapters

Rule = Callable[["_Text"], bool]


class _Text:
    """A document's text with its lines, paragraphs and words, split once for all rules."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [line.strip() for line in text.split("\n") if line.strip()]
        self.paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
        self.words = text.split()


class Clean(Step):
    """Removes text that is not prose, by the first rule in the table that applies."""

    name = "clean"

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        text = _Text(document.text)
        rules = RULES | ENGLISH_RULES if document.language == "en" else RULES
        return next((name for name, removes in rules.items() if removes(text)), document)


def _letters(text: str) -> int:
    """Count letters and marks; ASCII ones as bytes, which is faster."""
    data = text.encode("utf-8", "surrogatepass")
    others = data.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    return len(data) - len(data.translate(None, _ASCII_LETTERS)) + sum(map(len, _LETTERS.findall(others)))


def _repeated(parts: list[str]) -> bool:
    return len(parts) - len(set(parts)) > 0.3 * len(parts)


def _symbols(text: _Text) -> bool:
    count = text.text.count("#") + text.text.count("…") + text.text.count("...")
    return count > 0.1 * len(text.words)


def _without_letters(text: _Text) -> bool:
    with_letter = sum(1 for word in text.words if word[0].isalpha() or any(map(str.isalpha, word)))
    return with_letter < 0.8 * len(text.words)


def _no_stop_words(text: _Text) -> bool:
    stop_words: set[str] = set()
    for word in text.words:
        if (plain := word.lower().strip(".,;:!?\"'()")) in STOP_WORDS:
            stop_words.add(plain)
            if len(stop_words) == 2:
                return False
    return True


def _repeated_phrases(text: _Text) -> bool:
    words = text.words[:_PHRASE_WORDS]
    characters = sum(map(len, words))
    # A phrase is at most as frequent as each of its words, so that the word with most characters bounds its share.
    heaviest = max((count * len(word) for word, count in Counter(words).items()), default=0)
    for size, limit in PHRASES:
        if size * heaviest <= limit * characters:
            continue
        phrases = Counter(zip(*(words[start:] for start in range(size)), strict=False))
        if not phrases:
            return False
        phrase, count = phrases.most_common(1)[0]
        if count > 1 and count * sum(map(len, phrase)) > limit * characters:
            return True
    return False


RULES: dict[str, Rule] = {
    "short": lambda text: len(text.text) < 200,
    "letters": lambda text: _letters(text.text) < 0.6 * sum(map(len, text.words)),
    "repeated lines": lambda text: _repeated(text.lines),
    "repeated paragraphs": lambda text: _repeated(text.paragraphs),
    "bullets": lambda text: sum(line.startswith(_BULLETS) for line in text.lines) > 0.9 * len(text.lines),
    "ellipses": lambda text: sum(line.endswith(("...", "…")) for line in text.lines) > 0.3 * len(text.lines),
    "placeholder": lambda text: "lorem ipsum" in text.text.lower(),
    "script notice": lambda text: len(text.text) < 1000 and _NOTICE.search(text.text) is not None,
}
ENGLISH_RULES: dict[str, Rule] = {
    "few words": lambda text: len(text.words) < 50,
    "word length": lambda text: not 3 <= sum(map(len, text.words)) / max(1, len(text.words)) <= 10,
    "symbols": _symbols,
    "no letters": _without_letters,
    "stop words": _no_stop_words,
    "repeated phrases": _repeated_phrases,
}
