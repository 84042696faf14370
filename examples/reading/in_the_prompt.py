"""Examples in the prompt: no weight changes, and yet the model's output follows them."""

import headwater as hw

lm = hw.load("gpt2-mini")
outputs = (" BO", " boats", " two")
print("log P of".rjust(52), *(output.rjust(7) for output in outputs))
for examples in (
    "",
    "river = RIVER\nhouse = HOUSE\n",
    "river = rivers\nhouse = houses\n",
    "one = two\nthree = four\n",
):
    prompt = f"{examples}boat ="
    scores = lm.score([(prompt, output) for output in outputs])
    print(repr(prompt).rjust(52), *(f"{score:7.2f}" for score, _ in scores))
