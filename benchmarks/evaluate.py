"""Compare scoring with lm-evaluation-harness and transformers: seconds and peak memory, as ratios of one run.

    python benchmarks/evaluate.py --text BOOK.txt --peer-python PYTHON_WITH_LM_EVAL

A GPT-2 with random weights (`--preset`), the original GPT-2 tokenizer, requests cut from a text. Cases:

requests   contexts and continuations of 20 to 600 tokens together, against lm_eval's `hf` model at its best
           batch size of `--peer-batches`
choice     questions with four answers after a shared context, as in RACE, against the same
stride     a text through windows of the model's context that advance by `--stride` tokens, against a plain sliding
           window in transformers: one window a pass, its loss from labels that hide what was scored before
lean       the same against transformers with logits for the scored positions only

Each side runs in a process of its own, because peak memory is a process's. The sides take turns, and the median of
the rounds' ratios is printed. With one thread, seconds are processor seconds, so other work on the machine does
not count. The log-probabilities of the two sides are compared too.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peak import peak_megabytes

CASES = ("requests", "choice", "stride", "lean")
WINDOWED = {"stride", "lean"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a text file to cut requests from; else words are made up")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--stride", type=int, default=32)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has lm_eval")
    parser.add_argument("--peer-batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer-batch", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(arguments, work)
        for case in arguments.cases:
            result = compare(arguments, case, work)
            if arguments.json:
                print(json.dumps(result), flush=True)
                continue
            print(
                f"{case:9} {arguments.precision}  "
                f"headwater {result['headwater']:.2f} s, {result['headwater_mb']:,.0f} MB; "
                f"peer {result['peer']:.2f} s, {result['peer_mb']:,.0f} MB; speed × {result['ratio']:.2f} "
                f"({min(result['ratios']):.2f} to {max(result['ratios']):.2f}), "
                f"largest difference {result['difference']:.1e}",
                flush=True,
            )


def compare(arguments: argparse.Namespace, case: str, work: Path) -> dict[str, Any]:
    """Run both sides in turns, after choosing the peer's batch size."""
    batches = arguments.peer_batches if case not in WINDOWED else [1]
    trials = {batch: run(arguments, case, "peer", work, batch) for batch in batches} if len(batches) > 1 else {}
    batch = min(trials, key=lambda b: trials[b]["seconds"]) if trials else batches[0]
    rounds = [
        {side: run(arguments, case, side, work, batch) for side in order}
        for order in (("headwater", "peer") if i % 2 else ("peer", "headwater") for i in range(arguments.rounds))
    ]
    ratios = [one["peer"]["seconds"] / one["headwater"]["seconds"] for one in rounds]
    pairs = zip(rounds[0]["headwater"]["scores"], rounds[0]["peer"]["scores"], strict=True)
    return {
        "case": case,
        "precision": arguments.precision,
        "peer_batch": batch,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "difference": max(abs(a - b) for a, b in pairs),
        **{side: statistics.median(one[side]["seconds"] for one in rounds) for side in ("headwater", "peer")},
        **{f"{side}_mb": max(one[side]["peak_mb"] for one in rounds) for side in ("headwater", "peer")},
    }


