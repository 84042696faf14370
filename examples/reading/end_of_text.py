"""Begin a text from nothing: the prompt is `<|endoftext|>`, after which every document began."""

import torch

import headwater as hw

lm = hw.load("gpt2-mini")
start = lm.tokenizer.end_of_text
print(start, repr(lm.tokenizer.decode([start])), "of", lm.config.vocabulary)
probabilities = lm.logits(torch.tensor([[start]]))[0, -1].softmax(dim=0)
for share, token in zip(*probabilities.topk(4), strict=True):
    print(f"{lm.tokenizer.decode([int(token)])!r:8} begins a text with P = {share:.3f}")
print(repr(lm.generate("", max_tokens=25, seed=3)))
