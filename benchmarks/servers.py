"""Processes of `headwater serve` and llama.cpp's server for benchmarks/serve.py, and their memory."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any


class Server:
    """A process of `headwater serve`, and when it was started."""

    def __init__(self, options: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "headwater", "serve", "--model", str(options.model), "--port", "0"]
        command += ["--precision", options.precision]
        command += [] if options.load else ["--max-concurrency", str(options.clients)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://([\d.]+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
                return
        raise SystemExit("the server did not start")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    async def post(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        """Yield the lines of an answer, its status line first. Leaving early closes the connection."""
        async for line in self.lines("/v1/completions", body):
            yield line

    async def lines(self, path: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        """Post to any path."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            while line := await reader.readline():
                yield line
        finally:
            writer.close()


class LlamaServer(Server):
    """A process of llama.cpp's server with the same weights."""

    def __init__(self, options: argparse.Namespace, clients: int) -> None:
        from headwater.convert import write_gguf
        from headwater.model import load_model
        from headwater.tokenizer import Tokenizer

        kind = options.llama_type or {"fp32": "f32", "bf16": "f16", "int8": "q8_0"}[options.precision]
        file, written = options.work / f"{kind}.gguf", "f32" if kind == "bf16" else kind
        if not file.exists():
            source = options.work / f"{written}.gguf"
            write_gguf(load_model(options.model), Tokenizer.load(options.model), source, written)  # type: ignore[arg-type]
            if kind == "bf16":
                quantize = options.llama_server.with_name("llama-quantize")
                subprocess.run([quantize, source, file, "BF16"], check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        length = options.prompt_tokens + options.tokens + 8
        command = [str(options.llama_server), "--model", str(file), "--host", self.host, "--port", str(self.port)]
        command += ["--parallel", str(clients), "--ctx-size", str(clients * length), "--no-webui"]
        command += ["--cont-batching", "--flash-attn", options.flash, "--cache-ram", "0"]
        command += ["--threads", str(options.threads), "--threads-batch", str(options.threads)]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)

    async def ready(self) -> None:
        """Wait until the model is loaded."""
        for _ in range(1_200):
            if self.process.poll() is not None:
                raise SystemExit(f"llama-server ended with status {self.process.returncode}")
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                status = await reader.readline()
                writer.close()
                if b" 200 " in status:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit("llama-server did not become ready")


def resident(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024
