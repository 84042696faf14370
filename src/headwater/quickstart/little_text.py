"""Very little text, such as 26 lines: which part is held out, how long the windows are, how often it is read.

A model from scratch learns nothing from so little, so a shipped model is continued. Its windows are shortened
until the held-out part is longer than one. The text is read PASSES times: with haiku in English and Korean and
with a page of a novel (26 to 35 lines, gpt2-mini and gpt2-mini-ko) the held-out loss was lowest after one to three
passes; later passes learn the lines by heart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater import shipped
from headwater.corpus import split
from headwater.errors import DataError
from headwater.model import load_config
from headwater.pretraining import MINIMUM_TOKENS, PretrainConfig
from headwater.tokenizer import Tokenizer

MOST_BYTES = 500_000  # the usual held-out part of more text is long enough in any language
HELD_OUT = 0.2  # of little text, instead of the usual share
SHORTEST = 16  # tokens of a window: a line or two
PASSES = 3
BATCH = 4  # windows of an update


@dataclass(frozen=True, slots=True)
class LittleText:
    """How a corpus of few tokens is read: the share that is held out, and the tokens of a window."""

    tokens: int
    window: int
    held_out: float = HELD_OUT

    def recipe(self, initial: str, seed: int, device: str) -> PretrainConfig:
        """Return the recipe that continues the shipped model `initial`."""
        windows = math.ceil(self.tokens * (1 - self.held_out) / self.window)
        steps = math.ceil(PASSES * windows / BATCH)
        keys = {"batch_size": BATCH, "steps": steps, "context": self.window, "warmup_steps": 1}
        often = {"validate_every": max(1, steps // 10), "checkpoint_every": steps}
        return PretrainConfig.build({"init_from": initial, "seed": seed, "device": device} | keys | often)

    def expectation(self, initial: str) -> str:
        """Return a sentence for the user: what is done, and what to expect of the model."""
        return (
            f"{self.tokens:,} tokens are very little text: {initial}, which knows the language, reads them "
            f"{PASSES} times in windows of {self.window} tokens, in about a minute, whatever --minutes says. "
            "Expect the words and the form of the text in what it writes, not new knowledge; more passes would "
            "learn the lines by heart"
        )


def named_bytes(sources: Sequence[Path]) -> int:
    """Return the size of the files that are named or in a named folder."""
    files = (file for name in sources for file in (name, *name.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file())


def little_text(corpus: Path, size: int, initial: str, usual: float) -> LittleText | None:
    """Return how to read a corpus of `size` bytes whose `usual` held-out share is too short; None if it is not.

    Raises DataError for a text that is too short even so.
    """
    if size > MOST_BYTES:
        return None
    folder = shipped.resolve(initial)
    tokenizer, context = Tokenizer.load(folder), load_config(folder).context

    def count(share: float) -> dict[str, int]:
        tokens = {"train": 0, "validation": 0}
        for part, document in split(corpus, share):
            tokens[part] += len(tokenizer.encode(document.text)) + 1
        return tokens

    if min(count(usual).values()) > max(context, MINIMUM_TOKENS - 1):
        return None
    counts = count(HELD_OUT)
    least, total = min(counts.values()), sum(counts.values())
    if least <= SHORTEST:
        raise DataError(
            f"{corpus} is too short: it has {total:,} tokens",
            expected=f"about {round(1.5 * SHORTEST / HELD_OUT, -1):,.0f} or more, some ten lines",
            repair="Gather more text",
        )
    window = SHORTEST
    while 2 * window < least and 2 * window <= context:
        window *= 2
    return LittleText(total, window)
