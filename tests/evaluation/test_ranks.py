"""Two ranks evaluate together: the scores and the stored examples of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.evaluation import evaluate

TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "headwater"]


@pytest.mark.slow
def test_two_ranks_give_the_scores_of_one_process(world: Any, tmp_path: Path) -> None:
    evaluate(
        world.model, ["heldout", "continuation"], [world.tokens, world.labels], tmp_path / "one", device="cpu"
    )
    command = [*TWO, "evaluate", f"--model={world.model}", "--tasks=heldout,continuation", "--device=cpu"]
    command += [f"--data={world.tokens}", f"--data={world.labels}", f"--out={tmp_path / 'two'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("heldout.bits-per-byte") == 1
    stored = sorted((tmp_path / "one" / "examples").iterdir())
    assert len(stored) > 1
    for path in stored:
        assert (tmp_path / "two" / "examples" / path.name).read_bytes() == path.read_bytes()
    # A refusal is the first rank's; the other one does not wait for it.
    refused = subprocess.run([*command, "--limit=1"], capture_output=True, text=True, timeout=300)
    assert refused.returncode != 0
    assert "already contains something else" in refused.stderr
