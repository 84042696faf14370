"""docs/tokenizers.md: its programs run, and its claim about Korean holds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from headwater.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["encode.py", "other_libraries.py"])
def test_examples_run(name: str) -> None:
    if name == "other_libraries.py":
        pytest.importorskip("transformers")
        pytest.importorskip("tiktoken")
    runpy.run_path(str(ROOT / "examples" / "tokenizers" / name))


def test_learned_korean_needs_at_most_half_of_gpt2s_tokens(data: Path) -> None:
    korean = data / "train-text" / "korean"
    with (korean / "nsmc_reviews.txt").open(encoding="utf-8") as handle:
        reviews = handle.read(500_000)
    learned = Tokenizer.train([reviews, (korean / "kolaw_constitution.txt").read_text("utf-8")], vocab_size=8000)
    # Articles: another kind of text than the one learned from.
    held_out = (korean / "korquad_dev_wikipedia_ko.txt").read_text(encoding="utf-8")[:100_000]
    original = Tokenizer.load("gpt2")
    assert len(learned.encode(held_out)) <= 0.5 * len(original.encode(held_out))
