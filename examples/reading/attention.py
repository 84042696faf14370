"""softmax(Q Kᵀ / √d) V by hand, for one head of the first block."""

import math

import torch

import headwater as hw

lm = hw.load("gpt2-mini")
text = "The river runs to the sea."
ids = torch.tensor([lm.tokenizer.encode(text)])
block, layers = lm.model.blocks[0], []
lm.model.hidden(ids, layers=layers)
x = block.norm_1(layers[0])[0]  # (time, width)

query, key, value = block.attention.query_key_value(x).view(len(x), 3, 5, 64)[:, :, 0].unbind(1)  # head 0 of 5
scores = query @ key.T / math.sqrt(64)  # (time, time)
future = torch.ones_like(scores).triu(1).bool()
weights = scores.masked_fill(future, -torch.inf).softmax(dim=1)
attended = weights @ value  # (time, 64): for each position a mean of the values up to it

for row, token in zip(weights.tolist(), ids[0].tolist(), strict=True):
    print(f"{lm.tokenizer.decode([token])!r:9}", *(f"{share:.2f}" for share in row))
