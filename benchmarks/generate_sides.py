"""The sides of benchmarks/generate.py: each makes a function that runs a case, with the bytes of its weights."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np

# Runs a case, returns the tokens to count, and the seconds where the side measures them itself.
Case = Callable[[str], int | tuple[int, float]]


def prompts(arguments: argparse.Namespace, case: str) -> tuple[list[list[int]], int]:
    """Return the prompts of a case, and how many tokens to generate after each."""
    numbers = np.random.default_rng(len(case))
    if case == "prefill":
        return [numbers.integers(1_000, 4_000, arguments.long).tolist()], 1
    batch = int(case.partition("-")[2])
    return numbers.integers(1_000, 4_000, (batch, arguments.prompt)).tolist(), arguments.new


def counted(case: str, ids: list[list[int]], new: int) -> int:
    return len(ids[0]) if case == "prefill" else len(ids) * new


def step_bytes(preset_name: str, bytes_per_weight: int) -> int:
    """The bytes of weights that a step reads."""
    from headwater.model import preset

    config = preset(preset_name)
    return config.width * (50_257 + 12 * config.layers * config.width) * bytes_per_weight


def headwater(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    from headwater.cli import prepare

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
        seen += 1  # a new first token, so that no cache of the previous round can be used
        ids = [[seen, *rest[1:]] for rest in ids]
        options = {"max_tokens": new, "min_tokens": new, "temperature": 0}
        running = [lm.engine.submit(lm.request(prompt, **options)) for prompt in ids]
        assert all(len(generation.wait().tokens) == new for generation in running)
        return counted(case, ids, new)

    return run, step_bytes(arguments.preset, {"fp32": 4, "bf16": 2, "int8": 1}[precision])


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


def vllm(arguments: argparse.Namespace, precision: str) -> tuple[Case, int]:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process, whose memory is measured
    import vllm

    llm = vllm.LLM(
        str(arguments.work / "model"),
        dtype=precision,
        max_model_len=1_024,
        gpu_memory_utilization=0.5,  # other sides have the rest
        enable_prefix_caching=False,  # each side reads every prompt
    )

    def run(case: str) -> int:
        ids, new = prompts(arguments, case)
        sampling = vllm.SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        texts = llm.generate([{"prompt_token_ids": prompt} for prompt in ids], sampling, use_tqdm=False)
        assert all(len(text.outputs[0].token_ids) == new for text in texts)
        return counted(case, ids, new)

    return run, step_bytes(arguments.preset, 4 if precision == "float32" else 2)


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
    """Measure with the first build of --llama and --llama-second that does not crash with these weights."""
    programs = [folder / "llama-batched-bench" for folder in (arguments.llama, arguments.llama_second)]
    programs = [program for program in programs if program.exists()]
    if not programs:
        raise ImportError("llama-batched-bench does not exist: --llama names its folder")
    path = arguments.work / f"{precision}.gguf"

    def run(case: str) -> tuple[int, float]:
        ids, new = prompts(arguments, case)
        sizes = {"npp": len(ids[0]), "ntg": new, "npl": len(ids), "c": 1_024 * len(ids), "t": arguments.threads}
        options = [word for name, size in sizes.items() for word in (f"-{name}", str(size))]
        command = [programs[0], "-m", path, *options, "--output-format", "jsonl"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode < 0 and len(programs) > 1:
            print(f"{programs.pop(0)} crashes with {precision}", file=sys.stderr)
            return run(case)
        done.check_returncode()
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
