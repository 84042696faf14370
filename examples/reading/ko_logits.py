"""A logit is any number, also in Korean; softmax turns all logits of a position into probabilities."""

import torch

import headwater as hw

lm = hw.load("gpt2-mini-ko")
ids = torch.tensor([lm.tokenizer.encode("이 영화는 정말")])
logits = lm.logits(ids)[0, -1]  # (vocabulary,): after the last token
probabilities = logits.softmax(dim=0)  # exp(logit) / sum of exp(logits)

for token in logits.topk(5).indices.tolist():
    print(f"{lm.tokenizer.decode([token])!r:8} logit {logits[token]:5.2f}   P = {probabilities[token]:.4f}")
print(f"lowest logit {logits.min():.2f}; sum of all P = {probabilities.sum():.4f}")
print("logits + 100 give the same P:", torch.allclose((logits + 100).softmax(dim=0), probabilities, atol=1e-5))
