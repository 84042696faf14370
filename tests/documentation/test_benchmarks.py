"""What the benchmarks of a GPU do without one: find a peer, read its output, and say what is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def llm_c(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import llm_c

    return llm_c


# It answers as llm.c does (train_gpt2.cu), and writes down what it was given.
PROGRAM = """#!/bin/sh
echo "$@" > arguments
cp "$2" tokens.bin
echo "device memory usage: 10000 MiB / 81559 MiB"
for ms in 900.00 90.00 50.00 40.00 45.00; do
echo "step    1/5 | loss 10.99 (+nanz)| norm 15.27 (+nanz)| lr 3.00e-04 | $ms ms | 41.5% bf16 MFU | 364088 tok/s"
done
"""


def test_llm_c_is_located_run_and_read(llm_c: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_c.shutil, "which", lambda name: None)
    assert "has no train_gpt2.cu" in llm_c.absence(str(tmp_path), "bf16", 12)
    (tmp_path / "train_gpt2.cu").touch()
    assert "nvcc is not installed" in llm_c.absence(str(tmp_path), "bf16", 12)
    program = tmp_path / "train_gpt2cu"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    assert not llm_c.absence(str(tmp_path), "bf16", 12)
    assert llm_c.absence(str(tmp_path), "fp32", 12)
    case = SimpleNamespace(layers=12, context=64, batch=4, vocabulary=50_257)
    found = llm_c.measure(str(tmp_path), case, 3)
    assert found == pytest.approx({"tokens_per_second": 4 * 64 / 0.045, "peak_mb": 10_485.76})
    assert "-e d12 -b 4 -t 64 -d 256 -x 5" in (tmp_path / "arguments").read_text()
    content = (tmp_path / "tokens.bin").read_bytes()
    assert np.frombuffer(content, np.int32, 3).tolist() == [20240520, 1, 5 * 256 + 1]
    assert len(content) == 1_024 + 2 * (5 * 256 + 1)
    with pytest.raises(SystemExit, match="no updates"):
        llm_c.read_output("nothing", 256)


@pytest.mark.parametrize("script", ["pretrain.py", "generate.py"])
def test_without_a_gpu_its_benchmark_is_an_error(script: str) -> None:
    command = [sys.executable, str(BENCHMARKS / script), "--device", "cuda:9"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: device 'cuda:9' cannot be used")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("case", ["train-0", "predict"])
def test_the_peer_of_fine_tuning_pads_little(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headwater's batches have texts of similar length. Random batches of SST-2 are two thirds padding."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    finetune = importlib.import_module("finetune")

    real, padded = [], []
    forward = transformers.GPT2ForSequenceClassification.forward

    def counted(self: Any, input_ids: Any, attention_mask: Any, **others: Any) -> Any:
        real.append(int(attention_mask.sum()))
        padded.append(attention_mask.numel())
        return forward(self, input_ids=input_ids, attention_mask=attention_mask, **others)

    monkeypatch.setattr(transformers.GPT2ForSequenceClassification, "forward", counted)
    shape = {"layers": 1, "width": 64, "vocabulary": 100, "batch": 32, "updates": 20, "precision": "fp32"}
    step = finetune.transformers_side(SimpleNamespace(data=None, **shape), case)
    assert sum(step() for _ in range(20)) == 640
    assert sum(padded) < 1.5 * sum(real)
