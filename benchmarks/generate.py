"""Generation beside transformers, llama.cpp, CTranslate2 and ONNX Runtime: tokens a second, in one run.

    python benchmarks/generate.py --peer-python OTHER_VENV/bin/python --llama LLAMA_CPP/build/bin
    HEADWATER_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/generate.py --llama …

The second line holds every side to AVX2, with a llama.cpp that was built without AVX-512.

A model of the preset's shape with random weights, greedy decoding of a fixed number of tokens. Each side runs in a
process of its own; the sides take turns, round by round, so that a busy machine slows all alike, and ratios are
of medians over the rounds. Cases: `decode-B` continues B prompts of --prompt tokens by --new tokens, all counted
together with their prompts' time; `prefill` is a prompt of --long tokens and the first token after it. The memory
bandwidth is what both threads read, measured in every round; the limit of a decoding row is that bandwidth over
the bytes of weights that a step reads. Peers that are not installed are skipped with a line. transformers runs
in this interpreter, CTranslate2 and ONNX Runtime in --peer-python, llama.cpp as its own llama-batched-bench, whose
figures for prompt and continuation together are taken; its files are made by its own llama-quantize.

What bounds a row of ours: `decode-1` the weights read from memory; `decode-8` the products themselves and, as
texts grow, attention; `prefill` the processor's bf16 or int8 dot products.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peak import peak_megabytes

# (side, precision, the class of precision it competes in)
SIDES = [
    ("headwater", "fp32", "fp32"),
    ("headwater", "bf16", "bf16"),
    ("headwater", "int8", "int8"),
    ("headwater", "int4", "int4"),
    ("transformers", "fp32", "fp32"),
    ("transformers", "bf16", "bf16"),
    ("llama.cpp", "f32", "fp32"),
    ("llama.cpp", "f16", "bf16"),
    ("llama.cpp", "bf16", "bf16"),
    ("llama.cpp", "q8_0", "int8"),
    ("llama.cpp", "q4_0", "int4"),
    ("ctranslate2", "float32", "fp32"),
    ("ctranslate2", "int8", "int8"),
    ("onnxruntime", "fp32", "fp32"),
    ("onnxruntime", "int8", "int8"),
]
# Runs a case, returns the tokens to count, and the seconds where the side measures them itself.
Case = Callable[[str], int | tuple[int, float]]


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
    parser.add_argument("--work", type=Path, help="where the models are kept; default: a temporary folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: headwater and transformers alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for one thread on a busy machine")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(arguments)
        return
    with tempfile.TemporaryDirectory() as temporary:
        arguments.work = arguments.work or Path(temporary)
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    make_model(arguments.preset, arguments.work)
    cases = [f"decode-{batch}" for batch in arguments.batches] + ["prefill"]
    wanted = [s for s in SIDES if not arguments.sides or f"{s[0]}:{s[1]}" in arguments.sides]
    if arguments.device != "cpu":
        wanted = [s for s in wanted if s[0] in ("headwater", "transformers") and s[1] != "int8"]
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
        bandwidths.append(bandwidth(arguments.threads, arguments.cpu_time))
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
        print(json.dumps({"bandwidth": bytes_per_second, "rows": rows}))
        return
    print(f"memory read: {bytes_per_second / 1e9:.0f} GB/s with {arguments.threads} threads")
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
        for option in ("preset", "prompt", "new", "long", "threads", "work", "llama", "device"):
            command += [f"--{option}", str(getattr(arguments, option))]
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
    from headwater.model import build_model, preset
    from headwater.model.io.folder import save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    model = build_model(preset(name, vocabulary=tokenizer.vocabulary_size, context=1_024), seed=1)
    (work / "model").mkdir(parents=True)
    save_model(model, work / "model", tokenizer=tokenizer)


def prompts(arguments: argparse.Namespace, case: str) -> tuple[list[list[int]], int]:
    """The prompts of a case and how many tokens to make of each."""
    numbers = np.random.default_rng(len(case))
    if case == "prefill":
        return [numbers.integers(1_000, 4_000, arguments.long).tolist()], 1
    batch = int(case.partition("-")[2])
    return numbers.integers(1_000, 4_000, (batch, arguments.prompt)).tolist(), arguments.new


def counted(case: str, ids: list[list[int]], new: int) -> int:
    return len(ids[0]) if case == "prefill" else len(ids) * new


def step_bytes(preset_name: str, bytes_per_weight: float, output_bytes: float | None = None) -> int:
    """The bytes of weights that a step reads; `output_bytes`: of a weight of the output matrix, if others."""
    from headwater.model import preset

    config = preset(preset_name)
    output = 50_257 * (output_bytes or bytes_per_weight)
    return int(config.width * (output + 12 * config.layers * config.width * bytes_per_weight))


def bandwidth(threads: int, cpu_time: bool) -> float:
    """Bytes a second that `threads` threads read from memory, best of a few passes over 512 MB."""
    import torch

    torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    x = torch.ones(128 * 1024**2)
    best = 0.0
    for _ in range(5):
        started = clock()
        x.sum()
        best = max(best, 4 * x.numel() / (clock() - started))
    return best


def headwater(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    from headwater.cli.process import prepare

    prepare()  # as the commands do
    import torch

    import headwater as hw

    torch.set_num_threads(arguments.threads)
    slots = max(8, *arguments.batches)
    lm = hw.load(arguments.work / "model", precision=precision, device=arguments.device, slots=slots)
    seen = 0

    def run(case: str) -> int:
        nonlocal seen
        ids, new = prompts(arguments, case)
        seen += 1  # a new first token, so that nothing can be taken over from the round before
        ids = [[seen, *rest[1:]] for rest in ids]
        options = {"max_tokens": new, "min_tokens": new, "temperature": 0}
        running = [lm.engine.submit(lm.request(prompt, **options)) for prompt in ids]
        assert all(len(generation.wait().tokens) == new for generation in running)
        return counted(case, ids, new)

    weight = {"fp32": 4, "bf16": 2, "int8": 1, "int4": 0.5625}[precision]  # int4 keeps the output matrix in int8
    return run, step_bytes(arguments.preset, weight, 1 if precision == "int4" else None)


def transformers(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(arguments.threads)
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(arguments.work / "model", dtype=dtype).eval()
    model.to(arguments.device)

    def run(case: str) -> int:
        ids, new = prompts(arguments, case)
        with torch.inference_mode():
            tokens, past = torch.tensor(ids, device=arguments.device), None
            for _ in range(new):
                out = model(tokens, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, tokens = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
        return counted(case, ids, new)

    return run, step_bytes(arguments.preset, 4 if precision == "fp32" else 2)


def make_gguf(arguments: argparse.Namespace, precision: str) -> None:
    path, full = arguments.work / f"{precision}.gguf", arguments.work / "f32.gguf"
    if not full.exists():
        convert = [
            sys.executable,
            "-m",
            "headwater",
            "convert",
            arguments.work / "model",
            full,
            "--precision",
            "f32",
        ]
        subprocess.run(convert, check=True, capture_output=True)
    if not path.exists():
        subprocess.run(
            [arguments.llama / "llama-quantize", full, path, precision], check=True, capture_output=True
        )


def llama_cpp(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    program = arguments.llama / "llama-batched-bench"
    if not program.exists():
        raise ImportError(f"{program} does not exist: --llama names the folder")
    path = arguments.work / f"{precision}.gguf"

    def run(case: str) -> tuple[int, float]:
        ids, new = prompts(arguments, case)
        sizes = {"npp": len(ids[0]), "ntg": new, "npl": len(ids), "c": 1_024 * len(ids), "t": arguments.threads}
        command = [
            program,
            "-m",
            path,
            *(word for name, size in sizes.items() for word in (f"-{name}", str(size))),
        ]
        done = subprocess.run([*command, "--output-format", "jsonl"], check=True, capture_output=True, text=True)
        found = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        return counted(case, ids, new), float(found["t"])

    return run, path.stat().st_size


def ctranslate2(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    import ctranslate2 as ct

    folder = arguments.work / f"ctranslate2-{precision}"
    if not folder.exists():
        converter = ct.converters.TransformersConverter(str(arguments.work / "model"))
        converter.convert(str(folder), quantization=precision)
    generator = ct.Generator(str(folder), compute_type=precision, intra_threads=arguments.threads)
    vocabulary = json.loads((folder / "vocabulary.json").read_text())

    def run(case: str) -> int:
        ids, new = prompts(arguments, case)
        generator.generate_batch(
            [[vocabulary[token] for token in prompt] for prompt in ids],
            max_length=new,
            min_length=new,
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        return counted(case, ids, new)

    return run, step_bytes(arguments.preset, 4 if precision == "float32" else 1)


def onnxruntime(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    import onnxruntime as ort
    from onnx_gpt2 import write_onnx

    path = arguments.work / f"{precision}.onnx"
    if not path.exists():
        write_onnx(arguments.work / "model", path, quantized=precision == "int8")
    options = ort.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    layers = sum(entry.name.startswith("past") for entry in session.get_inputs())
    heads = session.get_inputs()[2].shape[2]
    outputs = ["logits", *(f"present_{layer}" for layer in range(layers))]

    def run(case: str) -> int:
        ids, new = prompts(arguments, case)
        tokens = np.array(ids, dtype=np.int32)
        pasts = [np.zeros((2, len(ids), heads, 0, 64), dtype=np.float32)] * layers
        start = 0
        for _ in range(new):
            positions = np.arange(start, start + tokens.shape[1], dtype=np.int32)[None]
            feeds = {"ids": tokens, "positions": positions}
            feeds |= {f"past_{layer}": past for layer, past in enumerate(pasts)}
            logits, *pasts = session.run(outputs, feeds)
            start += tokens.shape[1]
            tokens = logits.argmax(-1).astype(np.int32)[:, None]
        return counted(case, ids, new)

    return run, step_bytes(arguments.preset, 4 if precision == "fp32" else 1)


if __name__ == "__main__":
    main()
