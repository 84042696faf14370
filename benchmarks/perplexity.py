"""Measure what rounding the weights costs: the perplexity of WikiText-2 at each precision, against bf16.

    python benchmarks/perplexity.py --text wiki.test.tokens --model gpt2-mini --model random

A model is a folder, a shipped model's name, or `random`: gpt2-small's shape with random weights and the original
tokenizer. The numbers depend only on the weights and the text, so the machine may be busy.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

from generate import make_model

import headwater as hw
from headwater.inference import after_start, windows


def main() -> None:
    """Print a line for each model and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--tokens", type=int, default=20_000, help="of the text's beginning")
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    for name in arguments.model:
        with tempfile.TemporaryDirectory() as temporary:
            if name == "random":
                make_model("gpt2-small", Path(temporary))
            found = {}
            for precision in ("bf16", "int8"):
                lm = hw.load(Path(temporary, "model") if name == "random" else name, precision=precision)
                ids = lm.tokenizer.encode(text[: 8 * arguments.tokens])[: arguments.tokens]
                found[precision] = perplexity(lm, ids)
                change = found[precision] / found["bf16"] - 1
                print(f"{name} {precision}: perplexity {found[precision]:,.3f}, {change:+.2%}", flush=True)


def perplexity(lm: hw.LanguageModel, ids: list[int]) -> float:
    """Return the perplexity of ids, read in windows of the model's context, one after the other."""
    context = lm.scorer.context
    before, rest = after_start(lm.tokenizer, ids)
    scores = lm.scorer.score_ids(list(windows([*before, *rest], len(before), context, context)))
    return math.exp(-math.fsum(score for score, _ in scores) / len(rest))


if __name__ == "__main__":
    main()
