"""LAMBADA's idea: the last word is hard to guess from its sentence, and easier from the passage."""

import headwater as hw

lm = hw.load("gpt2-mini")
sentence = "At last the boy came with the"
passage = f"The captain called for his horse. He had waited for it all day. {sentence}"
for word in ("horse", "captain", "same"):
    (short, _), (long, _) = lm.score([(sentence, f" {word}"), (passage, f" {word}")])
    print(f"log P({word}): {short:.2f} after its sentence alone, {long:.2f} after the passage")
