"""One base, a copy of it for each task: what is shared, and what belongs to the task alone."""

import headwater as hw
from headwater.finetuning import TaskModel

base = hw.load("gpt1-mini").model
shared, rows = sum(p.numel() for p in base.parameters()), 3 * base.config.width
print(f"start from the same {shared:,} weights; add {rows} for the rows of start, delimiter and extract")
for task, outputs in (("classify", 2), ("entail", 3), ("similarity", 2), ("choice", 1)):
    head = TaskModel(base, task, outputs).head
    new = sum(p.numel() for p in head.parameters())
    print(f"{task:10} W_y {tuple(head.weight.shape)} and a bias: {new:4} weights, {new / shared:.4%} of the base")
