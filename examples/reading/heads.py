"""Several heads: each attends by itself; their outputs are joined side by side, and one matrix mixes them."""

import math

import torch

import headwater as hw

lm = hw.load("gpt2-mini")
ids = torch.tensor([lm.tokenizer.encode("The river runs to the sea.")])
block, layers = lm.model.blocks[0], []
lm.model.hidden(ids, layers=layers)
x = block.norm_1(layers[0])[0]  # (time, width)

fused = block.attention.query_key_value(x).view(len(x), 3, 5, 64)  # 5 heads of 64
query, key, value = fused.permute(1, 2, 0, 3)  # each (head, time, 64)
future = torch.ones(len(x), len(x)).triu(1).bool()
weights = (query @ key.mT / math.sqrt(64)).masked_fill(future, -torch.inf).softmax(dim=-1)  # (head, time, time)
joined = (weights @ value).permute(1, 0, 2).reshape(len(x), 5 * 64)  # side by side: 320 numbers per position
output = block.attention.projection(joined)  # 320 × 320

tokens = [lm.tokenizer.decode([token]).strip() for token in ids[0].tolist()]
print("' sea' attends to".ljust(18), *(token.rjust(6) for token in tokens[:7]))
for head in range(5):
    print(f"head {head}".ljust(18), *(f"{share:6.2f}" for share in weights[head, 6, :7].tolist()))
print("as the block computes it:", torch.allclose(output, block.attention(x[None])[0], atol=1e-5))
