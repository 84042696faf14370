"""Measure what other programs, and a quota, leave of the speed of Headwater and of transformers.

    python benchmarks/busy.py                           # alone, beside one and two busy processes; seven minutes
    python benchmarks/busy.py --tasks generate --rounds 5
    python benchmarks/busy.py --json                    # what benchmarks/everything.py reads

Each side runs in a process of its own, in turns. A busy process is a loop of Python, which the system places as it
likes. The quota is 1.5 cores of a control group, where this user may make one; the processes of the quota start
inside, so that each side chooses its threads there. A share is the rate under a load over the rate alone.
`serve` is a client that asks for 24 tokens again and again: of `headwater serve`, and of transformers behind
FastAPI, which has the whole server for one client.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

SIDES = ("headwater", "transformers")
TASKS = ("train-pico", "train-mini", "finetune", "score", "generate", "serve")
LOADS = {"alone": 0, "beside 1": 1, "beside 2": 2}
QUOTA, PERIOD = 150_000, 100_000  # microseconds: 1.5 cores
TEXT = "The river rose in the night, and in the morning the bridge was gone. " * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        take_rounds(options.side, options.tasks[0], options.seconds)
        return
    for task in options.tasks:
        rates = measure(task, options.rounds, options.seconds)
        if options.json:
            print(json.dumps({"task": task, "rates": rates}), flush=True)
        else:
            for load, found in rates.items():
                shown = (f"{side} {rate:8.2f} ({rate / rates['alone'][side]:.2f})" for side, rate in found.items())
                print(f"{task:12} {load:10} steps/s: {'; '.join(shown)}", flush=True)


def measure(task: str, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return the steps per second of each side under each load: medians of the rounds."""
    rates = {}
    with sides(task, seconds, None) as processes:
        for load, count in LOADS.items():
            with busy(count):
                rates[load] = medians(processes, rounds)
    with quota() as group:
        if group is not None:
            with sides(task, seconds, group) as processes:
                rates["quota 1.5"] = medians(processes, rounds)
    return rates


def medians(processes: dict[str, subprocess.Popen[str]], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {side: [] for side in processes}
    for _ in range(rounds):
        for side, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            found[side].append(float(process.stdout.readline()))
    return {side: statistics.median(values) for side, values in found.items()}


@contextmanager
def sides(task: str, seconds: float, group: Path | None) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start both sides, in a control group if one is given; each waits for a line before it computes."""
    with ExitStack() as stack:
        processes = {}
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, "--tasks", task, "--seconds", str(seconds)]
            if group is not None:
                command = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs"; exec "$@"', "sh", *command]
            environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            assert process.stdin is not None
            stack.callback(process.wait)
            stack.callback(process.stdin.close)  # a side ends there, and its server with it
            processes[side] = process
        for process in processes.values():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                sys.exit(f"{task}: a side did not start; its error is above")
        yield processes


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processes computing."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.2 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def quota() -> Iterator[Path | None]:
    """Make a control group of 1.5 cores in version 2 or 1, or yield None where that is not allowed."""
    limits = {
        Path("/sys/fs/cgroup"): {"cpu.max": f"{QUOTA} {PERIOD}"},
        Path("/sys/fs/cgroup/cpu"): {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(QUOTA)},
    }
    for folder, files in limits.items():
        group = folder / f"headwater-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            try:
                for name, value in files.items():
                    (group / name).write_text(value)
            except OSError:
                continue
            yield group
            return
        finally:
            remove(group)
    yield None


def remove(group: Path) -> None:
    """Remove a control group, whose last process the system may still be ending."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)


def take_rounds(side: str, task: str, seconds: float) -> None:
    """One side: a round for each line on stdin."""
    if side == "headwater":
        from headwater.cli import prepare

        prepare()  # as the command line does, before torch is loaded
    step = (trainer_of if task in ("train-pico", "train-mini", "finetune") else SHORT[side])(side, task)
    for _ in range(2):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        steps, start = 0, time.perf_counter()
        while (now := time.perf_counter() - start) < seconds:
            step()
            steps += 1
        print(steps / now, flush=True)


def trainer_of(side: str, task: str) -> Callable[[], Any]:
    """Return an update, as benchmarks/pretrain.py and benchmarks/finetune.py have it."""
    if task == "finetune":
        import finetune

        shape = argparse.Namespace(layers=5, width=320, vocabulary=8192, faithful="code", data=None)
        shape.batch, shape.updates, shape.precision = 16, 1, "bf16"
        return {"headwater": finetune.headwater_side, "transformers": finetune.transformers_side}[side](
            shape, "train-0.5"
        )
    import pretrain

    case = {
        "train-pico": pretrain.Case(2, 128, 2, 256, 16, 8192),
        "train-mini": pretrain.Case(5, 320, 5, 256, 16, 8192),
    }[task]
    return {"headwater": pretrain.headwater_step, "transformers": pretrain.transformers_step}[side](
        case, "bf16", ""
    )


def headwater_side(_: str, task: str) -> Callable[[], Any]:
    """Return a step with the shipped gpt2-mini: 8 pairs scored, or 24 tokens generated or asked of a server."""
    import headwater as hw

    if task == "serve":
        command = [sys.executable, "-m", "headwater", "serve", "--model", "gpt2-mini", "--port", "0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        atexit.register(server.kill)
        assert server.stderr is not None
        found = next(filter(None, (re.search(r"http://[\d.:]+", line) for line in server.stderr)), None)
        if found is None:
            sys.exit("headwater serve did not start")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        return client_of(found[0])
    lm = hw.load("gpt2-mini")
    if task == "score":
        return lambda: lm.score([(TEXT, f" It was {i} o'clock.") for i in range(8)])
    return lambda: lm.generate(TEXT, max_tokens=24, temperature=0)


def transformers_side(_: str, task: str) -> Callable[[], Any]:
    """Return the same step with transformers, in float32 as `hw.load`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from headwater import shipped

    folder = shipped.resolve(Path("gpt2-mini"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def generate(text: str = TEXT) -> Any:
        prompt, lengths = tokenizer(text, return_tensors="pt"), {"max_new_tokens": 24, "min_new_tokens": 24}
        return model.generate(**prompt, **lengths, do_sample=False, pad_token_id=tokenizer.pad_token_id)

    if task == "generate":
        return generate
    if task == "serve":
        return client_of(fastapi_server(lambda text: tokenizer.decode(generate(text)[0])))
    pairs = tokenizer([f"{TEXT} It was {i} o'clock." for i in range(8)], return_tensors="pt", padding=True)

    def score() -> None:
        with torch.inference_mode():
            model(**pairs).logits.log_softmax(-1)

    return score


def fastapi_server(complete: Callable[[str], str]) -> str:
    """Answer `/v1/completions`, one request at a time and always in the same thread, and return the address."""
    import socket

    import fastapi
    import uvicorn

    app = fastapi.FastAPI()

    @app.post("/v1/completions")
    async def answer(body: dict[str, Any]) -> dict[str, str]:
        return {"text": complete(body["prompt"])}

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def client_of(address: str) -> Callable[[], Any]:
    """Return a step that asks a server for 24 tokens."""
    asked = {"prompt": TEXT, "max_tokens": 24, "min_tokens": 24, "temperature": 0}
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(asked).encode())
    request.add_header("Content-Type", "application/json")

    def step() -> bytes:
        with urllib.request.urlopen(request) as response:
            return response.read()

    return step


SHORT = {"headwater": headwater_side, "transformers": transformers_side}

if __name__ == "__main__":
    main()
