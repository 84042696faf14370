"""One completion request while it is computed: its prompts, its continuations and its choices."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headwater.inference import Alternatives, Event, Request, TextStream
from headwater.serve.schema.requests import CompletionRequest
from headwater.tokenizer import Tokenizer


@dataclass
class Prompt:
    """One prompt: its ids, the text that `echo` returns, and the log-probabilities of its tokens."""

    ids: list[int]
    text: str
    scores: list[Alternatives] = field(default_factory=list)


@dataclass
class CompletionPlan:
    """A checked request. `requests` are the continuations: `best_of` for each prompt in turn."""

    body: CompletionRequest
    prompts: list[Prompt]
    requests: list[Request]
    best_of: int
    n: int
    identity: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of all prompts."""
        return sum(len(prompt.ids) for prompt in self.prompts)


class Answer:
    """One continuation and its chunks so far."""

    def __init__(self, plan: CompletionPlan, tokenizer: Tokenizer, number: int) -> None:
        self.prompt = plan.prompts[number // plan.best_of]
        self._tokenizer, self._body = tokenizer, plan.body
        self.index = number
        self.tokens: list[int] = []
        self.finished: str | None = None
        self.total, self.scored = 0.0, 0  # log-probability of the generated tokens, and their number
        self._length = len(self.prompt.text) if plan.body.echo else 0
        # Without stop texts, so it does not hold text back.
        self._text = TextStream(tokenizer, before=self.prompt.ids[-1])
        self.pieces: list[dict[str, Any]] = []

    def opening(self) -> dict[str, Any]:
        """Return the first chunk: the prompt, as `echo` and `prompt_logprobs` ask for it."""
        body, prompt = self._body, self.prompt
        piece = self._piece(prompt.text if body.echo else "", None)
        if body.prompt_logprobs is not None:
            piece["prompt_logprobs"] = [
                None if scores is None else self._by_id(token, scores, body.prompt_logprobs)
                for token, scores in zip(prompt.ids, [None, *prompt.scores], strict=True)
            ]
        if body.echo and body.return_token_ids:
            piece["token_ids"] = list(prompt.ids)
        if body.echo and body.logprobs is not None:
            stream, length = TextStream(self._tokenizer), 0
            piece["logprobs"] = self._empty_logprobs()
            for token, scores in zip(prompt.ids, [None, *prompt.scores], strict=True):
                self._add(piece["logprobs"], token, scores, min(length, len(prompt.text)))
                length += len(stream.push(token))
        return piece

    def take(self, event: Event) -> dict[str, Any]:
        """Return the chunk of one event of the engine."""
        finished = None if event.finished is None else ("length" if event.finished == "length" else "stop")
        piece = self._piece(event.text, finished)
        if self._body.return_token_ids:
            piece["token_ids"] = [] if event.token is None else [event.token]
        if self._body.logprobs is not None:
            piece["logprobs"] = self._empty_logprobs()
            if event.token is not None:
                self._add(piece["logprobs"], event.token, event.alternatives, self._length)
        if event.token is not None:
            self.tokens.append(event.token)
            if event.alternatives is not None:
                self.total += event.alternatives.log_probability
                self.scored += 1
            if self._body.logprobs is not None and event.token != self._tokenizer.end_of_text:
                self._length += len(self._text.push(event.token))
        self.finished = finished
        return piece

    def close(self) -> dict[str, Any]:
        """Return the last chunk of an answer for which nothing is generated."""
        self.finished = "length"
        return self._piece("", "length")

    def whole(self, index: int) -> dict[str, Any]:
        """Join all chunks into one choice."""
        text = "".join(piece["text"] for piece in self.pieces)
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": self.finished}
        if self._body.logprobs is not None:
            choice["logprobs"] = joined = self._empty_logprobs()
            for piece in self.pieces:
                for key, values in (piece["logprobs"] or {}).items():
                    joined[key] += values
        if self._body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self.pieces[0]["prompt_logprobs"]
        if self._body.return_token_ids:
            choice["token_ids"] = [token for piece in self.pieces for token in piece.get("token_ids", [])]
        return choice

    def _piece(self, text: str, finished: str | None) -> dict[str, Any]:
        piece = {"index": self.index, "text": text, "logprobs": None, "finish_reason": finished}
        self.pieces.append(piece)
        return piece

    def _empty_logprobs(self) -> dict[str, list[Any]]:
        keys = ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
        return {key: [] for key in [*keys, "top_token_ids"][: 5 if self._body.return_token_ids else 4]}

    def _add(self, to: dict[str, list[Any]], token: int, scores: Alternatives | None, offset: int) -> None:
        to["tokens"].append(token_name(self._tokenizer, token))
        to["text_offset"].append(offset)
        to["token_logprobs"].append(None if scores is None else scores.log_probability)
        top = None if scores is None else _with_chosen(token, scores, self._body.logprobs or 0)
        to["top_logprobs"].append(top and {token_name(self._tokenizer, other): value for other, value in top})
        if self._body.return_token_ids:
            to["top_token_ids"].append(top and {token_name(self._tokenizer, other): other for other, _ in top})

    def _by_id(self, token: int, scores: Alternatives, count: int) -> dict[str, dict[str, Any]]:
        ranks = {other: rank for rank, (other, _) in enumerate(scores.likeliest, 1)}
        return {
            str(other): {
                "logprob": value,
                "rank": ranks.get(other),
                "decoded_token": token_name(self._tokenizer, other),
            }
            for other, value in _with_chosen(token, scores, count)
        }


def _with_chosen(token: int, scores: Alternatives, count: int) -> list[tuple[int, float]]:
    """Return the `count` likeliest tokens, and `token` itself if it is not among them."""
    top = scores.likeliest[:count]
    return top if token in dict(top) else [*top, (token, scores.log_probability)]


@lru_cache(maxsize=1 << 16)
def token_name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token's name in the API: its text, or `bytes:\\xe2\\x80` if it is part of a character."""
    if token >= tokenizer.vocabulary_size:
        return f"bytes:{token}"
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
