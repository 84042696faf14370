"""One sentence, two objectives: how many tokens an update predicts, and from which tokens."""

import torch
from torch.nn.functional import cross_entropy

import headwater as hw
from headwater.model import ModelConfig, build_model

tokenizer = hw.load("gpt2-mini").tokenizer.with_mask()
ids = torch.tensor([tokenizer.encode("The river runs to the sea, and the sea is never full.")])
draw = torch.Generator().manual_seed(1)
shape = {"layers": 2, "width": 64, "heads": 1, "context": 16, "init_deviation": 0.07}
for attention in ("causal", "full"):
    model = build_model(ModelConfig(attention=attention, vocabulary=tokenizer.vocabulary_size, **shape))
    model.initialise(seed=0)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(31):
        read, targets = ids[:, :-1], ids[:, 1:]  # causal: each token from those before it
        if attention == "full":  # masked: 15 % of the tokens are hidden and predicted from all others
            hidden = torch.randperm(ids.shape[1], generator=draw)[: round(0.15 * ids.shape[1])]
            read, targets = ids.clone(), torch.full_like(ids, -100)  # -100: no loss here
            read[0, hidden], targets[0, hidden] = tokenizer.mask, ids[0, hidden]
        losses.append(cross_entropy(model(read)[0], targets[0]))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    print(f"{attention} attention reads:", tokenizer.decode(read[0].tolist()))
    print(
        f"  {int((targets >= 0).sum())} predictions per update; loss",
        *(f"{losses[i]:.2f}" for i in (0, 10, 20, 30)),
    )