def run(arguments: argparse.Namespace, case: str, side: str, work: Path, batch: int) -> dict[str, Any]:
    """Run one side in a new process."""
    python = arguments.peer_python if side == "peer" and case not in WINDOWED else sys.executable
    options = {"--cases": case, "--side": side, "--work": work, "--peer-batch": batch}
    options |= {"--precision": arguments.precision, "--threads": arguments.threads, "--stride": arguments.stride}
    command = [python, __file__, *(str(part) for pair in options.items() for part in pair)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{side} failed:\n{ran.stderr[-3000:]}")
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def prepare(arguments: argparse.Namespace, work: Path) -> None:
    """Write the model folder and the requests, which are the same for both sides."""
    import numpy as np

    from headwater.model import build_model, preset, save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.load("gpt2")
    model = build_model(preset(arguments.preset, vocabulary=tokenizer.vocabulary_size), seed=1)
    (work / "model").mkdir()
    save_model(model, work / "model", tokenizer=tokenizer)
    random = np.random.default_rng(1)
    if arguments.text:
        text = arguments.text.read_text(encoding="utf-8")[1_000_000:3_000_000]
        words = text.replace("<|endoftext|>", "").split()  # to Headwater text like any other, to the peer a token
    else:
        names = ["".join(random.choice(list("aeioulnrst"), random.integers(2, 9))) for _ in range(5_000)]
        words = list(random.choice(names, 200_000))

    def piece(length: int) -> str:
        start = int(random.integers(0, len(words) - length))
        return " ".join(words[start : start + length])

    requests = []
    for _ in range(arguments.requests):
        total = int(random.integers(15, 440))  # words: 20 to 600 tokens
        requests.append((piece(total), " " + piece(int(random.integers(1, 12)))))
    choice = []
    for _ in range(arguments.questions):
        context = piece(260)
        choice += [(context, " " + piece(int(random.integers(2, 12)))) for _ in range(4)]
    text = " ".join(words[: 2_000 + arguments.windows * arguments.stride * 2])
    ids = tokenizer.encode(text)[: model.config.context + arguments.windows * arguments.stride]
    (work / "asked.json").write_text(
        json.dumps({"requests": requests, "choice": choice, "stride": ids, "lean": ids})
    )


def serve(arguments: argparse.Namespace) -> None:
    """Run one case after a warm-up, and print seconds, peak memory and scores."""
    import torch

    torch.set_num_threads(arguments.threads)
    (case,) = arguments.cases
    asked = json.loads((arguments.work / "asked.json").read_text())[case]
    name = f"{arguments.side}_{'stride' if case in WINDOWED else 'pairs'}"
    seconds, scores = globals()[name](arguments, asked)
    print(json.dumps({"seconds": seconds, "peak_mb": peak_megabytes(), "scores": scores}))


def clock(arguments: argparse.Namespace) -> float:
    """Return a time in seconds: processor time if there is one thread."""
    return time.process_time() if arguments.threads == 1 else time.perf_counter()


def headwater_pairs(arguments: argparse.Namespace, asked: Sequence[Sequence[str]]) -> tuple[float, list[float]]:
    from headwater.inference import load

    lm = load(arguments.work / "model", precision=arguments.precision)
    pairs = [(context, continuation) for context, continuation in asked]
    lm.score(pairs[:2])
    started = clock(arguments)
    scores = lm.score(pairs)
    return clock(arguments) - started, [value for value, _ in scores]


def peer_pairs(arguments: argparse.Namespace, asked: Sequence[Sequence[str]]) -> tuple[float, list[float]]:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    dtype = {"fp32": "float32", "bf16": "bfloat16"}[arguments.precision]
    model = HFLM(
        pretrained=str(arguments.work / "model"), device="cpu", dtype=dtype, batch_size=arguments.peer_batch
    )
    instances = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(asked)]
    model.loglikelihood(instances[:2], disable_tqdm=True)
    started = clock(arguments)
    scores = model.loglikelihood(instances, disable_tqdm=True)
    return clock(arguments) - started, [value for value, _ in scores]


def headwater_stride(arguments: argparse.Namespace, ids: list[int]) -> tuple[float, list[float]]:
    from headwater.inference import after_start, load, windows

    lm = load(arguments.work / "model", precision=arguments.precision)
    lm.score([("a", " b")])
    before, rest = after_start(lm.tokenizer, ids)
    started = clock(arguments)
    pairs = list(windows([*before, *rest], len(before), lm.scorer.context, arguments.stride))
    scores = lm.scorer.score_ids(pairs)
    return clock(arguments) - started, [math.fsum(score for score, _ in scores)]


def peer_stride(arguments: argparse.Namespace, ids: list[int]) -> tuple[float, list[float]]:
    import torch
    from transformers import GPT2LMHeadModel

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
    model = GPT2LMHeadModel.from_pretrained(arguments.work / "model", dtype=dtype).eval()
    context, stride = model.config.n_positions, arguments.stride
    whole = torch.tensor([[model.config.eos_token_id, *ids]])
    total = 0.0
    with torch.inference_mode():
        model(whole[:, :64])
        started = clock(arguments)
        end = 1
        while end < whole.shape[1]:
            start, end = end, min(whole.shape[1], end + (context if end == 1 else stride))
            window = whole[:, max(0, end - 1 - context) : end - 1]
            if arguments.cases == ["lean"]:
                logits = model(window, logits_to_keep=end - start).logits[0].float()
                scores = logits.log_softmax(-1).gather(1, whole[0, start:end, None])
                total += float(scores.double().sum())
            else:
                # The model shifts labels itself: the window with its last target, all but the new ones hidden.
                window = whole[:, max(0, end - context) : end]
                labels = window.clone()
                labels[:, : start - end] = -100
                total -= float(model(window, labels=labels).loss) * (end - start)
    # A plain window holds its last target too, one token of context less: its score is another one.
    return clock(arguments) - started, [total if arguments.cases == ["lean"] else math.nan]


if __name__ == "__main__":
    main()
