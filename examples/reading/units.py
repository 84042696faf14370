"""One sentence, two tokenizers: perplexities per token cannot be compared, bits per byte can."""

import math

import headwater as hw

text = "Return a new array of given shape and type."
for name in ("gpt2-mini", "gpt2-mini-ko"):
    lm = hw.load(name)
    tokens = len(lm.tokenizer.encode(text))
    loss = -lm.score([("", text)])[0][0]
    bits = loss / math.log(2) / len(text.encode())
    print(f"{name}: {tokens} tokens, per token {math.exp(loss / tokens):.1f}, bits per byte {bits:.2f}")
