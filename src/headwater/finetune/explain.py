"""Which words moved a decision: each is left out in turn, and the answer's log-probability looked at again.

Occlusion (Zeiler and Fergus 2014, for images; Li et al. 2016, "erasure", for text): it asks the model itself and
nothing but the model, whatever the tokenizer. Words of a long text are taken together, so that a decision costs
about the same whatever its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.finetune.fine_tuned import FineTuned
from headwater.finetune.inputs import Example

# For one decision: the most parts that are left out in turn, and about how many tokens that may cost.
_MOST_PARTS, _FEWEST_PARTS, _TOKENS = 48, 6, 4_096
# A word with its space; longer runs without a space, as in Chinese, are taken in pieces of four characters.
_WORD = re.compile(r"\s*\S{1,20}(?=\s|$)|\s*\S{1,4}|\s+")


@dataclass(frozen=True)
class Piece:
    """A part of a segment and how far it moved the decision, for (+) or against (−); the largest is ±1."""

    segment: int
    text: str
    share: float


def explain(fine_tuned: FineTuned, segments: Sequence[str], output: int) -> list[Piece]:
    """Parts of the segments that speak for `output`, in order, with their shares.

    Of a choice's answers only the chosen one is taken apart. For scores the share is that of the score itself.
    """
    looked_at = [0, 1, 2 + output] if fine_tuned.task == "choice" else range(len(segments))
    whole = fine_tuned.encode([Example(tuple(segments))])
    most = max(_FEWEST_PARTS, min(_MOST_PARTS, _TOKENS // int(whole.lengths.sum())))
    parts = _parts(segments, looked_at, most)
    variants = [_without(segments, parts, place) for place in range(len(parts))]
    encoded = fine_tuned.encode(Example(variant) for variant in [tuple(segments), *variants])
    probabilities = fine_tuned.probabilities(encoded)
    if fine_tuned.labels.target == "score":
        values = fine_tuned.decide(probabilities)
    else:
        values = np.log(np.maximum(probabilities[:, output].astype(np.float64), 1e-30))
    moved = values[0] - values[1:]
    largest = np.abs(moved).max(initial=0) or 1.0
    return [Piece(segment, text, float(m / largest)) for (segment, text), m in zip(parts, moved, strict=True)]


def _parts(segments: Sequence[str], looked_at: Iterable[int], most: int) -> list[tuple[int, str]]:
    """(segment, text) of at most about `most` parts, neighbouring words joined where there are more."""
    words = [(segment, _WORD.findall(segments[segment])) for segment in looked_at]
    size = max(1, -(-sum(len(found) for _, found in words) // most))
    return [
        (segment, "".join(found[start : start + size]))
        for segment, found in words
        for start in range(0, len(found), size)
    ]


def _without(segments: Sequence[str], parts: Sequence[tuple[int, str]], left_out: int) -> tuple[str, ...]:
    """The segments without one part."""
    chosen = parts[left_out][0]
    rest = "".join(text for place, (segment, text) in enumerate(parts) if segment == chosen and place != left_out)
    return tuple(rest.strip() if number == chosen else text for number, text in enumerate(segments))
