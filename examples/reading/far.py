"""A token that depends on one far before it: a Transformer and an LSTM of one size learn to copy it."""

import torch
from torch.nn.functional import cross_entropy

from headwater.model import ModelConfig, build_model

shape = {"width": 64, "vocabulary": 20, "context": 33, "init_deviation": 0.07}
kinds = {
    "Transformer": ModelConfig(layers=2, heads=1, **shape),
    "LSTM": ModelConfig(architecture="lstm", layers=1, heads=1, units=128, **shape),
}
for name, config in kinds.items():
    for distance in (4, 32):
        model = build_model(config)
        model.initialise(seed=1)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        draw = torch.Generator().manual_seed(1)
        for _ in range(100):
            ids = torch.randint(10, 20, (32, distance + 1), generator=draw)  # what lies between does not matter
            ids[:, 0] = torch.randint(0, 10, (32,), generator=draw)
            loss = cross_entropy(model(ids)[:, -1], ids[:, 0])  # after the last token comes the first one again
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{name:11} ({parameters:,} weights), {distance:2} tokens back: loss {loss:.2f}")
print("a guess among ten tokens: loss 2.30")
