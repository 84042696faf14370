"""TF-IDF of hashed n-grams, which a probe can read next to the base's features (`features = "tfidf+base"`).

The n-grams are those of the baseline, of characters and of words; each has a bucket by its hash, so that a folder
needs no vocabulary. A text's vector is 1 + log(count), times the inverse document frequency of the training rows,
brought to length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_BUCKETS = 1 << 14  # of each kind of n-gram
NGRAMS = 2 * _BUCKETS


def log_counts(texts: Sequence[str]) -> Any:
    """Return a sparse matrix (texts, NGRAMS) of 1 + log(count), float32."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    shared: dict[str, Any] = {"n_features": _BUCKETS, "alternate_sign": False, "norm": None, "dtype": np.float32}
    characters = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), **shared)
    words = HashingVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), **shared)
    counts = hstack([characters.transform(texts), words.transform(texts)]).tocsr()
    counts.data = 1 + np.log(counts.data)
    return counts


def inverse_frequencies(counts: Any) -> npt.NDArray[np.float32]:
    """Return (NGRAMS,): log((1 + texts) / (1 + texts with the n-gram)) + 1."""
    texts = np.bincount(counts.indices, minlength=NGRAMS)
    frequencies: npt.NDArray[np.float32] = (np.log((1 + counts.shape[0]) / (1 + texts)) + 1).astype(np.float32)
    return frequencies


def with_ngrams(features: npt.NDArray[np.float32], counts: Any, idf: npt.NDArray[np.float32]) -> Any:
    """Return a sparse matrix (texts, features + NGRAMS)."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.preprocessing import normalize

    return hstack([csr_matrix(features), normalize(counts.multiply(idf).tocsr())]).tocsr()
