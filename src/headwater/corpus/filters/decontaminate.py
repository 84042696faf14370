"""Remove documents that contain parts of evaluation sets, on request.

GPT-2 measured overlap (section 4) and removed only Wikipedia. GPT-3 removed documents that shared 13 consecutive
words with a test set (Brown et al. 2020, appendix C). `overlap` defines what a word is.

| key | default | source |
|---|---|---|
| evaluation_sets | none | files of text, tables with a column `text`, corpus folders |
| evaluation_words | 13 | GPT-3, appendix C: consecutive words |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.corpus.dedup.overlap import GramIndex, Grams, Hashes, texts_of
from headwater.corpus.filters import Step
from headwater.corpus.folder import Document
from headwater.errors import DataError


class Decontaminate(Step):
    """Removes documents that share `words` consecutive words with an evaluation set; rule: `evaluation set`.

    Raises DataError for a set that cannot be read or has only shorter documents.
    """

    name = "overlap"

    def __init__(self, evaluation_sets: Sequence[str], words: int) -> None:
        self._grams = Grams(words)
        parts: list[Hashes] = []
        for name in evaluation_sets:
            own = [hashes for _, hashes in self._grams.of_many(texts_of(Path(name))) if len(hashes)]
            if not own:
                raise DataError(
                    f"the evaluation set {name} has no {words} words in a row",
                    repair="Check the file, leave it out, or set evaluation_words lower",
                )
            parts += own
        self._index = GramIndex(parts)

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        return "evaluation set" if len(self._index.places(self._grams.of(document.text))) else document
