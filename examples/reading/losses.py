"""L1, L2 and L3 = L2 + λ · L1 of one batch: two sentences with labels, a base and a new linear layer."""

import torch
from torch.nn.functional import cross_entropy

import headwater as hw

lm = hw.load("gpt1-mini")
tokenizer = lm.tokenizer.with_task_tokens()
model, tokens = lm.model.eval(), tokenizer.task_tokens
model.add_rows(3, seed=0)  # for the start, the delimiter and the extract token
W_y = torch.empty(2, model.config.width).normal_(std=0.03, generator=torch.Generator().manual_seed(0))

L1s, L2s = [], []
for text, label in (("A fine film, warm and clever.", 1), ("A dull film.", 0)):
    ids = torch.tensor([tokens.start, *tokenizer.encode(text), tokens.extract])
    h = model.hidden(ids[None])[0]  # (time, width)
    L1s.append(cross_entropy(model.logits(h[:-1]), ids[1:]))  # every next token, a mean over the sequence
    L2s.append(cross_entropy(h[-1:] @ W_y.T, torch.tensor([label])))  # -log P(label | text)
L1, L2 = torch.stack(L1s).mean(), torch.stack(L2s).mean()
print(f"L1 = {L1:.3f}, L2 = {L2:.3f} (ln 2 = 0.693 would be a guess), L3 = L2 + 0.5 · L1 = {L2 + 0.5 * L1:.3f}")
