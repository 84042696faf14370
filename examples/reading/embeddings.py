"""What the first block reads: the token's row plus the position's row. Both are learned."""

import torch
from torch.nn.functional import cosine_similarity

import headwater as hw

lm = hw.load("gpt2-mini")
tokens, positions = lm.model.tokens.weight, lm.model.positions.weight
ids = torch.tensor(lm.tokenizer.encode("the sea and the sea"))
h_0 = tokens[ids] + positions[: len(ids)]
layers: list[torch.Tensor] = []
lm.model.hidden(ids[None], layers=layers)
print("ids", ids.tolist(), "h_0", tuple(h_0.shape), "as in the model:", torch.equal(h_0, layers[0][0]))

print(f"' sea' twice, its row: cosine {cosine_similarity(tokens[ids[1]], tokens[ids[4]], dim=0):.2f}")
print(f"' sea' twice, row + position: {cosine_similarity(h_0[1], h_0[4], dim=0):.2f}")
for gap in (1, 10, 100):
    alike = cosine_similarity(positions[:-gap], positions[gap:]).mean()
    print(f"rows of two positions {gap} apart: {alike:.2f}")
