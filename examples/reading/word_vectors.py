"""A word vector is the same in every sentence; the output of a block depends on the words before it."""

import torch
from torch.nn.functional import cosine_similarity

import headwater as hw

lm = hw.load("gpt2-mini")
bank = lm.tokenizer.encode(" bank")[0]
vectors = []
for text in (
    "The boat lay by the river bank",
    "The boat came to the river bank",
    "The money lay in the city bank",
):
    layers: list[torch.Tensor] = []
    lm.model.hidden(torch.tensor([lm.tokenizer.encode(text)]), layers=layers)
    vectors.append([lm.model.tokens.weight[bank], *(output[0, -1] for output in layers[1:])])
for name, other in (("the river bank and the river bank", 1), ("the river bank and the city bank", 2)):
    alike = [cosine_similarity(a, b, dim=0).item() for a, b in zip(vectors[0], vectors[other], strict=True)]
    print(f"{name}: word vector {alike[0]:.2f}, then after each block", *(f"{value:.2f}" for value in alike[1:]))
