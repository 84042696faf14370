"""LayerNorm of one vector; then the residual stream of GPT-1 (LayerNorm after) and of GPT-2 (before)."""

import torch

from headwater.model import ModelConfig, build_model

x = torch.tensor([1.0, 2.0, 3.0, 6.0])
gain, bias = torch.ones(4), torch.zeros(4)
normal = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() * gain + bias
print("mean", x.mean().item(), "variance", x.var(correction=0).item(), "->", [f"{v:.3f}" for v in normal.tolist()])

for norm in ("post", "pre"):  # x = norm(x + f(x)) and x = x + f(norm(x))
    shape = {"layers": 6, "width": 64, "heads": 1, "vocabulary": 100, "context": 16}
    model = build_model(ModelConfig(**shape, norm=norm, residual_scaling=False, init_deviation=0.07))
    model.initialise(seed=1)
    layers: list[torch.Tensor] = []
    model.hidden(torch.arange(16)[None], layers=layers)
    print(f"{norm:4}", "deviation after each block:", [f"{h.std():.2f}" for h in layers[1:-1]])
