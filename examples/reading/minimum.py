"""The loss of the answers is a part of the loss of the text: where the whole is least, it is too."""

import torch

lines = ["cat=chat;", "cat=chat;", "cat=chatte;", "sea=mer;", "dog=chien;", "dog=chienne;"]
contexts = [line[:i] for line in lines for i in range(len(line))]  # what a prediction sees
ids = torch.tensor([ord(character) for line in lines for character in line])
answer = torch.tensor(["=" in context for context in contexts])

counts = {context: torch.zeros(128) for context in contexts}
for context, token in zip(contexts, ids, strict=True):
    counts[context][token] += 1
best = torch.stack([counts[context] / counts[context].sum() for context in contexts])

other = torch.rand(best.shape, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
for share in (0.0, 0.02, 0.1, 0.5):
    P = (1 - share) * best + share * other
    losses = -P[torch.arange(len(ids)), ids].log()
    whole, part = losses.mean(), losses[answer].mean()
    print(f"{share:4.0%} away from the minimum: all tokens {whole:.3f}, answers alone {part:.3f}")
