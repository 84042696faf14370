"""What a protocol knows of the model: its tokenizer, its context, and how texts become requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import DataError, UsageError
from headwater.inference import after_start, encode_pairs, windows
from headwater.tokenizer import Tokenizer


class ContinuationRequest(NamedTuple):
    """Ask for the log-probability of each token of `continuation` after `context`; both are token ids.

    The start of a context that does not fit the model is cut.
    """

    context: tuple[int, ...]
    continuation: tuple[int, ...]


class RequestEncoder:
    """Turns the texts of a protocol into token ids; `context` is the length of the model's context.

    `window` and `stride` are for scoring a long text, in tokens: by default the whole context, and half of it.
    """

    def __init__(
        self, tokenizer: Tokenizer, context: int, window: int | None = None, stride: int | None = None
    ) -> None:
        self.tokenizer, self.context = tokenizer, context
        self.window = window or context
        self.stride = stride or max(1, self.window // 2)
        if not 1 <= self.stride <= self.window <= context:
            raise UsageError(
                f"window {self.window} and stride {self.stride} do not fit together or the model",
                expected=f"1 ≤ stride ≤ window ≤ {context}",
            )

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text by itself."""
        return tuple(self.tokenizer.encode(text, None))

    def pair(
        self, context: str, continuation: str, *, own_tokens: bool = False, cut: bool = False
    ) -> ContinuationRequest:
        """Encode a context and its continuation as one text, and split the ids between them.

        White space at the end of the context belongs to the continuation, as in GPT-2's tokens, and so does a
        token that spans both. With `own_tokens`, tokens of only white space belong to the context: otherwise a
        mean over tokens would include the newline between both, which favours short answers. An empty context
        becomes `<|endoftext|>` or, with GPT-1's tokenizer, the first token of the continuation, which then has no
        score. `cut` cuts the end of a continuation that does not fit, but not below half the model's context.

        Raises DataError if there is nothing to score, or more than the model's context.
        """
        ((head, tail),) = encode_pairs(self.tokenizer, [(context, continuation)])
        border = 0
        while own_tokens and border < len(tail) and not self.tokenizer.token_text(tail[border]).strip():
            border += 1
        head, tail = head + tail[:border], tail[border:]
        length = max(self.context + 1 - len(head), self.context // 2) if cut else len(tail)
        return self._checked(head, tail[:length])

    def after_start(self, ids: Sequence[int]) -> ContinuationRequest:
        """Return a text to score from its first token; with GPT-1's tokenizer from its second."""
        return self._checked(*after_start(self.tokenizer, list(ids)))

    def windows(self, ids: Sequence[int]) -> list[ContinuationRequest]:
        """Return windows that score every token of a text once (with GPT-1's tokenizer all but the first).

        The first window predicts `window` tokens, each later one the next `stride` tokens from a context of
        `window`.
        """
        head, tail = after_start(self.tokenizer, list(ids))
        pairs = windows(head + tail, 1, self.window, self.stride)
        return [ContinuationRequest(tuple(context), tuple(continuation)) for context, continuation in pairs]

    def _checked(self, context: Sequence[int], continuation: Sequence[int]) -> ContinuationRequest:
        count = len(continuation)
        if not count:
            raise DataError("a continuation adds no token to its context", expected="some text to score")
        if count > self.context:
            raise DataError(
                f"a continuation of {count} tokens is longer than the model's context",
                expected=f"at most {self.context}",
            )
        return ContinuationRequest(tuple(context), tuple(continuation))
