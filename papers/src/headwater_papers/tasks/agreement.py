"""Agreement of a text with its references: normalised words, exact match and F1 (SQuAD, CoQA), ROUGE, BLEU.

ROUGE and BLEU are those of the usual packages, rouge-score (with Porter's stemmer, as the original
scripts of the CNN/DailyMail results) and sacrebleu.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Return lower-case text without punctuation and articles, with single spaces (Rajpurkar et al. 2016)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(text: str, reference: str) -> float:
    """Return 1 if the normalised texts are equal, else 0."""
    return float(normalise(text) == normalise(reference))


def word_f1(text: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall of normalised words; 1 if both texts are empty."""
    mine, theirs = normalise(text).split(), normalise(reference).split()
    if not mine or not theirs:
        return float(mine == theirs)
    common = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * common / (len(mine) + len(theirs))


def against_people(score: Callable[[str, str], float], text: str, references: Sequence[str]) -> float:
    """Return CoQA's score: the best over the references, averaged over leaving out each of them in turn."""
    scores = [score(text, reference) for reference in references]
    if len(scores) == 1:
        return scores[0]
    return sum(max(scores[:i] + scores[i + 1 :]) for i in range(len(scores))) / len(scores)


def rouge(text: str, reference: str) -> dict[str, float]:
    """Return F1 of ROUGE-1, ROUGE-2 and ROUGE-L over sentences (one a line), and their mean."""
    scores: Mapping[str, Any] = _rouge_scorer().score(reference, text)
    values = {
        "rouge-1": scores["rouge1"].fmeasure,
        "rouge-2": scores["rouge2"].fmeasure,
        "rouge-l": scores["rougeLsum"].fmeasure,
    }
    return values | {"rouge average": sum(values.values()) / 3}


class Bleu:
    """Corpus BLEU from 0 to 100, mixed case, sacrebleu's default tokenisation (13a), of any subset of pairs."""

    def __init__(self, texts: Sequence[str], references: Sequence[str]) -> None:
        import numpy as np
        from sacrebleu.metrics.bleu import BLEU

        self._compute, one = BLEU.compute_bleu, BLEU(effective_order=True)
        pairs = [one.sentence_score(text, [reference]) for text, reference in zip(texts, references, strict=True)]
        # (pairs, 10): matching n-grams, n-grams, length of the text, length of the reference; all are additive.
        self._counts = np.array([[*pair.counts, *pair.totals, pair.sys_len, pair.ref_len] for pair in pairs])

    def score(self, chosen: Any = slice(None)) -> float:
        """Return BLEU of the pairs with these indices; of all by default."""
        counts = [int(count) for count in self._counts[chosen].sum(axis=0)]
        bleu = self._compute(counts[:4], counts[4:8], counts[8], counts[9], smooth_method="exp")
        return float(bleu.score)


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1", "rouge2", "rougeLsum"], use_stemmer=True)
