"""Compare fine-tuning and prediction with transformers: examples per second and peak memory, as ratios of one run.

    python benchmarks/finetune.py --data $HEADWATER_DATA/finetune/sst2/glue/train.tsv
    python benchmarks/finetune.py --cases masked --vocabulary 30522    # full attention, next to transformers' BERT

A GPT-1-sized model with random weights (`--layers`, `--width` for a smaller one), batches of 32 texts with the
lengths of SST-2. Both sides learn in every round from the same batches, of texts of similar length, as
`group_by_length` of the peer's Trainer makes them; both predict the texts of a round sorted by length. The peer
is `transformers` in the same precision and size: autocast, fused AdamW, dynamic padding to the longest text of a
batch, and fused attention, which its GPT-1 does not have and its GPT-2 does: `GPT2ForSequenceClassification` for
λ = 0 and for prediction, `GPT2DoubleHeadsModel` for λ = 0.5. With `--faithful code` Headwater applies dropout to
the whole embedding matrix, as GPT-1's code does; with `--faithful paper` to the sum of embeddings, as the peer
does. Each side runs in a process of its own, because peak memory is a process's. The sides take turns, and the
median of the rounds' ratios is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peak import forget_peak, peak_megabytes

CASES = ("train-0", "train-0.5", "predict", "masked")
SIDES = ("headwater", "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="SST-2's train.tsv, for its lengths; else lengths like them")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES[:3]))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=40_481)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--updates", type=int, default=6, help="timed updates, or batches to predict, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--faithful", choices=("code", "paper"), default="code", help="to which of GPT-1's sources"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        serve(arguments)
        return
    for case in arguments.cases:
        result = compare(arguments, case)
        if arguments.json:
            print(json.dumps(result), flush=True)
            continue
        figures = "; ".join(
            f"{side} {result[side]['examples_per_second']:.1f} examples/s, {result[side]['peak_mb']:,.0f} MB"
            for side in SIDES
        )
        low, *_, high = [result["speed_ratios"][0], *result["speed_ratios"]]
        print(
            f"{result['case']:10} {figures}; speed × {result['speed_ratio']:.2f} ({low:.2f} to {high:.2f}), "
            f"memory × {result['memory_ratio']:.2f}",
            flush=True,
        )


def compare(arguments: argparse.Namespace, case: str) -> dict[str, Any]:
    """Both sides in turns; the medians of their rounds."""
    processes = {}
    for side in SIDES:
        command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--cases", case]
        processes[side] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    peaks = dict.fromkeys(SIDES, 0.0)
    try:
        for turn in range(arguments.rounds + 1):
            for side, process in processes.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                if turn:  # the first is warm-up
                    rates[side].append(answer["examples_per_second"])
                peaks[side] = answer["peak_mb"]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    sides = {s: {"examples_per_second": statistics.median(rates[s]), "peak_mb": peaks[s]} for s in SIDES}
    ratios = [a / b for a, b in zip(*(rates[side] for side in SIDES), strict=True)]
    return {
        "case": case,
        **sides,
        "speed_ratio": statistics.median(ratios),
        "speed_ratios": sorted(ratios),
        "memory_ratio": peaks["headwater"] / peaks["transformers"],
    }


MICRO_TOKENS = 1_280  # of a micro-batch, for transformers as for Headwater on a CPU


def serve(arguments: argparse.Namespace) -> None:
    """One side: a round for each line on stdin."""
    import torch

    torch.set_num_threads(arguments.threads)
    make = {"headwater": headwater_side, "transformers": transformers_side}[arguments.side]
    step = make(arguments, arguments.cases[0])
    forget_peak()
    # With one thread the processor's time counts, so that a busy machine does not.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    for _ in sys.stdin:
        start = clock()
        examples = sum(step() for _ in range(arguments.updates))
        seconds = clock() - start
        print(json.dumps({"examples_per_second": examples / seconds, "peak_mb": peak_megabytes()}), flush=True)


def sequences(arguments: argparse.Namespace) -> list[np.ndarray]:
    """Random ids with the lengths of SST-2's phrases as a sub-word tokenizer cuts them, task tokens included."""
    random = np.random.default_rng(1)
    if arguments.data is not None:
        words = [len(line.split()) for line in arguments.data.read_text(encoding="utf-8").splitlines()[1:]]
        lengths = random.choice(np.array(words), 4_096)
    else:
        lengths = np.maximum(1, random.gamma(1.3, 7.0, 4_096))
    lengths = np.ceil(lengths * 1.15).astype(int) + 2
    return [random.integers(0, arguments.vocabulary - 3, n) for n in np.minimum(lengths, 128)]


def encode(texts: list[np.ndarray]) -> Any:
    from headwater.finetuning import Encoded

    return Encoded(
        np.concatenate(texts).astype(np.int32),
        np.concatenate([[0], np.cumsum([len(t) for t in texts])]),
        np.arange(len(texts) + 1),
        np.arange(len(texts)) % 2 + 0.0,
    )


