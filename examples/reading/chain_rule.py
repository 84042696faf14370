"""P(text) = the product of P(token | tokens before it): over all texts of two tokens it sums to 1."""

import torch

import headwater as hw

lm = hw.load("gpt2-mini")
start = lm.tokenizer.end_of_text
first = lm.logits(torch.tensor([[start]]))[0, -1].softmax(dim=0)  # P(a)
total = torch.zeros(())
for some in torch.arange(lm.config.vocabulary).split(512):
    pairs = torch.stack([torch.full_like(some, start), some], dim=1)
    second = lm.logits(pairs)[:, -1].softmax(dim=1)  # P(b | a), for each a a row
    total += (first[some, None] * second).sum()  # P(a, b) = P(a) · P(b | a)
print(f"{lm.config.vocabulary**2:,} texts of two tokens, together P = {total:.4f}")

text = "The sea is blue."
ids = [start, *lm.tokenizer.encode(text)]
log_p = lm.logits(torch.tensor([ids]))[0].log_softmax(dim=1)
parts = [log_p[position, token].item() for position, token in enumerate(ids[1:])]
print(" + ".join(f"({part:.2f})" for part in parts), f"= {sum(parts):.2f} = log P({text!r})")
