"""The engine's requests and events, the text of a continuation, and the checks of what a caller passes.

Tokens are decoded one by one: whole characters only, and no part of a stop text. A GPT-2 token can end inside a
character, and a stop text can begin in one token and end in another. Text that may become part of either is held
back until that is known. An unfinished character at the end of the text is left out; invalid UTF-8 becomes U+FFFD,
as when all tokens are decoded together.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict

from pydantic import Field

from headwater.display import counted
from headwater.errors import ContextError, HeadwaterError, UsageError
from headwater.inference.sampling import Alternatives, Sampling
from headwater.tokenizer import Tokenizer

DEFAULT_TOKENS = 128  # the most tokens of a continuation whose request sets no limit

Reason = Literal["stop", "length", "cancelled"]


class Request(Sampling):
    """A prompt and how to continue it. The text depends only on this request, the model and the precision.

    `sample` numbers the continuations of one prompt and seed. `max_tokens` None means DEFAULT_TOKENS, or as many
    as fit into the context. The text ends before a token that ends a text, such as `<|endoftext|>` (unless
    `ignore_end`), a token of `stop_tokens` or a text of `stop`, but not before `min_tokens` tokens. A text longer
    than the model's context is refused; with "shift" the older half is dropped whenever the context is full.
    `alternatives` asks for each token's log-probability and for that many of the likeliest tokens.
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    ignore_end: bool = False
    seed: int = Field(default=0, ge=0)
    sample: int = Field(default=0, ge=0)
    beyond_context: Literal["refuse", "shift"] = "refuse"
    alternatives: int | None = Field(default=None, ge=0)

    def length(self, context: int, vocabulary: int) -> int:
        """Return the most tokens that this may generate; raise UsageError if it does not fit the model."""
        if not self.prompt:
            raise UsageError(
                "the prompt has no tokens", repair="Give at least one to continue from", param="prompt"
            )
        require_ids(list(self.prompt), vocabulary, "prompt")
        require_ids(list(self.stop_tokens), vocabulary, "stop_token_ids")
        require_ids(list(self.bias), vocabulary, "logit_bias")
        if "" in self.stop:
            raise UsageError("a stop text is empty", expected="at least one character", param="stop")
        # The model never reads the last generated token, so it needs no position.
        most = context + 1 - len(self.prompt)
        shift = self.beyond_context == "shift"
        if not shift:
            repair = 'Shorten the prompt, or drop its older part: beyond_context="shift"'
            require_context(len(self.prompt), context, "prompt", repair)
        wanted = self.max_tokens
        if wanted is None:
            wanted = min(DEFAULT_TOKENS, most) if most > 0 else DEFAULT_TOKENS
        if wanted > most and not shift:
            prompt = counted(len(self.prompt), "token")
            raise ContextError(
                f"a prompt of {prompt} and {wanted:,} new ones are longer than the context",
                expected=f"at most {most:,} new ones, as the context has {context:,}",
                repair=f'Ask for max_tokens={most}, or drop the older part of the text: beyond_context="shift"',
                param="max_tokens",
            )
        if self.min_tokens > wanted:
            raise UsageError(
                f"min_tokens {self.min_tokens} is more than max_tokens {wanted}",
                repair=f"Ask for min_tokens={wanted} or fewer",
                param="min_tokens",
            )
        return wanted


class GenerateOptions(TypedDict, total=False):
    """How to continue a prompt, for Python, the command line and the server; `Request` describes each option."""

    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    bias: Mapping[int, float]
    stop: str | Sequence[str]
    stop_tokens: Sequence[int]
    ignore_end: bool
    seed: int | None
    sample: int
    beyond_context: Literal["refuse", "shift"]
    alternatives: int | None


class Event(NamedTuple):
    """A new token of a continuation, with the text that it adds, or the end of the continuation."""

    token: int | None  # None if the request was cancelled
    text: str  # the text that is now certain: of no token, one, or several
    alternatives: Alternatives | None  # if asked for
    finished: Reason | None  # why this is the last event, or None
    start: int = 0  # where the token's text begins in the continuation, in characters
    error: HeadwaterError | None = None  # what ended a cancelled continuation, if it was not the caller


class TextStream:
    """The text of one continuation, in pieces that join to the whole text."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), before: int | None = None) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.length = 0  # of the text so far, in characters, with what is held back and a stop text
        # GPT-1's tokens include the space after a word. It is put before the next token instead, so that a prompt
        # and its continuation can be joined as they are. `before` is the prompt's last token.
        self._space = tokenizer.kind == "gpt1" and before is not None and self._ends_word(before)
        self.stopped = False

    def push(self, token: int, *, may_stop: bool = True) -> str:
        """Return the text that is now certain. Sets `stopped` at a stop text, which is not part of it."""
        data = self._tokenizer.token_bytes(token)
        if self._tokenizer.kind == "gpt1":
            data, self._space = b" " * self._space + data.removesuffix(b" "), self._ends_word(token)
        characters = self._characters.decode(data)
        self.length += len(characters)
        self._held += characters
        if may_stop:
            stops = [stop for text in self._stop if (stop := self._held.find(text)) >= 0]
            if stops:
                self.stopped = True
                certain, self._held = self._held[: min(stops)], ""
                return certain
        keep = max((_overlap(self._held, text) for text in self._stop), default=0)
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain

    def finish(self) -> str:
        """Return the text that was held back."""
        certain, self._held = self._held, ""
        return certain

    def _ends_word(self, token: int) -> bool:
        return self._tokenizer.token_bytes(token).endswith(b" ")


def stream_text(tokenizer: Tokenizer, tokens: Iterable[int]) -> str:
    """Return the text of tokens as a stream gives it."""
    stream = TextStream(tokenizer)
    return "".join(map(stream.push, tokens)) + stream.finish()


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` begin `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def require_ids(ids: Sequence[int], vocabulary: int, param: str | None = None) -> None:
    """Raise UsageError for the first id that is not a row of the model; `param` is the option it came from."""
    for position, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"token id {token} at position {position} is out of range",
                expected=f"0 to {vocabulary - 1}",
                param=param,
            )


def require_context(tokens: int, context: int, param: str | None = None, repair: str = "Shorten the text") -> None:
    """Raise ContextError for more tokens than the context holds; `param` is the option that they came from."""
    if tokens > context:
        raise ContextError(
            f"the {param or 'text'} has {tokens:,} tokens, more than the model's context",
            expected=f"at most {context:,}",
            repair=repair,
            param=param,
        )


def encode_prompts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each prompt; an empty one is the token before a text."""
    encoded = tokenizer.encode_batch(prompts, None)
    start = tokenizer.start_of_text
    if start is None and not all(encoded):
        raise UsageError(
            "the prompt is empty, and this tokenizer has no token to begin a text with, such as <|endoftext|>",
            repair="Give a prompt of at least one word",
        )
    return [ids if start is None else ids or [start] for ids in encoded]


def shared_length(a: list[int], b: list[int]) -> int:
    """Return the length of the common prefix of two token lists."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit  # a[:low] == b[:low], a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
