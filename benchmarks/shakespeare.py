"""One's own text, small: bits per character on the last tenth of tiny Shakespeare, after about a minute on a CPU.

    python benchmarks/shakespeare.py TEXT --nanogpt CHECKOUT --seeds 1 2 3 --out shakespeare.jsonl

TEXT is tiny Shakespeare (1,115,394 characters). Headwater trains a shipped gpt2-mini further, and a gpt2-pico
from scratch with a tokenizer of its own; nanoGPT trains its README's model for a CPU ("train_shakespeare_char").
All read the first nine tenths. Seconds are those of the training command, start-up included. Every model is scored
on the same characters in windows of its own context, each with half a context before it where there is as much.
gpt2-mini has read three other plays of Shakespeare (recipes/texts/english.toml): it knows the language, not the
text.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

HELD_OUT = 0.1
STEPS = {"gpt2-mini": 72, "gpt2-pico": 1_000}
NANOGPT = [
    *("--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=100", "--dropout=0.0"),
    *("--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128"),
    *("--max_iters=2000", "--lr_decay_iters=2000"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, required=True, help="one JSON object a training is appended")
    options = parser.parse_args()
    text = options.text.read_text(encoding="ascii")
    first = int(len(text) * (1 - HELD_OUT))
    for seed in options.seeds:
        for name in ["gpt2-mini", "gpt2-pico", *(["nanogpt"] if options.nanogpt else [])]:
            with tempfile.TemporaryDirectory() as folder:
                if name == "nanogpt":
                    seconds, bits = of_nanogpt(options.nanogpt, text, first, Path(folder), seed)
                else:
                    seconds, bits = of_headwater(name, text[:first], text[first:], Path(folder), seed)
            result = {
                "model": name,
                "seed": seed,
                "seconds": round(seconds, 1),
                "bits_per_character": round(bits, 4),
            }
            result["threads"] = torch.get_num_threads()
            print(json.dumps(result), flush=True)
            with options.out.open("a") as lines:
                lines.write(json.dumps(result) + "\n")


def of_headwater(name: str, train: str, test: str, folder: Path, seed: int) -> tuple[float, float]:
    """Train by the command line; return the seconds of `pretrain` and the bits per character."""
    import headwater as hw

    (folder / "train.txt").write_text(train)
    headwater(folder, "corpus", "build", "train.txt", "--out", "corpus")
    tokenizer, start = "gpt2-mini", ["--from", "gpt2-mini", "--set", "batch_size=16"]
    if name == "gpt2-pico":
        headwater(folder, "tokenizer", "train", "corpus", "--vocab-size", "1024", "--out", "tokenizer")
        tokenizer, start = "tokenizer", ["gpt2-pico"]
    headwater(folder, "pack", "corpus", "--tokenizer", tokenizer, "--out", "tokens")
    steps = ["--set", f"steps={STEPS[name]}", "--seed", str(seed)]
    seconds = headwater(folder, "pretrain", *start, "--tokens", "tokens", "--out", "run", *steps)
    lm = hw.load(folder / "run")
    ids = [lm.tokenizer.end_of_text, *lm.tokenizer.encode(test)]
    return seconds, bits(ids, lm.config.context, lambda window: lm.logits(window)) / len(test)


def headwater(folder: Path, *arguments: str) -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "headwater", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def of_nanogpt(checkout: Path, text: str, first: int, folder: Path, seed: int) -> tuple[float, float]:
    """Train as its README says for a CPU; return the seconds of train.py and the bits per character."""
    copy = folder / "nanoGPT"
    subprocess.run(["cp", "-r", str(checkout), str(copy)], check=True)
    data = copy / "data" / "shakespeare_char"
    (data / "input.txt").write_text(text)
    subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, stdout=subprocess.DEVNULL)
    program = (copy / "train.py").read_text()
    (copy / "train.py").write_text(program.replace("torch.manual_seed(1337", f"torch.manual_seed({1337 + seed}"))
    began = time.monotonic()
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *NANOGPT]
    subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    sys.path.insert(0, str(copy))
    from model import GPT, GPTConfig

    kept = torch.load(copy / "out-shakespeare-char" / "ckpt.pt", weights_only=False)
    model = GPT(GPTConfig(**kept["model_args"]))
    model.load_state_dict(kept["model"])
    model.eval()
    ids_of = pickle.loads((data / "meta.pkl").read_bytes())["stoi"]
    ids = [ids_of[character] for character in text[first - 1 :]]

    def logits(window: torch.Tensor) -> torch.Tensor:
        return model(window, window)[0]  # with targets it returns the logits of every position

    with torch.no_grad():
        return seconds, bits(ids, kept["model_args"]["block_size"], logits) / (len(text) - first)


def bits(ids: Sequence[int], context: int, logits: Callable[[torch.Tensor], Any]) -> float:
    """Return the sum of -log2 P of all ids but the first, in windows that overlap by half a context."""
    total, half, scored = 0.0, context // 2, 1
    while scored < len(ids):
        start = max(0, scored - half)
        window = torch.tensor([ids[start : start + context + 1]])
        log_p = logits(window[:, :-1])[0].float().log_softmax(dim=1)
        losses = -log_p.gather(1, window[0, 1:, None])[:, 0]
        total += float(losses[scored - start - 1 :].sum())
        scored = start + window.shape[1]
    return total / math.log(2)


if __name__ == "__main__":
    main()
