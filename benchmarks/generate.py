"""Compare generation with transformers, vLLM, llama.cpp, CTranslate2 and ONNX Runtime, in tokens per second.

    python benchmarks/generate.py --peer-python OTHER_VENV/bin/python --llama LLAMA_CPP/build/bin
    python benchmarks/generate.py --device cuda --batches 1 8 64 --peer-python OTHER_VENV/bin/python
    HEADWATER_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/generate.py --llama …

The last line limits every side to AVX2; llama.cpp must then be built without AVX-512.

A model of the preset's shape with random weights, greedy decoding of a fixed number of tokens. Each side runs in a
process of its own; the sides take turns, round by round, so that a busy machine slows all alike, and ratios are
of medians over the rounds. Cases: `decode-B` continues B prompts of --prompt tokens by --new tokens, all counted
together with their prompts' time; `prefill` is a prompt of --long tokens and the first token after it. The memory
bandwidth is what both threads read, measured in every round; the limit of a decoding row is that bandwidth over
the bytes of weights that a step reads. Peers that are not installed are skipped with a line. transformers runs
in this interpreter, vLLM, CTranslate2 and ONNX Runtime in --peer-python, llama.cpp as its own llama-batched-bench,
whose figures for prompt and continuation together are taken; its files are made by its own llama-quantize.

The limit of Headwater's rows: for `decode-1` reading the weights from memory; for `decode-8` the matmuls and, as
texts grow, attention; for `prefill` the processor's bf16 or int8 dot products.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from generate_sides import ctranslate2, headwater, llama_cpp, make_gguf, onnxruntime, transformers, vllm
from peak import device_of, peak_megabytes

# (side, precision, the class of precision it competes in)
SIDES = [
    ("headwater", "fp32", "fp32"),
    ("headwater", "bf16", "bf16"),
    ("headwater", "int8", "int8"),
    ("transformers", "fp32", "fp32"),
    ("transformers", "bf16", "bf16"),
    ("llama.cpp", "f32", "fp32"),
    ("llama.cpp", "f16", "bf16"),
    ("llama.cpp", "bf16", "bf16"),
    ("llama.cpp", "q8_0", "int8"),
    ("ctranslate2", "float32", "fp32"),
    ("ctranslate2", "int8", "int8"),
    ("onnxruntime", "fp32", "fp32"),
    ("onnxruntime", "int8", "int8"),
    ("vllm", "float32", "fp32"),
    ("vllm", "bfloat16", "bf16"),
]
ON_GPU = {
    "headwater:fp32",
    "headwater:bf16",
    "transformers:fp32",
    "transformers:bf16",
    "vllm:float32",
    "vllm:bfloat16",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--long", type=int, default=512)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sides", nargs="+", help="as headwater:bf16; default: all")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--llama", type=Path, default=Path(), help="folder of llama.cpp's programs")
    parser.add_argument("--llama-second", type=Path, default=Path(), help="another build, where the first crashes")
    parser.add_argument("--work", type=Path, help="where the models are kept; default: a temporary folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: headwater, transformers and vLLM")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for one thread on a busy machine")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(arguments)
        return
    device_of(arguments.device)
    with tempfile.TemporaryDirectory() as temporary:
        arguments.work = arguments.work or Path(temporary)
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    make_model(arguments.preset, arguments.work)
    cases = [f"decode-{batch}" for batch in arguments.batches] + ["prefill"]
    wanted = [s for s in SIDES if not arguments.sides or f"{s[0]}:{s[1]}" in arguments.sides]
    on_gpu = arguments.device != "cpu"
    wanted = [s for s in wanted if (f"{s[0]}:{s[1]}" in ON_GPU if on_gpu else s[0] != "vllm")]
    sides = {}
    for name, precision, kind in wanted:
        if name == "llama.cpp" and (arguments.llama / "llama-quantize").exists():
            make_gguf(arguments, precision)
        side = Side(name, precision, kind, arguments)
        if side.ready:
            sides[f"{name}:{precision}"] = side
    seconds: dict[tuple[str, str], list[float]] = {}
    bandwidths = []
    for _ in range(arguments.rounds):
        bandwidths.append(bandwidth(arguments.threads, arguments.cpu_time, arguments.device))
        for case in cases:
            for key, side in sides.items():
                seconds.setdefault((key, case), []).append(side.run(case))
    for side in sides.values():
        side.close()
    report(arguments, cases, sides, seconds, statistics.median(bandwidths))


def report(
    arguments: argparse.Namespace,
    cases: list[str],
    sides: dict[str, Side],
    seconds: dict[tuple[str, str], list[float]],
    bytes_per_second: float,
) -> None:
    rows = []
    for case in cases:
        for key, side in sides.items():
            times = seconds[key, case]
            row = {
                "case": case,
                "side": key,
                "tokens_per_second": side.tokens[case] / statistics.median(times),
                "best": side.tokens[case] / min(times),
                "peak_mb": side.peak_mb,
            }
            if case.startswith("decode") and side.weight_bytes:
                batch = int(case.partition("-")[2])
                row["limit"] = batch * bytes_per_second / side.weight_bytes
            rows.append(row)
    if arguments.json:
        print(json.dumps({"bandwidth": bytes_per_second, "auto": chosen_precision(arguments), "rows": rows}))
        return
    reader = f"{arguments.threads} threads" if arguments.device == "cpu" else arguments.device
    print(f"memory read: {bytes_per_second / 1e9:.0f} GB/s with {reader}")
    for case in cases:
        mine = {sides[r["side"]].kind: r for r in rows if r["case"] == case and r["side"].startswith("headwater")}
        print(f"\n{case}")
        for row in (r for r in rows if r["case"] == case):
            own = mine.get(sides[row["side"]].kind)
            ratio = f"headwater × {own['tokens_per_second'] / row['tokens_per_second']:.2f}" if own else ""
            if own is row:
                ratio = f"{row['tokens_per_second'] / row['limit']:.0%} of the bandwidth" if "limit" in row else ""
            print(
                f"  {row['side']:20} {row['tokens_per_second']:8.0f} tokens/s (best {row['best']:.0f}), "
                f"{row['peak_mb']:,.0f} MB  {ratio}"
            )


class Side:
    """One implementation in its own process, which runs a case whenever it is told to."""

    def __init__(self, name: str, precision: str, kind: str, arguments: argparse.Namespace) -> None:
        self.kind = kind
        own = name in ("headwater", "transformers", "llama.cpp")
        command = [sys.executable if own else arguments.peer_python, __file__, "--side", name, precision]
        for option in ("preset", "prompt", "new", "long", "threads", "work", "llama", "llama_second", "device"):
            command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
        command += ["--batches", *map(str, arguments.batches), *["--cpu-time"] * arguments.cpu_time]
        environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "false"}
        pipe = subprocess.PIPE
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._log, text=True, env=environment
        )
        self.tokens: dict[str, int] = {}
        self.peak_mb = 0.0
        answer = self._read()
        self.ready = "weight_bytes" in answer
        self.weight_bytes = answer.get("weight_bytes", 0)
        if not self.ready:
            print(f"{name}:{precision} is skipped: {answer.get('error')}", file=sys.stderr)
            self.close()

    def run(self, case: str) -> float:
        assert self._process.stdin is not None
        print(case, file=self._process.stdin, flush=True)
        answer = self._read()
        if "seconds" not in answer:
            raise SystemExit(f"a side failed in {case}: {answer.get('error')}")
        self.tokens[case], self.peak_mb = answer["tokens"], answer["peak_mb"]
        return float(answer["seconds"])

    def close(self) -> None:
        self._process.communicate()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                answer: dict[str, Any] = json.loads(line[1:])
                return answer
        self._log.seek(0)
        return {"error": (self._log.read().strip().splitlines() or ["it ended"])[-1]}


def serve(arguments: argparse.Namespace) -> None:
    """The process of one side."""
    name, precision = arguments.side
    make = {
        "headwater": headwater,
        "transformers": transformers,
        "llama.cpp": llama_cpp,
        "ctranslate2": ctranslate2,
        "onnxruntime": onnxruntime,
        "vllm": vllm,
    }[name]
    try:
        run, weight_bytes = make(arguments, precision)
    except ImportError as error:
        print("@" + json.dumps({"error": str(error)}), flush=True)
        return
    run("decode-1")  # warm
    print("@" + json.dumps({"weight_bytes": weight_bytes}), flush=True)
    for line in sys.stdin:
        clock = time.process_time if arguments.cpu_time else time.perf_counter
        started = clock()
        found = run(line.strip())
        tokens, seconds = found if isinstance(found, tuple) else (found, clock() - started)
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # llama.cpp is one
        answer = {"seconds": seconds, "tokens": tokens, "peak_mb": max(peak_megabytes(), children)}
        print("@" + json.dumps(answer), flush=True)


def make_model(name: str, work: Path) -> None:
    if (work / "model").is_dir():
        return
    from headwater.model import build_model, preset, save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    model = build_model(preset(name, vocabulary=tokenizer.vocabulary_size, context=1_024), seed=1)
    (work / "model").mkdir(parents=True)
    save_model(model, work / "model", tokenizer=tokenizer)


def chosen_precision(arguments: argparse.Namespace) -> str:
    """Return the precision that `auto` chooses for this model on this machine."""
    import headwater as hw

    return str(hw.load(arguments.work / "model", precision="auto", device=arguments.device).precision)


def bandwidth(threads: int, cpu_time: bool, device: str) -> float:
    """Bytes a second that `threads` threads, or a GPU, read from memory: best of a few passes over 512 MB."""
    import torch

    torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    x = torch.ones(128 * 1024**2, device=device)
    best = 0.0
    for _ in range(5):
        started = clock()
        float(x.sum())  # waits for a GPU
        best = max(best, 4 * x.numel() / (clock() - started))
    return best


if __name__ == "__main__":
    main()
