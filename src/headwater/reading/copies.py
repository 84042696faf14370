"""One definition of copies of a text: for folds, splits and rows that were seen before."""

from __future__ import annotations

import unicodedata

from headwater.reading.encoding import compose


class _WithoutPunctuation(dict[int, int]):
    """Table for `str.translate`: punctuation (Unicode's categories P) becomes a space."""

    def __missing__(self, code: int) -> int:
        self[code] = ord(" ") if unicodedata.category(chr(code)).startswith("P") else code
        return self[code]


_TABLE = _WithoutPunctuation()


def copy_key(text: str) -> str:
    """Return a form that is equal for texts that differ only in Unicode form, case, white space or punctuation.

    A text of punctuation alone keeps it: ":)" is not a copy of ":(".
    """
    folded = compose(compose(text).casefold())
    return " ".join(folded.translate(_TABLE).split()) or " ".join(folded.split())
