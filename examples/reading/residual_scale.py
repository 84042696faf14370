"""Without the factor 1/√N the residual stream grows with the depth; with it, it does not."""

import math

import torch

from headwater.model import ModelConfig, build_model

shape = {"width": 64, "heads": 1, "vocabulary": 100, "context": 16, "init_deviation": 0.07}
for layers in (4, 16, 64):
    deviation = {}
    for scaled in (False, True):
        model = build_model(ModelConfig(layers=layers, residual_scaling=scaled, final_norm=False, **shape))
        model.initialise(seed=1)
        deviation[scaled] = model.hidden(torch.arange(16)[None]).std()
    factor = 1 / math.sqrt(2 * layers)  # two residual layers per block
    print(f"{layers:2} blocks, 1/√N = {factor:.3f}: deviation of the last output", end=" ")
    print(f"{deviation[False]:.2f} without the factor, {deviation[True]:.2f} with it")
