"""Sharded ranks in bfloat16 give the same losses compiled or not, whatever is recomputed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SHARDED = """
import json, sys
import torch
from torch._dynamo.utils import counters
from headwater.model import build_model, preset
from headwater.pretraining.objectives import l1
from headwater.pretraining.tokens.sampler import TokenBatch
from headwater.training import trainer as trainer_module
from headwater.training import TrainConfig, Trainer
from headwater.training.parallel import process_group

trainer_module._COMPILER = "aot_eager"
tokens = torch.randint(0, 61, (4, 13), generator=torch.Generator().manual_seed(0))
result = {}
with process_group("cpu") as ranks:
    mine = tokens[ranks.rank :: ranks.count]
    batch = TokenBatch(mine[:, :-1], mine[:, 1:], torch.full((2, 12), 1 / 48))
    for recompute in (False, True):
        for wish in ("off", "on"):
            torch._dynamo.reset()
            counters.clear()
            model = build_model(preset("gpt2-pico", vocabulary=61, context=12, width=32), seed=3)
            settings = TrainConfig(steps=5, precision="bf16")
            trainer = Trainer(model, l1, settings, ranks=ranks, sharded=True, recompute=recompute)
            notes = []
            trainer.compile_blocks(batch, wish, notes.append)
            losses = [trainer.update([batch, batch]).loss for _ in range(3)]
            graphs = counters["stats"]["unique_graphs"]
            result[f"{recompute} {wish}"] = [losses, notes, graphs, sum(counters["graph_break"].values())]
    if ranks.is_first:
        open(sys.argv[1], "w").write(json.dumps(result))
"""


@pytest.mark.slow
def test_two_sharded_ranks_train_in_bfloat16_compiled_or_not(launched: Any, tmp_path: Path) -> None:
    script, answer, log = tmp_path / "sharded.py", tmp_path / "answer.json", tmp_path / "log"
    script.write_text(SHARDED)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(answer)]
    with launched([sys.executable, *command], log) as process:
        assert process.wait(timeout=300) == 0, log.read_text()
    result = json.loads(answer.read_text())
    eager = result["False off"][0]
    for key, (losses, notes, graphs, breaks) in result.items():
        assert losses == pytest.approx(eager, rel=5e-3), key
        if key.endswith("on"):
            assert notes == ["compiled"], key
            assert breaks == 0
            assert graphs <= 2, key  # the blocks' and, without native kernels, the loss's
