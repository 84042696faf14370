"""Which words changed a prediction: leave out each in turn and measure the change of its probability.

This is occlusion (Zeiler and Fergus 2014, for images; Li et al. 2016, "erasure", for text): it needs only the
model's predictions, with any tokenizer. Several words of a long text are left out together, so that an explanation
costs about the same at any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.rows.row import Raw

# For one prediction: the most and fewest pieces that are left out in turn, and about how many tokens that may
# cost.
_MOST_PIECES, _FEWEST_PIECES, _TOKENS = 48, 6, 4_096
_CHARACTERS_PER_TOKEN = 256  # the most that are looked at
_LEAST = 1e-30  # above the least float32
# A word with its space; longer runs without a space, as in Chinese, are split into four characters each.
_WORD = re.compile(r"\s*\S{1,20}(?=\s|$)|\s*\S{1,4}|\s+")


@dataclass(frozen=True)
class Piece:
    """A piece of a segment; change: the answer's probability (or score) with it minus that without it.

    log_odds: the same difference of log(p / (1 - p)), which tells words apart where p is near 1; None for scores.
    """

    segment: int
    text: str
    change: float
    log_odds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as the server and the estimators show it, with six digits."""
        log_odds = None if self.log_odds is None else round(self.log_odds, 6)
        return {"segment": self.segment, "text": self.text, "change": round(self.change, 6), "log_odds": log_odds}


def explain(fine_tuned: FineTuned, segments: Sequence[str], output: int) -> list[Piece]:
    """Return the pieces of the segments in order, each with its change of the probability of `output`.

    Only the chosen answer of a choice is explained.
    """
    occlusion = Occlusion(fine_tuned, segments, output)
    return occlusion.pieces(fine_tuned.probabilities(fine_tuned.encode(occlusion.rows)))


class Occlusion:
    """An explanation whose `rows` are to be predicted: first the whole row, then the row without each piece."""

    def __init__(self, fine_tuned: FineTuned, segments: Sequence[str], output: int) -> None:
        self._fine_tuned, self._output = fine_tuned, output
        row = Raw(tuple(segments)).composed()
        segments = row.segments
        explained = [0, 1, 2 + output] if fine_tuned.task == "choice" else range(len(segments))
        whole = fine_tuned.encode([row])
        if whole.cut[0]:  # what no member reads is not encoded again for each piece
            segments = tuple(_beginning(fine_tuned, text) for text in segments)
        most = max(_FEWEST_PIECES, min(_MOST_PIECES, _TOKENS // int(whole.lengths.sum())))
        self._pieces = _pieces(segments, explained, most)
        self.rows = [Raw(tuple(segments))]
        for left_out, (chosen, _) in enumerate(self._pieces):
            others = [
                text for n, (segment, text) in enumerate(self._pieces) if segment == chosen and n != left_out
            ]
            rest = "".join(others).strip()
            self.rows.append(Raw(tuple(rest if n == chosen else text for n, text in enumerate(segments))))

    def pieces(self, probabilities: npt.NDArray[np.float32]) -> list[Piece]:
        """Return the explanation. probabilities: (rows, outputs), of `rows`."""
        if self._fine_tuned.labels.target == "score":
            values = self._fine_tuned.decide(probabilities)
            changes = values[0] - values[1:]
            return [
                Piece(segment, text, float(c)) for (segment, text), c in zip(self._pieces, changes, strict=True)
            ]
        exact = probabilities.astype(np.float64)
        values = exact[:, self._output]
        # The sum of the others is exact where 1 - p would be 0; labels of which several hold have no such sum.
        several = self._fine_tuned.labels.target == "labels"
        rest = 1 - values if several else np.delete(exact, self._output, axis=1).sum(axis=1)
        log_odds = np.log(np.maximum(values, _LEAST)) - np.log(np.maximum(rest, _LEAST))
        changes = zip(self._pieces, values[0] - values[1:], log_odds[0] - log_odds[1:], strict=True)
        return [Piece(segment, text, float(change), float(odds)) for (segment, text), change, odds in changes]


def _beginning(fine_tuned: FineTuned, text: str) -> str:
    """Return the beginning of a text that some member reads; TF-IDF may read beyond the base's context."""
    tfidf = fine_tuned.members.get("tfidf")
    characters = tfidf.characters if isinstance(tfidf, Tfidf) else 0
    if len(fine_tuned.members) == 1 and characters:
        return text[:characters]
    context = fine_tuned.base.config.context
    words = _WORD.findall(text[: _CHARACTERS_PER_TOKEN * context])
    lengths = map(len, fine_tuned.tokenizer.encode_batch(words, None))
    fitting = "".join(word for word, total in zip(words, accumulate(lengths), strict=True) if total <= context)
    return max(fitting, text[:characters], key=len)


def _pieces(segments: Sequence[str], explained: Iterable[int], most: int) -> list[tuple[int, str]]:
    """Return about `most` pieces at most, (segment, text) each; adjacent words are joined if there are more."""
    texts = [(segment, _WORD.findall(segments[segment])) for segment in explained]
    size = max(1, -(-sum(len(words) for _, words in texts) // most))
    return [
        (segment, "".join(words[start : start + size]))
        for segment, words in texts
        for start in range(0, len(words), size)
    ]
