"""Perplexity by hand, in Korean: the loss of each token, and their mean per token, per word and per byte."""

import math

import torch

import headwater as hw

lm = hw.load("gpt2-mini-ko")
text = "강물은 바다로 흐르고, 바다는 넘치지 않는다."
ids = [lm.tokenizer.end_of_text, *lm.tokenizer.encode(text)]
log_p = lm.logits(torch.tensor([ids]))[0].log_softmax(dim=1)  # (tokens, vocabulary)

total = 0.0
for position, token in enumerate(ids[1:]):
    loss = -float(log_p[position, token])  # -log P(token | the tokens before it)
    total += loss
    print(f"{lm.tokenizer.decode([token])!r:9} P = {math.exp(-loss):.4f}   loss {loss:5.2f}")
for unit, count in {"token": len(ids) - 1, "word": len(text.split()), "byte": len(text.encode())}.items():
    print(f"perplexity per {unit}: exp({total:.1f} / {count}) = {math.exp(total / count):.1f}")
