"""A linear model on TF-IDF of words and of character n-grams inside words (Salton and Buckley 1988).

Words are counted alone and in pairs, characters in runs of 2 to 5 within a word and its edges; counts are
logarithmic. One text alone decides many pairs (Gururangan et al. 2018) and endings (Schwartz et al. 2017), the
overlap decides others: a pair, or a context and its answer, has the n-grams of both and how much they overlap. An
answer is an example of its own: right or wrong. Scores are levels, as in the other heads.

The folder has `tfidf.json`, the vocabulary, and `tfidf.safetensors`, frequencies and weights: nothing is pickled.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import FolderError
from headwater.finetuning.model.heads import require_finite
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import TaskName
from headwater.reading import read_json
from headwater.storage import write_json

Texts = Sequence[tuple[str, ...]]
Floats = npt.NDArray[np.float32]
TFIDF_FILE, WEIGHTS_FILE = "tfidf.json", "tfidf.safetensors"
_KINDS: dict[str, dict[str, Any]] = {
    "words": {"token_pattern": r"\w+|[^\w\s]", "ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 5)},
}
_WORD = re.compile(r"\w+")
_BLOCK = 2_048  # rows


@dataclass(eq=False)
class Tfidf:
    """The vocabulary of the training rows, and the linear model on it: weight (outputs, features), bias."""

    task: TaskName
    vectorizers: dict[str, Any] = field(repr=False)
    characters: int
    weight: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32), repr=False)
    bias: Floats = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)

    @classmethod
    def learn(cls, texts: Texts, task: TaskName, *, terms: int, characters: int) -> Tfidf:
        """Learn the vocabulary of rows: the most frequent `terms` of words and of character n-grams."""
        every = [text[:characters] for row in texts for text in row]
        vectorizers = {kind: _vectorizer(kind, max_features=terms) for kind in _KINDS}
        for kind, vectorizer in [*vectorizers.items()]:
            try:
                vectorizer.fit(every)
            except ValueError:  # no word at all
                del vectorizers[kind]
        return cls(task, vectorizers, characters)

    def features(self, texts: Texts) -> Any:
        """Return (rows, features), of choices (answers, features), sparse float32."""
        from scipy.sparse import csr_matrix, hstack, vstack

        if not self.vectorizers:
            return csr_matrix((len(self._lines(texts)), 1), dtype=np.float32)
        blocks = [
            hstack(self._blocks(self._lines(texts[start : start + _BLOCK]))).tocsr()
            for start in range(0, max(1, len(texts)), _BLOCK)
        ]
        return vstack(blocks, format="csr") if len(blocks) > 1 else blocks[0]

    def _lines(self, texts: Texts) -> Texts:
        if self.task == "choice":
            return [(f"{row[0]} {row[1]}", answer) for row in texts for answer in row[2:]]
        return texts

    def _blocks(self, lines: Texts) -> list[Any]:
        """Return the blocks of one text or of two, without the first of a choice, which all its answers share."""
        from scipy.sparse import csr_matrix

        sides = [
            [line[side][: self.characters] for line in lines]
            for side in ((0,) if self.task == "classify" else (0, 1))
        ]
        first, *second = [[v.transform(side) for v in self.vectorizers.values()] for side in sides]
        if not second:
            return first
        # TF-IDF vectors have length 1, so their product is the cosine.
        cosines = [csr_matrix(a.multiply(b).sum(axis=1)) for a, b in zip(first, second[0], strict=True)]
        shared = csr_matrix(_shared_words(sides[0], sides[1]))
        if self.task == "similarity":  # in no order
            both = [a + b for a, b in zip(first, second[0], strict=True)]
            return [*both, *cosines, shared]
        return [*(first if self.task != "choice" else []), *second[0], *cosines, shared]

    def logits(self, features: Any) -> Floats:
        """(rows or answers, features) -> (rows or answers, outputs)."""
        values = np.asarray(features @ self.weight.T + self.bias, np.float32)
        require_finite(values, "the TF-IDF model's values")
        return values

    def probabilities(self, texts: Texts, labels: Labels) -> Floats:
        """Return P(y | x), (rows, outputs or most answers)."""
        return self.shares(self.logits(self.features(texts)), texts, labels)

    def shares(self, logits: Floats, texts: Texts, labels: Labels) -> Floats:
        """Return the probabilities that logits have: (rows, outputs), of choices (rows, most answers)."""
        from scipy.special import expit, softmax

        if labels.target == "labels":
            return np.asarray(expit(logits), np.float32)
        if labels.target != "answer":
            return np.asarray(softmax(logits, axis=1), np.float32)
        counts = np.array([len(row) - 2 for row in texts])
        shares = np.zeros((len(texts), int(counts.max(initial=1))), np.float32)
        ends = np.cumsum(counts)
        for row, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
            shares[row, : end - start] = softmax(logits[start:end, 1] - logits[start:end, 0])
        return shares

    def save(self, folder: Path) -> None:
        """Write both files into a folder."""
        from safetensors.numpy import save_file

        terms = {
            kind: sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
            for kind, vectorizer in self.vectorizers.items()
        }
        write_json(folder / TFIDF_FILE, {"characters": self.characters, "terms": terms})
        tensors = {f"{kind}.idf": v.idf_.astype(np.float32) for kind, v in self.vectorizers.items()}
        # The library writes the memory of an array, whatever its order.
        weights = {"weight": np.ascontiguousarray(self.weight), "bias": np.ascontiguousarray(self.bias)}
        save_file({**tensors, **weights}, folder / WEIGHTS_FILE)

    @classmethod
    def load(cls, folder: Path, task: TaskName) -> Tfidf:
        """Open what `save` wrote; raise FolderError if it is damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        content = read_json(folder / TFIDF_FILE)
        try:
            tensors = load_file(folder / WEIGHTS_FILE)
            vectorizers = {}
            for kind, terms in content["terms"].items():
                if len(terms) != len(tensors[f"{kind}.idf"]):
                    raise ValueError(f"{kind} has {len(terms):,} terms and other frequencies")
                vectorizers[kind] = _vectorizer(kind, vocabulary={term: n for n, term in enumerate(terms)})
                vectorizers[kind].idf_ = tensors[f"{kind}.idf"]
            return cls(task, vectorizers, int(content["characters"]), tensors["weight"], tensors["bias"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise FolderError(
                f"{folder / TFIDF_FILE} is damaged: {error}", repair="Make the folder again"
            ) from None


def _vectorizer(kind: str, **options: Any) -> Any:
    state = random.getstate()  # importing it draws from Python's generator, on some versions
    from sklearn.feature_extraction.text import TfidfVectorizer

    random.setstate(state)
    return TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **_KINDS[kind], **options)


def _shared_words(first: Sequence[str], second: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return (pairs, 3): the shared words' share of the first text's, the second text's and all words."""
    shares = []
    for text, other in zip(first, second, strict=True):
        words, others = set(_WORD.findall(text.lower())), set(_WORD.findall(other.lower()))
        shares.append(
            [len(words & others) / max(1, size) for size in (len(words), len(others), len(words | others))]
        )
    return np.array(shares, dtype=np.float32).reshape(-1, 3)
