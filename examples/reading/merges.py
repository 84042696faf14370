"""Learn byte-pair merges: find the most frequent pair of neighbours, make it one token, start again."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise


def learn(words: Mapping[str, int], merges: int) -> Iterator[tuple[str, int, list[str]]]:
    spelled = {" ".join(word.replace(" ", "Ġ")): count for word, count in words.items()}
    for _ in range(merges):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in spelled.items():
            for pair in pairwise(word.split()):
                pairs[pair] += count
        best = max(pairs, key=pairs.__getitem__)  # of equally frequent pairs, the first
        two = re.compile(rf"(?<!\S){re.escape(best[0])} {re.escape(best[1])}(?!\S)")
        spelled = {two.sub("".join(best), word): count for word, count in spelled.items()}
        yield "".join(best), pairs[best], list(spelled)


if __name__ == "__main__":
    for token, count, words in learn({"low": 5, "lower": 2, "newest": 6}, merges=7):
        print(f"{token!r:8} × {count}   ", "   ".join(words))
