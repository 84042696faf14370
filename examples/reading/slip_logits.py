import torch

import headwater as hw

lm = hw.load("gpt2-mini")
logits = lm.logits(torch.tensor([lm.tokenizer.encode("The river")]))[0, -1]
print(f"logits: from {logits.min():.1f} to {logits.max():.1f}, sum {logits.sum():.0f}")
print(f"probabilities, softmax of the logits: sum {logits.softmax(dim=0).sum():.3f}")
