"""Compare loading, the forward pass, logits and the loss with `transformers` and the plain computation.

Both sides alternate in one run, so that a busy machine slows them alike; the median of the rounds' ratios is
printed. A ratio of times below 1 means that Headwater is faster.

    python benchmarks/model.py load --preset gpt2-small
    python benchmarks/model.py forward --batch 4 --time 1024 --dtype bf16
    python benchmarks/model.py logits --batch 1 --time 512 --dtype bf16     # as `lm.logits`
    python benchmarks/model.py loss --positions 4096 --vocabulary 50257 --width 768
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_PEAK = """
import re
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
_OURS = """
import sys
import headwater
headwater.load(sys.argv[1])
"""
_THEIRS = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
AutoModelForCausalLM.from_pretrained(sys.argv[1])
AutoTokenizer.from_pretrained(sys.argv[1])
"""
_TORCH = """
import torch
"""


def alternate(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> dict[str, float]:
    """Return the median seconds of both, and the median of the rounds' ratios ours / theirs."""
    pairs = []
    for index in range(rounds):
        first, second = (ours, theirs) if index % 2 == 0 else (theirs, ours)
        a, b = first(), second()
        pairs.append((a, b) if index % 2 == 0 else (b, a))
    return {
        "ours_seconds": statistics.median(a for a, _ in pairs),
        "theirs_seconds": statistics.median(b for _, b in pairs),
        "ratio_of_times": statistics.median(a / b for a, b in pairs),
    }


def timed(call: Callable[[], object], device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def save_preset(name: str, folder: Path) -> int:
    from headwater.model import build_model, preset, save_model

    save_model(build_model(preset(name), seed=1), folder)
    return (folder / "model.safetensors").stat().st_size


def load(options: argparse.Namespace) -> dict[str, object]:
    """Measure how long and how much memory a new process takes to import and to open a model."""
    import headwater

    peaks: dict[str, int] = {}

    def cold(name: str, program: str, folder: str) -> float:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program + _PEAK, folder], check=True, capture_output=True, text=True
        )
        peaks[name] = int(done.stdout.split()[-1]) * 1024
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        size = save_preset(options.preset, Path(folder))
        headwater.Tokenizer.load(options.tokenizer).save(Path(folder))
        result: dict[str, object] = dict(
            alternate(lambda: cold("ours", _OURS, folder), lambda: cold("theirs", _THEIRS, folder), options.rounds)
        )
        only_torch = statistics.median(cold("torch", _TORCH, folder) for _ in range(options.rounds))
    return result | {
        "import_torch_seconds": only_torch,
        "file_bytes": size,
        "peak_above_torch_over_file": (peaks["ours"] - peaks["torch"]) / size,
        "peak_over_file": peaks["ours"] / size,
        "theirs_peak_over_file": peaks["theirs"] / size,
    }


def forward(options: argparse.Namespace) -> dict[str, object]:
    """Measure the forward pass, ours and transformers' (SDPA), in the same precision."""
    import torch
    from transformers import AutoModelForCausalLM

    from headwater.model import Backend, load_model

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    with tempfile.TemporaryDirectory() as folder:
        save_preset(options.preset, Path(folder))
        ours = load_model(Path(folder), dtype=dtype, device=options.device)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    theirs = theirs.to(options.device).eval()
    if options.plain:
        Backend().assign_to(ours)
    ids = torch.randint(0, ours.config.vocabulary, (options.batch, options.time), device=options.device)

    with torch.inference_mode():
        ours(ids), theirs(ids, use_cache=False)
        result = alternate(
            lambda: timed(lambda: ours(ids), options.device),
            lambda: timed(lambda: theirs(ids, use_cache=False).logits, options.device),
            options.rounds,
        )
    return {
        **result,
        "backend": str(ours.backend),
        "tokens_per_second": options.batch * options.time / result["ours_seconds"],
    }


def logits(options: argparse.Namespace) -> dict[str, object]:
    """Measure `lm.logits` and the peer's logits of the same ids, in the same precision."""
    import torch
    from transformers import AutoModelForCausalLM

    import headwater as hw

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    with tempfile.TemporaryDirectory() as folder:
        save_preset(options.preset, Path(folder))
        hw.Tokenizer.load(options.tokenizer).save(Path(folder))
        lm = hw.load(folder, precision=options.dtype, device=options.device)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    theirs = theirs.to(options.device).eval()
    ids = torch.randint(0, lm.config.vocabulary, (options.batch, options.time))
    on_device = ids.to(options.device)
    with torch.inference_mode():
        lm.logits(ids), theirs(on_device, use_cache=False)
        result = alternate(
            lambda: timed(lambda: lm.logits(ids), options.device),
            lambda: timed(lambda: theirs(on_device, use_cache=False).logits, options.device),
            options.rounds,
        )
    tokens = options.batch * options.time
    return {
        **result,
        "tokens_per_second": tokens / result["ours_seconds"],
        "theirs_tokens_per_second": tokens / result["theirs_seconds"],
    }


def loss(options: argparse.Namespace) -> dict[str, object]:
    """Measure the chunked loss with its gradients, and the plain one."""
    import torch
    from torch.nn import functional

    from headwater.model import cross_entropy

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    positions, device = options.positions, options.device
    hidden = torch.randn(positions, options.width, device=device, dtype=dtype, requires_grad=True)
    matrix = torch.randn(options.vocabulary, options.width, device=device, dtype=dtype).mul_(0.02).requires_grad_()
    targets = torch.randint(0, options.vocabulary, (positions,), device=device)
    weights = torch.full((positions,), 1 / positions, device=device)

    def plainly(
        hidden: torch.Tensor, matrix: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        logits = functional.linear(hidden, matrix).float()
        return (functional.cross_entropy(logits, targets, reduction="none") * weights).sum()

    def run(function: Callable[..., torch.Tensor]) -> float:
        hidden.grad = matrix.grad = None
        return timed(lambda: function(hidden, matrix, targets, weights).backward(), device)

    run(cross_entropy), run(plainly)
    result: dict[str, object] = dict(alternate(lambda: run(cross_entropy), lambda: run(plainly), options.rounds))
    if device == "cuda":
        for name, function in (("ours", cross_entropy), ("theirs", plainly)):
            torch.cuda.reset_peak_memory_stats()
            run(function)
            result[f"{name}_peak_bytes"] = torch.cuda.max_memory_allocated()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "forward", "logits", "loss"])
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--tokenizer", default="gpt2", help="a name or a folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--time", type=int, default=1024)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--plain", action="store_true", help="torch's own kernels only")
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    result = {"load": load, "forward": forward, "logits": logits, "loss": loss}[options.what](options)
    print(json.dumps({"benchmark": f"model {options.what}", **vars(options), **result}, indent=2))


if __name__ == "__main__":
    main()
