"""tiktoken's form of a byte-level vocabulary: ranks instead of merges.

A rank file has no merges: merging a token's bytes by the lower ranks leaves the pair that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import DataError
from headwater.tokenizer.vocabulary import Vocabulary, bytes_to_characters, check


def vocabulary_from_ranks(ranks: Mapping[bytes, int], special_tokens: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary with the same ids as the ranks.

    Raises DataError for a token that is not a pair of tokens of lower rank.
    """
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = _parts(token, ranks, rank)
        if len(parts) != 2:
            raise DataError(
                f"rank {rank}, {token!r}, is made of {len(parts)} tokens of lower rank",
                expected="ranks of a byte-pair encoding, two for each",
            )
        merges.append((bytes_to_characters(parts[0]), bytes_to_characters(parts[1])))
    ids = {bytes_to_characters(token): rank for token, rank in ranks.items()}
    return check(
        "gpt2",
        {**ids, **special_tokens},
        merges,
        sorted(special_tokens, key=lambda name: special_tokens[name]),
        vocabulary_name="the ranks",
        merges_name="the merges of the ranks",
    )


def _parts(token: bytes, ranks: Mapping[bytes, int], limit: int) -> list[bytes]:
    """Merge a token's bytes, lowest rank first, by ranks below `limit`."""
    parts = [token[place : place + 1] for place in range(len(token))]
    while True:
        best, at = limit, -1
        for place in range(len(parts) - 1):
            rank = ranks.get(parts[place] + parts[place + 1], limit)
            if rank < best:
                best, at = rank, place
        if at < 0:
            return parts
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
