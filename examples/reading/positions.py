"""Without position embeddings: are two equal tokens told apart? The cosine of what each block gives for them."""

import torch
from torch.nn.functional import cosine_similarity

import headwater as hw
from headwater.model import ModelConfig, build_model

lm = hw.load("gpt2-mini")
ids = torch.tensor([lm.tokenizer.encode("the sea and the sea")])
full = build_model(ModelConfig(attention="full", layers=5, width=320, heads=5, vocabulary=4096, context=16))
full.initialise(seed=1)
for name, model in (("gpt2-mini, causal", lm.model), ("new weights, full", full)):
    with torch.no_grad():
        model.positions.weight.zero_()
    layers: list[torch.Tensor] = []
    model.hidden(ids, layers=layers)
    alike = [cosine_similarity(output[0, 1], output[0, 4], dim=0).item() for output in layers]
    print(f"{name} attention: read {alike[0]:.3f}, after each block", *(f"{value:.3f}" for value in alike[1:]))
