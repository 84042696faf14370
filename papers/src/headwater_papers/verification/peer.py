"""transformers' GPT-2 as a peer that answers the requests of `recounts`, and the official files."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Written(NamedTuple):
    """A generated text and the log-probability of each token."""

    text: str
    scores: list[float]


class Drawn(NamedTuple):
    """A prompt whose continuation is drawn with top-k 2."""

    prompt: list[int]


PeerAnswer = list[float] | Written | Drawn


class Peer:
    """transformers' GPT-2 and fast tokenizer of a folder.

    The keys and values of what a text shares with the previous one come from transformers' cache.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, DynamicCache, GPT2LMHeadModel

        self._cache, self._cached = DynamicCache(), list[int]()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = GPT2LMHeadModel.from_pretrained(folder)
        self.model = model.float().eval()
        self.context: int = self.model.config.n_positions
        self.end: int = self.tokenizer.eos_token_id

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return list(self.tokenizer(text)["input_ids"])

    def after(self, before: Sequence[int], scored: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of `scored`. The start of `before` is cut to fit."""
        whole = [*before, *scored][-self.context - 1 :]
        rows = self._rows(whole[:-1], len(scored))
        return [float(x) for x in rows.gather(1, torch.tensor(whole[-len(scored) :])[:, None])[:, 0]]

    def _rows(self, ids: list[int], count: int) -> torch.Tensor:
        """Return the log-probabilities after each of the last `count` tokens."""
        pairs = zip(ids[: len(ids) - count], self._cached, strict=False)
        shared = next(
            (place for place, (a, b) in enumerate(pairs) if a != b), min(len(ids) - count, len(self._cached))
        )
        if shared < len(self._cached):
            self._cache.crop(shared - len(self._cached))
        with torch.no_grad():
            new = torch.tensor([ids[shared:]])
            logits = self.model(new, past_key_values=self._cache, use_cache=True, logits_to_keep=count).logits
        self._cached = list(ids)
        return torch.Tensor(logits[0].log_softmax(-1))

    def alone(self, text: str) -> list[float]:
        """Score every token of a text after an end-of-text token."""
        return self.after([self.end], self.ids(text))

    def score(self, context: str, continuation: str, *, own: bool = False) -> list[float]:
        """Score both as one text: the tokens that end after the context's last letter.

        With `own`, white space at the end of the context is not scored.
        """
        before, scored = self.split(context, continuation, own=own)
        return self.after(before or [self.end], scored)

    def split(self, context: str, continuation: str, *, own: bool = False) -> tuple[list[int], list[int]]:
        """Encode both as one text, split after the context's last letter or, with `own`, last character."""
        border = len(context) if own else len(context.rstrip())
        encoded = self.tokenizer(context + continuation, return_offsets_mapping=True)
        first = next(i for i, (_, end) in enumerate(encoded["offset_mapping"]) if end > border)
        return encoded["input_ids"][:first], encoded["input_ids"][first:]

    def windows(self, ids: Sequence[int], count: int) -> list[list[PeerAnswer]]:
        """Return the first windows of a text: a whole context, then half a context at a time."""
        answered: list[list[PeerAnswer]] = []
        whole, end = [self.end, *ids], 1
        while end < len(whole) and len(answered) < count:
            start, end = end, min(len(whole), end + (self.context if end == 1 else self.context // 2))
            answered.append([self.after(whole[max(0, end - 1 - self.context) : start], whole[start:end])])
        return answered

    def likely(self, prompt: Sequence[int]) -> Generator[torch.Tensor, int, None]:
        """Yield the log-probabilities of the token after `prompt`, then after each token that is sent in."""
        ids = list(prompt)
        while True:
            ids.append((yield self._rows(ids, 1)[0]))

    def write(self, prompt: Sequence[int], most: int, stops: Sequence[str] = ("\n",)) -> Written:
        """Generate greedily, up to a stop text, the end of text or `most` tokens."""
        tokens: list[int] = []
        scores: list[float] = []
        steps = self.likely(prompt)
        likely = next(steps)
        while True:
            tokens.append(int(likely.argmax()))
            scores.append(float(likely.max()))
            text = self.tokenizer.decode(tokens)
            if tokens[-1] == self.end or len(tokens) == most or any(stop in text for stop in stops):
                return Written(re.split("|".join(map(re.escape, stops)), self.text(tokens))[0], scores)
            likely = steps.send(tokens[-1])

    def text(self, tokens: Sequence[int]) -> str:
        """Decode tokens, without the end of text."""
        return str(self.tokenizer.decode([token for token in tokens if token != self.end]))


class Files:
    """Find official files below the data folders by the end of their path."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._paths = [path for folder in folders for path in sorted(folder.rglob("*"))]

    def __call__(self, name: str) -> Path:
        """Return the file whose path ends with `name`. Raise FileNotFoundError if there is none."""
        match = next((path for path in self._paths if path.as_posix().endswith(f"/{name}")), None)
        if match is None:
            raise FileNotFoundError(f"{name} is in none of the folders given as --data")
        return match

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file, without the last line end."""
        return self(name).read_text(encoding="utf-8").rstrip("\n").split("\n")
