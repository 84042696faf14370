"""Compare the server with its engine and with llama.cpp's server, and test it with clients that disconnect.

    python benchmarks/serve.py                                     # speed
    python benchmarks/serve.py --llama-server build/bin/llama-server --precision int8
    python benchmarks/serve.py --load --seconds 300 --clients 200  # many clients that disconnect

llama.cpp: 1, 8, 32 and 64 clients (--counts), each with a prompt of its own of --prompt-tokens tokens, ask for
--tokens tokens (temperature 1, top-k 40, the end of text ignored), streamed and whole. Both servers have the same
weights in numbers of the same size (--llama-type: f32 for fp32, f16 for bf16, q8_0 for int8; bf16 needs
llama-quantize next to llama-server), the same threads and as many slots as clients. They take turns, and the ratio
is of medians over --rounds. A stream's times are to its first token and between its tokens.

Scoring (--scoring, and with 1 client of the above): the 99th percentile of the time between the tokens of one
stream, alone and while another client scores; the two take turns.

Speed: --clients stream --tokens each from a server, and the engine alone continues as many in a process of its
own; the two take turns, and the ratio is of medians over --rounds. The time between tokens is what a client sees.
`start` is from the command to the first answer; idle memory is the resident set of each after its first text.

Load: --clients send requests for --seconds, streamed or not, and a share --drop of them disconnects during the
answer. Every answer must be complete or a named error; after a 429 the client waits as long as the answer says.
Memory is read every second; `growth` is the mean of its last fifth over that of its second fifth.

Without --model, a model of --preset with random weights. Prints one JSON object with --json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from servers import LlamaServer, Server, resident

PROMPT = "the river runs to the sea. "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--preset", default="gpt2-small")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--llama-server", type=Path, help="the binary, built for this machine (GGML_NATIVE=ON)")
    parser.add_argument("--llama-type", choices=["f32", "f16", "bf16", "q8_0"])
    parser.add_argument("--flash", choices=["on", "off"], default="on", help="llama.cpp's flash attention")
    parser.add_argument("--scoring", action="store_true")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        engine_alone(options)
        return
    with tempfile.TemporaryDirectory() as work:
        options.model = options.model or make_model(options.preset, Path(work) / "model")
        options.work = Path(work)
        chosen = {load: options.load, peer: options.llama_server, scoring: options.scoring, speed: True}
        measure = next(measure for measure, is_chosen in chosen.items() if is_chosen)
        result = asyncio.run(measure(options))
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value:,.3f}" if isinstance(value, float) else f"{name:28} {value}")


def make_model(name: str, folder: Path) -> Path:
    import headwater as hw
    from headwater.model import build_model, preset, save_model

    folder.mkdir()
    tokenizer = hw.Tokenizer.load("gpt2")
    config = preset(name, vocabulary=tokenizer.vocabulary_size)
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    return folder


def body_of(tokens: int, seed: int, stream: bool = True) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": tokens, "min_tokens": tokens, "seed": seed, "stream": stream}


async def speed(options: argparse.Namespace) -> dict[str, Any]:
    server = Server(options)
    try:
        async for _ in server.post(body_of(1, 0)):
            pass
        start = time.monotonic() - server.began
        server_memory = resident(server.process.pid)
        command = [sys.executable, __file__, "--engine", "--model", str(options.model), "--precision"]
        command += [options.precision, "--clients", str(options.clients), "--tokens", str(options.tokens)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        alone = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert alone.stdin is not None
        assert alone.stdout is not None
        engine_memory = float(alone.stdout.readline())
        engine, served, gaps = [], [], []
        for number in range(options.rounds + 1):  # the first warms up
            print(number, file=alone.stdin, flush=True)
            rate = float(alone.stdout.readline())
            found, between = await stream_all(server, options, number)
            if number:
                engine.append(rate)
                served.append(found)
                gaps += between
        alone.stdin.close()
        alone.wait(60)
    finally:
        status = server.stop()
    gaps.sort()
    median = statistics.median(gaps)
    late = gaps[int(0.99 * len(gaps))]
    return {
        "clients": options.clients,
        "engine tokens/s": statistics.median(engine),
        "server tokens/s": statistics.median(served),
        "server / engine": statistics.median(served) / statistics.median(engine),
        "between tokens, median ms": 1000 * median,
        "between tokens, p99 ms": 1000 * late,
        "p99 / median": late / median,
        "start to first answer s": start,
        "idle memory, server MiB": server_memory,
        "idle memory, engine MiB": engine_memory,
        "server / engine memory": server_memory / engine_memory,
        "exit status": status,
    }


async def stream_all(server: Server, options: argparse.Namespace, number: int) -> tuple[float, list[float]]:
    """Tokens a second of all clients together, and the times between the tokens of each."""
    gaps: list[float] = []

    async def one(client: int) -> int:
        times = [
            time.monotonic()
            async for line in server.post({**body_of(options.tokens, number * 1000 + client), "logprobs": 0})
            if line.startswith(b"data: {")
        ]
        gaps.extend(b - a for a, b in pairwise(times))
        return len(times)

    began = time.monotonic()
    counts = await asyncio.gather(*(one(client) for client in range(options.clients)))
    return sum(counts) / (time.monotonic() - began), gaps


async def peer(options: argparse.Namespace) -> dict[str, Any]:
    if options.precision not in {"fp32", "bf16", "int8"}:
        raise SystemExit("--llama-server needs --precision fp32, bf16 or int8")
    result: dict[str, Any] = {"precision": options.precision, "threads": options.threads}
    for clients in options.counts:
        options.clients = clients
        ours, llama = Server(options), LlamaServer(options, clients)
        try:
            await llama.ready()
            for stream in (True, False):
                name = f"{clients} {'streamed' if stream else 'whole'}"
                rates: dict[str, list[float]] = {"headwater": [], "llama.cpp": []}
                times: dict[str, tuple[list[float], list[float]]] = {key: ([], []) for key in rates}
                for number in range(options.rounds + 1):  # the first warms up
                    for key, server in (("headwater", ours), ("llama.cpp", llama)):
                        rate, first, between = await ask_all(server, options, number, stream)
                        if number:
                            rates[key].append(rate)
                            times[key][0].extend(first)
                            times[key][1].extend(between)
                medians = {key: statistics.median(values) for key, values in rates.items()}
                for key in rates:
                    result[f"{name}, {key} tokens/s"] = medians[key]
                    for what, values in zip(("first token", "between tokens"), times[key], strict=True):
                        if values:
                            result[f"{name}, {key} {what} p50 ms"] = 1000 * percentile(values, 0.5)
                            result[f"{name}, {key} {what} p99 ms"] = 1000 * percentile(values, 0.99)
                result[f"{name}, ratio"] = medians["headwater"] / medians["llama.cpp"]
            if clients == 1:
                result |= await streams_during_scoring(ours, options)
        finally:
            llama.stop()
            result["exit status"] = ours.stop()
    return result


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def ask_all(
    server: Server, options: argparse.Namespace, number: int, stream: bool
) -> tuple[float, list[float], list[float]]:
    """(tokens per second of all clients together, times to the first token, times between tokens)."""
    first: list[float] = []
    between: list[float] = []

    async def one(client: int) -> int:
        chance = random.Random(number * 1_000 + client)
        prompt = [chance.randrange(256) for _ in range(options.prompt_tokens)]
        body = {
            "prompt": prompt,
            "max_tokens": options.tokens,
            "ignore_eos": True,
            "seed": client,
            "stream": stream,
        }
        began = time.monotonic()
        times, whole = [], b""
        async for line in server.post(
            body | {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0, "return_token_ids": True}
        ):
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
            elif line.startswith(b"{"):
                whole = line
        if not stream:
            return int(json.loads(whole)["usage"]["completion_tokens"])
        first.append(times[0] - began)
        between.extend(b - a for a, b in pairwise(times))
        return options.tokens

    began = time.monotonic()
    counts = await asyncio.gather(*(one(client) for client in range(options.clients)))
    assert sum(counts) == options.clients * options.tokens, counts
    return sum(counts) / (time.monotonic() - began), first, between


async def scoring(options: argparse.Namespace) -> dict[str, Any]:
    options.clients = 1
    server = Server(options)
    try:
        await ask_all(server, options, 0, True)
        result: dict[str, Any] = await streams_during_scoring(server, options)
    finally:
        status = server.stop()
    return {**result, "exit status": status}


async def streams_during_scoring(server: Server, options: argparse.Namespace) -> dict[str, float]:
    """The 99th percentile between a stream's tokens while another client scores, and without."""
    prompts = [PROMPT * 8 + f" a stone {number} lies there" for number in range(200)]
    rows = {"prompt": prompts, "max_tokens": 0, "echo": True, "logprobs": 0}

    async def score() -> None:
        while True:
            async for _ in server.lines("/v1/completions", rows):
                pass

    alone: list[float] = []
    during: list[float] = []
    for number in range(4):
        alone += (await ask_all(server, options, number, True))[2]
        task = asyncio.create_task(score())
        during += (await ask_all(server, options, number, True))[2]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    late = percentile(alone, 0.99), percentile(during, 0.99)
    return {
        "alone, between tokens p50 ms": 1000 * percentile(alone, 0.5),
        "scoring, between tokens p50 ms": 1000 * percentile(during, 0.5),
        "alone, between tokens p99 ms": 1000 * late[0],
        "scoring, between tokens p99 ms": 1000 * late[1],
        "scoring / alone": late[1] / late[0],
    }


