"""Known by heart: how much of a text does a model continue word for word, after how many readings?"""

import torch
from torch.nn.functional import cross_entropy

import headwater as hw
from headwater.model import ModelConfig, build_model

start = "Four score and seven years ago our fathers brought forth on this continent,"
rest = " a new nation, conceived in Liberty, and dedicated to the proposition that all men are created equal."
tokenizer = hw.load("gpt2-mini").tokenizer
begin, known = tokenizer.encode(start), tokenizer.encode(rest)
ids = torch.tensor([begin + known])
model = build_model(ModelConfig(layers=2, width=64, heads=1, context=64, init_deviation=0.07, vocabulary=4096))
model.initialise(seed=0)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for times in range(9):
    written = list(begin)
    for _ in known:
        written.append(int(model(torch.tensor([written]))[0, -1].argmax()))  # greedy
    right = [token == real for token, real in zip(written[len(begin) :], known, strict=True)]
    if times in (0, 2, 8):
        print(f"read {times} times: {[*right, False].index(False):2} of {len(known)} tokens recited")
    optimizer.zero_grad()
    cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]).backward()
    optimizer.step()
print("It writes:", tokenizer.decode(written[len(begin) :]).strip())
