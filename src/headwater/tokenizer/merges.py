"""Learn merges from counted words: the byte-pair algorithm of Sennrich et al. 2016, as both papers use it.

Decided here: the most frequent pair is merged; of equally frequent ones the pair with the lowest ids, left one first,
as `tokenizers` has it. Where two ways lead to the same token they share its id. Counting words is left to `counting`,
the obvious version of this algorithm to `reference`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

from headwater.progress import SILENT, Progress

Word = tuple[int, ...]
_REPORT_EVERY = 256


def learn_merges(
    words: Mapping[Word, int], alphabet_size: int, new_tokens: int, progress: Progress = SILENT
) -> list[tuple[int, int, int]]:
    """(left, right, merged) ids in order of rank, until `new_tokens` new ones were made or no pair is left.

    `words` maps sequences of alphabet ids to how often they occur; new tokens are numbered from `alphabet_size`.
    """
    spellings: list[Word] = [(index,) for index in range(alphabet_size)]
    known: dict[Word, int] = {}
    current = [list(word) for word in words]
    counts = list(words.values())
    pair_counts: dict[tuple[int, int], int] = defaultdict(int)
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, word in enumerate(current):
        for pair in zip(word, word[1:], strict=False):
            pair_counts[pair] += counts[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[int, int, int]] = []
    while heap and len(known) < new_tokens:
        negative, pair = heapq.heappop(heap)
        count = pair_counts[pair]
        if count <= 0:
            continue
        if count != -negative:
            heapq.heappush(heap, (-count, pair))
            continue
        left, right = pair
        spelling = spellings[left] + spellings[right]
        merged = known.get(spelling)
        if merged is None:
            merged = known[spelling] = len(spellings)
            spellings.append(spelling)
        merges.append((left, right, merged))
        grown: set[tuple[int, int]] = set()
        for number in places.pop(pair):
            word, weight = current[number], counts[number]
            for old in zip(word, word[1:], strict=False):
                pair_counts[old] -= weight
            word = current[number] = replace_pair(word, left, right, merged)
            for new in zip(word, word[1:], strict=False):
                pair_counts[new] += weight
                places[new].add(number)
                if merged in new:
                    grown.add(new)
        pair_counts[pair] = 0
        for new in grown:
            heapq.heappush(heap, (-pair_counts[new], new))
        if len(known) % _REPORT_EVERY == 0:
            progress.advance(len(known))
    return merges


def replace_pair(word: list[int], left: int, right: int, merged: int) -> list[int]:
    """The word with each (left, right) replaced by `merged`, from the left."""
    replaced: list[int] = []
    place = 0
    while place < len(word):
        if word[place] == left and place + 1 < len(word) and word[place + 1] == right:
            replaced.append(merged)
            place += 2
        else:
            replaced.append(word[place])
            place += 1
    return replaced
