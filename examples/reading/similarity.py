"""A pair has no order, so both orders are read, and the two vectors are added before the linear layer."""

import torch

import headwater as hw

lm = hw.load("gpt1-mini")
tokenizer = lm.tokenizer.with_task_tokens()
model, tokens = lm.model.eval(), tokenizer.task_tokens
model.add_rows(3, seed=0)  # for the start, the delimiter and the extract token


def h(first: str, second: str) -> torch.Tensor:
    ids = [tokens.start, *tokenizer.encode(first), tokens.delimiter, *tokenizer.encode(second), tokens.extract]
    return model.hidden(torch.tensor([ids]))[0, -1]  # the output at the extract token


a, b = "A dog runs.", "The dog ran to the house."
alike = torch.nn.functional.cosine_similarity(h(a, b), h(b, a), dim=0)
print(f"cosine of h(a, b) and h(b, a): {alike:.3f}")
print("h(a, b) + h(b, a) = h(b, a) + h(a, b):", torch.equal(h(a, b) + h(b, a), h(b, a) + h(a, b)))
