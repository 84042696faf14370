import math

from headwater.model import build_model, preset

model = build_model(preset("gpt2-small", width=64, heads=1, vocabulary=100))
model.initialise(seed=0)
mlp, N = model.blocks[0].mlp, 2 * len(model.blocks)
ratio = mlp.contract.weight.std() / mlp.expand.weight.std()
print(f"at the start {ratio:.3f}; 1/√N = {1 / math.sqrt(N):.3f}, 1/N = {1 / N:.3f}")
