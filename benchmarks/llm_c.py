"""llm.c as a peer of benchmarks/pretrain.py: its program, its token file and its output.

Its program `train_gpt2cu` is taken from the folder, or built there where `nvcc` is installed. It trains GPT-2 from
random weights, of the depth that the case has, on random tokens.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = "train_gpt2cu"
# step    3/12 | loss 10.9 (+nanz)| norm 15.3 (+nanz)| lr 3.00e-04 | 76.92 ms | 47.1% bf16 MFU | 425984 tok/s
_STEP = re.compile(r"^step +\d+/\d+ \|.*\| ([\d.]+) ms \|", re.MULTILINE)
_MEMORY = re.compile(r"^device memory usage: (\d+) MiB", re.MULTILINE)


def absence(folder: str, precision: str, layers: int) -> str:
    """Return why llm.c cannot run a case, or an empty string."""
    if precision != "bf16" or layers not in (12, 24):
        return "it is compared in bf16, for 12 and 24 layers"
    if not (Path(folder) / "train_gpt2.cu").exists():
        return f"{folder} has no train_gpt2.cu: --llmc names a checkout of llm.c"
    if not (Path(folder) / PROGRAM).exists() and shutil.which("nvcc") is None:
        return f"{folder} has no {PROGRAM}, and nvcc is not installed to build it"
    return ""


def measure(folder: str, case: Any, updates: int) -> dict[str, float]:
    """Train for a few updates; return the tokens per second and the peak memory."""
    if not (Path(folder) / PROGRAM).exists():
        subprocess.run(["make", PROGRAM, "NO_MULTI_GPU=1"], cwd=folder, check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as work:
        tokens = Path(work) / "tokens.bin"
        write_tokens(tokens, case.vocabulary, (updates + 2) * case.batch * case.context + 1)
        files = ["-i", tokens, "-j", tokens, "-e", f"d{case.layers}"]
        shape = ["-b", case.batch, "-t", case.context, "-d", case.batch * case.context, "-x", updates + 2]
        nothing_else = ["-v", 0, "-s", 0, "-r", 0, "-c", 0.1]  # validation, samples, recomputation; weight decay
        command = [f"./{PROGRAM}", *map(str, [*files, *shape, *nothing_else])]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit((ran.stderr or ran.stdout).strip() or f"{PROGRAM} ended with status {ran.returncode}")
    return read_output(ran.stdout, case.batch * case.context)


def write_tokens(path: Path, vocabulary: int, count: int) -> None:
    """Write random tokens in llm.c's format."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, count
    ids = np.random.default_rng(0).integers(0, vocabulary, count, dtype=np.uint16)
    path.write_bytes(header.tobytes() + ids.tobytes())


def read_output(output: str, tokens: int) -> dict[str, float]:
    """Return what the program printed, without its first two updates; `tokens` an update."""
    milliseconds = [float(found) for found in _STEP.findall(output)][2:]
    memory = _MEMORY.search(output)
    if not milliseconds or memory is None:
        raise SystemExit(f"{PROGRAM} printed no updates:\n{output[-500:]}")
    return {
        "tokens_per_second": tokens / statistics.median(milliseconds) * 1_000,
        "peak_mb": int(memory[1]) * 1.048576,
    }
