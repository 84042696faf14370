"""Documents that hold parts of evaluation sets go, on request, so that these stay unseen.

GPT-2 measured overlap (section 4) and removed nothing but Wikipedia; GPT-3 removed what shared 13 words in a row
with a test set (Brown et al. 2020, appendix C). Words are those of `overlap`.

| key | default | source |
|---|---|---|
| evaluation_sets | none | files of text, files of JSON Lines or Parquet rows, corpus folders |
| evaluation_words | 13 | GPT-3, appendix C: words in a row |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headwater.corpus.dedup.overlap import Grams, texts_of
from headwater.corpus.filters.steps import Step
from headwater.corpus.folder import Document
from headwater.errors import DataError


class Decontaminate(Step):
    """Removes documents with a run of `words` words that stands in an evaluation set; rule: `evaluation set`.

    Raises DataError for a set that cannot be read or has no such run.
    """

    name = "overlap"

    def __init__(self, evaluation_sets: Sequence[str], words: int) -> None:
        paths = [Path(name) for name in evaluation_sets]

        def texts() -> Iterator[str]:
            for path in paths:
                yield from texts_of(path)

        self._grams = Grams(words)
        # A sorted array and not a Bloom filter: sets are small, and nothing should go by chance.
        parts = [hashes for _, hashes in self._grams.of_many(texts())]
        self._known = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
        if not len(self._known):
            raise DataError(
                f"{', '.join(map(str, paths))} holds no {words} words in a row",
                repair="Check the files, or set evaluation_words lower",
            )

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        hashes = self._grams.of(document.text)
        places = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        return "evaluation set" if (self._known[places] == hashes).any() else document
