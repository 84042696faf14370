"""An n-gram model sees n - 1 tokens: the text before them changes nothing for it, but much for a GPT."""

from collections import Counter

import headwater as hw

training = "the captain came with the horse . she came with the boat . the captain called for him ."
words = training.split()
counts = Counter(tuple(words[i : i + n]) for n in (2, 3) for i in range(len(words)))
trigram = {word: counts["with", "the", word] / counts["with", "the"] for word in ("horse", "boat")}

lm = hw.load("gpt2-mini")
for before in ("The captain called for his horse.", "The captain called for his boat."):
    text = f"{before} He had waited for it all day. At last the boy came with the"
    (horse, _), (boat, _) = lm.score([(text, " horse"), (text, " boat")])
    print(before, f"trigram: P(horse) {trigram['horse']:.2f}, P(boat) {trigram['boat']:.2f};", end=" ")
    print(f"GPT: log P(horse) {horse:.2f}, log P(boat) {boat:.2f}")
