"""The MLP of a block: 768 numbers become 3,072 and 768 again, for each position alone."""

import torch

from headwater.model import Block, preset

block = Block(preset("gpt1"), layer=0)
x = torch.randn(1, 5, 768)  # five positions
inside = block.mlp.expand(x)
print(tuple(x.shape), "->", tuple(inside.shape), "->", tuple(block.mlp.contract(inside).shape))
for part in ("attention", "mlp", "norm_1", "norm_2"):
    count = sum(weights.numel() for weights in getattr(block, part).parameters())
    print(f"{part:9} {count:9,}")
print(f"mlp = 768 · 3072 + 3072 + 3072 · 768 + 768 = {768 * 3072 + 3072 + 3072 * 768 + 768:,}")