def engine_alone(options: argparse.Namespace) -> None:
    import headwater as hw

    lm = hw.load(options.model, precision=options.precision, slots=options.clients)
    lm.generate(PROMPT, max_tokens=1)
    print(resident(os.getpid()), flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        running = [
            lm.submit(
                PROMPT,
                max_tokens=options.tokens,
                min_tokens=options.tokens,
                seed=int(line) * 1000 + client,
                alternatives=0,
            )
            for client in range(options.clients)
        ]
        for generation in running:
            generation.wait()
        print(options.clients * options.tokens / (time.monotonic() - began), flush=True)


async def load(options: argparse.Namespace) -> dict[str, Any]:
    server = Server(options)
    outcomes: Counter[str] = Counter()
    memory: list[float] = []
    until = time.monotonic() + options.seconds

    async def client(number: int) -> None:
        chance = random.Random(options.seed * 1_000_003 + number)
        while time.monotonic() < until:
            tokens = chance.randint(1, options.tokens)
            leaves = chance.random() < options.drop
            after = chance.randint(0, 12)
            stream = chance.random() < 0.7
            outcome, wait = await ask(
                server, body_of(tokens, chance.getrandbits(30), stream), after if leaves else None
            )
            outcomes[outcome] += 1
            await asyncio.sleep(wait * chance.uniform(0.8, 1.2))

    async def watch() -> None:
        while time.monotonic() < until:
            await asyncio.sleep(1)
            memory.append(resident(server.process.pid))

    try:
        await asyncio.gather(watch(), *(client(number) for number in range(options.clients)))
        left = [1]
        for _ in range(100):
            left = await running(server)
            if not any(left):
                break
            await asyncio.sleep(0.1)
    finally:
        status = server.stop()
    fifth = max(1, len(memory) // 5)
    return {
        "seconds": options.seconds,
        "clients": options.clients,
        **{f"outcome {name}": count for name, count in sorted(outcomes.items())},
        "wrong": sum(count for name, count in outcomes.items() if name.startswith("wrong")),
        "memory MiB": statistics.mean(memory[-fifth:]),
        "growth": statistics.mean(memory[-fifth:]) / statistics.mean(memory[fifth : 2 * fifth] or memory[:1]),
        "still open": sum(left),
        "exit status": status,
    }


async def ask(server: Server, body: dict[str, Any], leave_after: int | None) -> tuple[str, float]:
    """Return the outcome of one request, and the seconds to wait before the next."""
    lines: list[bytes] = []
    try:
        answer = server.post(body)
        async for line in answer:
            lines.append(line)
            if leave_after is not None and len(lines) > leave_after:
                await answer.aclose()  # type: ignore[attr-defined]
                return "left", 0.0
    except OSError as error:
        return f"wrong: {type(error).__name__}", 0.0
    text = b"".join(lines).decode()
    if text.startswith("HTTP/1.1 200"):
        done = "data: [DONE]" in text if body["stream"] else '"finish_reason":"length"' in text
        return ("answered" if done else "wrong: cut short"), 0.0
    if text.startswith("HTTP/1.1 429") and (found := re.search(r"retry-after: (\d+)", text)):
        return "told to wait", float(found[1])
    return f"wrong: {text[:40]!r}", 0.0


async def running(server: Server) -> list[int]:
    """Return how many continuations run, and how many wait."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return [int(count) for count in re.findall(r"headwater_(?:running|waiting)\{.*\} (\d+)", text)]


if __name__ == "__main__":
    main()