def shape_of(arguments: argparse.Namespace, name: str) -> Any:
    from headwater.model import preset

    shape = {"layers": arguments.layers, "width": arguments.width, "heads": arguments.width // 64}
    return preset(name, faithful=arguments.faithful, vocabulary=arguments.vocabulary, **shape)


def sampler(arguments: argparse.Namespace, encoded: Any) -> Any:
    """Return what chooses the examples of each update: of similar length, the same for both sides."""
    from headwater.finetuning import ExampleSampler, Labels

    targets = Labels(target="class", names=["0", "1"]).probabilities(encoded)
    return ExampleSampler(encoded, targets, batch_size=arguments.batch, seed=1, most_tokens=MICRO_TOKENS)


def steps_of_a_round(source: Any, updates: int) -> list[int]:
    """Return which updates of the sampler's first window every round takes, from short texts to long ones.

    An update of short texts is mostly the optimizer, one of long texts mostly matmuls, and lengths differ five
    times: rounds of other updates would differ by what they drew.
    """
    window = sorted(range(16), key=source.tokens)
    return [window[(2 * number + 1) * len(window) // (2 * updates)] for number in range(updates)]


def headwater_side(arguments: argparse.Namespace, case: str) -> Callable[[], int]:
    import torch

    from headwater.finetuning import FinetuneConfig, Labels, TaskModel, build_trainer
    from headwater.model import build_model

    texts = sequences(arguments)
    encoded = encode(texts)
    labels = Labels(target="class", names=["0", "1"])
    shape = shape_of(arguments, "bert-base" if case == "masked" else "gpt1")
    model = TaskModel(build_model(shape, seed=1), "classify", 2)
    if case == "predict":
        dtype = torch.bfloat16 if arguments.precision == "bf16" else torch.float32
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.data = parameter.data.to(dtype)
        window = arguments.batch * arguments.updates
        state = {"start": 0, "done": 0}

        def step() -> int:
            """The window of a round is predicted at once, as `predict` does, at its first call."""
            if state["done"] == 0:
                first = state["start"]
                chosen = np.arange(first, first + window) % len(texts)
                state["start"] = (first + window) % len(texts)
                model.predict(_select(encoded, chosen), labels)
            state["done"] = (state["done"] + 1) % arguments.updates
            return arguments.batch

        return step
    lambda_lm = 0.0 if case == "masked" else float(case.removeprefix("train-"))
    config = FinetuneConfig().with_keys(
        precision=arguments.precision, lambda_lm=lambda_lm, steps=100_000, batch_size=arguments.batch
    )
    config = config.resolve(model.model.config, examples=len(encoded))
    trainer, source = build_trainer(config, model, encoded, labels)

    steps = steps_of_a_round(source, arguments.updates)

    def update() -> int:
        parts = source.micro_batches(steps[trainer.step % len(steps)])
        trainer.update(parts)
        return sum(part.examples for part in parts)

    return update


def _select(encoded: Any, chosen: np.ndarray) -> Any:
    from headwater.finetuning import Encoded

    rows = [encoded.sequence(int(number)) for number in chosen]
    return Encoded(
        np.concatenate(rows).astype(np.int32),
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        np.arange(len(rows) + 1),
        encoded.targets[chosen],
    )


def transformers_side(arguments: argparse.Namespace, case: str) -> Callable[[], int]:
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2DoubleHeadsModel,
        GPT2ForSequenceClassification,
    )

    bert = BertConfig(
        vocab_size=arguments.vocabulary,
        num_hidden_layers=arguments.layers,
        hidden_size=arguments.width,
        num_attention_heads=arguments.width // 64,
        intermediate_size=4 * arguments.width,
    )
    config = GPT2Config(
        vocab_size=arguments.vocabulary,
        n_layer=arguments.layers,
        n_embd=arguments.width,
        n_head=arguments.width // 64,
        num_labels=1 if case == "train-0.5" else 2,
        n_positions=512,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    kind = GPT2DoubleHeadsModel if case == "train-0.5" else GPT2ForSequenceClassification
    if case == "masked":
        model = BertForSequenceClassification._from_config(bert, attn_implementation="sdpa")
    else:
        model = kind._from_config(config, attn_implementation="sdpa")
    texts = sequences(arguments)
    source = sampler(arguments, encode(texts))
    window = arguments.batch * arguments.updates
    steps = steps_of_a_round(source, arguments.updates)
    done = 0

    def indices() -> np.ndarray:
        """Return the examples of the next batch: of an update, or of a round sorted by length."""
        nonlocal done
        done += 1
        if case != "predict":
            return source.examples(steps[(done - 1) % len(steps)])
        start, part = divmod(done - 1, arguments.updates)
        chosen = np.arange(start * window, (start + 1) * window) % len(texts)
        chosen = chosen[np.argsort([-len(texts[n]) for n in chosen], kind="stable")]
        return chosen[part * arguments.batch : (part + 1) * arguments.batch]

    autocast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16")

    def batch() -> tuple[Any, Any]:
        chosen = [texts[n] for n in indices()]
        longest = max(len(text) for text in chosen)
        ids = np.zeros((len(chosen), longest), dtype=np.int64)
        for row, text in enumerate(chosen):
            ids[row, : len(text)] = text
        lengths = torch.tensor([len(text) for text in chosen])
        return torch.from_numpy(ids), lengths

    if case == "predict":
        model.eval()
        if arguments.precision == "bf16":
            model.to(torch.bfloat16)

        def predict() -> int:
            ids, lengths = batch()
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            with torch.no_grad():
                model(input_ids=ids, attention_mask=mask.long()).logits.float().softmax(dim=-1)
            return len(ids)

        return predict
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6.25e-5, weight_decay=0.01, fused=True)

    def update() -> int:
        ids, lengths = batch()
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        labels = torch.arange(len(ids)) % 2
        with autocast:
            if case in ("train-0", "masked"):
                loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
            else:
                output = model(
                    input_ids=ids[:, None],
                    attention_mask=mask.long()[:, None],
                    mc_token_ids=(lengths - 1)[:, None],
                    labels=ids.masked_fill(~mask, -100)[:, None],
                    mc_labels=torch.zeros(len(ids), dtype=torch.long),
                )
                loss = output.mc_loss + 0.5 * output.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return len(ids)

    return update


if __name__ == "__main__":
    main()
