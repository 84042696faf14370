"""Underfitting: both losses fall together. Memorising: the training loss falls, the loss on unseen text rises."""

import json

import torch
from torch.nn.functional import cross_entropy

import headwater as hw
from headwater.model import ModelConfig, build_model
from headwater.shipped import find

curve = json.loads((find("gpt1-mini") / "about.json").read_text("utf-8"))["curve"]
for point in (curve[3], curve[11], curve[21], curve[23], curve[36], curve[-1]):
    print(f"gpt1-mini, {point['tokens']:10,} tokens read: ", end="")
    print(f"training {point['training']:.2f}, held out {point['held_out']:.2f}")

tokenizer = hw.load("gpt2-mini").tokenizer
read = "The miller opened the gate and let the water pass. When the rain came, he stood by the river."
unseen = "The boys of the village came to the river in the spring. When the light was gone, they went home."
model = build_model(ModelConfig(layers=2, width=64, heads=1, context=64, init_deviation=0.07, vocabulary=4096))
model.initialise(seed=0)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for update in range(61):
    losses = []
    for text in (read, unseen):
        ids = torch.tensor([tokenizer.encode(text)])
        losses.append(cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]))
    if update % 20 == 0:
        print(f"one page, read {update:2} times: training {losses[0]:.2f}, held out {losses[1]:.2f}")
    optimizer.zero_grad()
    losses[0].backward()
    optimizer.step()
