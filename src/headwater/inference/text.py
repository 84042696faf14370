"""Decode tokens one by one: whole characters only, and no part of a stop text.

A GPT-2 token can end inside a character, and a stop text can begin in one token and end in another. Text that may
become part of either is held back until that is known. An unfinished character at the end of the text is left out;
invalid UTF-8 becomes U+FFFD, as when all tokens are decoded together.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from headwater.tokenizer import Tokenizer


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
