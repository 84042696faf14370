import torch
from torch.nn.functional import cosine_similarity

import headwater as hw

learned = hw.load("gpt2-mini").model.positions.weight  # a parameter, (256, 320)
angles = torch.arange(256)[:, None] / 10_000 ** (torch.arange(0, 320, 2) / 320)
waves = torch.cat([angles.sin(), angles.cos()], dim=1)
for name, rows in (("learned rows", learned), ("sine waves", waves)):
    near, far = (cosine_similarity(rows[:-gap], rows[gap:]).mean() for gap in (1, 100))
    print(f"{name}: cosine of positions 1 apart {near:.2f}, 100 apart {far:.2f}")
