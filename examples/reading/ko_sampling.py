"""Greedy, temperature and top-k on the logits of one position, then with `generate`, in Korean."""

import torch

import headwater as hw

lm = hw.load("gpt2-mini-ko")
prompt = "이 영화는 정말"
logits = lm.logits(torch.tensor([lm.tokenizer.encode(prompt)]))[0, -1]
five = logits.topk(5).indices
print(" " * 18, *(f"{lm.tokenizer.decode([token])!r:>9}" for token in five.tolist()))
for temperature in (0.5, 1.0, 2.0):
    shares = (logits / temperature).softmax(dim=0)[five]
    print(f"temperature {temperature}:  ", *(f"{share:9.3f}" for share in shares.tolist()))
top_2 = logits.masked_fill(logits < logits.topk(2).values[-1], -torch.inf).softmax(dim=0)[five]
print("top-k 2:          ", *(f"{share:9.3f}" for share in top_2.tolist()))

print("greedy:   ", repr(lm.generate(prompt, max_tokens=12, temperature=0)))
for seed in (1, 2):
    print(f"top-k 40, seed {seed}:", repr(lm.generate(prompt, max_tokens=12, temperature=1, top_k=40, seed=seed)))
