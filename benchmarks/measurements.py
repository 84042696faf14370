"""What `make benchmark` measures: each command, what it needs, and how its output becomes rows.

A row is one claim: Headwater's figure, every peer's, and the ratio to the best peer in the same run. Above 1,
Headwater is faster.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]


class Peers(NamedTuple):
    """Where the peers are that are not installed beside Headwater; benchmarks/README.md says how to get them."""

    folder: Path

    @property
    def nanogpt(self) -> Path:
        return self.folder / "nanoGPT"

    @property
    def llama(self) -> Path:
        """llama.cpp's programs: `llama-batched-bench`, `llama-quantize`, `llama-server`."""
        return self.folder / "llama.cpp" / "bin"

    @property
    def python(self) -> Path:
        """A Python that has lm-evaluation-harness, CTranslate2 and ONNX Runtime."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def text(self) -> Path | None:
        """Plain text to encode, to learn a vocabulary from, and to cut requests from."""
        data = os.environ.get("HEADWATER_DATA")
        folders = [self.folder / "text", *([Path(data) / "train-text" / "novels"] if data else [])]
        files = [file for folder in folders for file in folder.glob("*.txt")]
        return max(files, key=lambda file: file.stat().st_size, default=None)


class Measurement(NamedTuple):
    """A command, which peers it cannot do without, and the reading of what it prints."""

    name: str
    command: Callable[[Peers, int], list[str]]
    read: Callable[[str], dict[str, Row]]
    needs: tuple[str, ...] = ()


def row(unit: str, ours: float, peers: dict[str, float], spread: Iterable[float] = (), **more: Any) -> Row:
    """Return a row of rates: higher is faster. `spread` has the rounds' ratios to the best peer, if known."""
    best = max(peers, key=lambda name: peers[name])
    ratios = sorted(spread)
    found = {"unit": unit, "headwater": ours, "peers": peers, "best_peer": best, "ratio": ours / peers[best]}
    return found | ({"lowest": ratios[0], "highest": ratios[-1]} if ratios else {}) | more


def _json_lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _logits(precision: str) -> Measurement:
    name = f"logits-512-{precision}"

    def read(output: str) -> dict[str, Row]:
        found = json.loads(output[output.index("{") :])
        peers = {"transformers": found["theirs_tokens_per_second"]}
        return {name: row("tokens/s", found["tokens_per_second"], peers)}

    options = ["logits", "--batch", "1", "--time", "512", "--dtype", precision, "--rounds", "9"]
    return Measurement(name, lambda _peers, _threads: ["model.py", *options], read)


_CLASS = {"bf16": "bf16", "f16": "bf16", "fp32": "fp32", "f32": "fp32", "float32": "fp32"}
_CLASS |= {"int8": "int8", "q8_0": "int8"}


def _generation(output: str) -> dict[str, Row]:
    (found,) = _json_lines(output)
    rates: dict[tuple[str, str], dict[str, float]] = {}
    limits = {}
    for one in found["rows"]:
        side, precision = one["side"].split(":")
        group = one["case"], _CLASS[precision]
        if side == "headwater":
            limits[group] = one.get("limit")
        rates.setdefault(group, {})[side if side == "headwater" else f"{side} {precision}"] = one[
            "tokens_per_second"
        ]
    rows = {}
    for case in {case for case, _ in rates}:
        own = {
            kind: sides["headwater"] for (of, kind), sides in rates.items() if of == case and "headwater" in sides
        }
        exact = {kind: own[kind] for kind in ("fp32", "bf16") if kind in own}  # auto does not round weights
        auto = exact.pop(found["auto"])
        rows[f"auto-{case}"] = row("tokens/s", auto, exact, chosen=found["auto"])
    for (case, precision), sides in rates.items():
        ours = sides.pop("headwater", None)
        if ours is None or not sides:
            continue
        limit = limits.get((case, precision)) if case == "decode-1" else None
        more = {"limit": "memory read", "share_of_limit": ours / limit} if limit else {}
        rows[f"{case}-{precision}"] = row("tokens/s", ours, sides, **more)
    return rows


def _generate_command(peers: Peers, threads: int) -> list[str]:
    command = ["generate.py", "--rounds", "3", "--threads", str(threads), "--json"]
    command += ["--peer-python", str(peers.python)] if peers.python.exists() else []
    command += ["--llama", str(peers.llama)] if peers.llama.is_dir() else []
    second = peers.folder / "llama.cpp-noamx" / "bin"
    return command + (["--llama-second", str(second)] if second.is_dir() else [])


def _requests(precision: str) -> Measurement:
    name = f"requests-{precision}"

    def command(peers: Peers, threads: int) -> list[str]:
        options = ["--cases", "requests", "--requests", "24", "--precision", precision, "--threads", str(threads)]
        options += ["--peer-batches", "1", "4", "8", "--peer-python", str(peers.python), "--json"]
        return ["evaluate.py", *options, *(["--text", str(peers.text)] if peers.text else [])]

    def read(output: str) -> dict[str, Row]:
        (found,) = _json_lines(output)
        peers = {f"lm-evaluation-harness, batch {found['peer_batch']}": 24 / found["peer"]}
        more = {"largest_difference": found["difference"]}
        return {name: row("requests/s", 24 / found["headwater"], peers, found["ratios"], **more)}

    return Measurement(name, command, read, needs=("python",))


def _training(case: str, precision: str) -> Measurement:
    name = f"pretrain-{case}-{precision}"

    def command(peers: Peers, _threads: int) -> list[str]:
        options = ["--case", case, "--precision", precision, "--rounds", "2", "--updates", "4", "--json"]
        return ["pretrain.py", *options, *(["--nanogpt", str(peers.nanogpt)] if peers.nanogpt.is_dir() else [])]

    def read(output: str) -> dict[str, Row]:
        (found,) = _json_lines(output)
        rates = {system: one["tokens_per_second"] for system, one in found["systems"].items()}
        more = {
            "limit": f"{precision} matmul rate",
            "limit_flops": found["matmul_rate"],
            "share_of_limit": found["share_of_matmul_rate"],
        }
        return {name: row("tokens/s", rates.pop("headwater"), rates, **more)}

    return Measurement(name, command, read)


def _choices(case: str) -> Measurement:
    """The backend's choices for training, each changed alone: the peers are Headwater itself."""
    name = f"choices-{case}-bf16"

    def command(_peers: Peers, _threads: int) -> list[str]:
        options = ["--case", case, "--precision", "bf16", "--rounds", "2", "--updates", "2", "--json"]
        return ["pretrain.py", "--pieces", *options]

    def read(output: str) -> dict[str, Row]:
        (found,) = _json_lines(output)
        rates = {label: 1 / seconds for label, seconds in found["seconds"].items()}
        return {name: row("updates/s", rates.pop("default"), rates, chosen="default")}

    return Measurement(name, command, read)


def _finetune(case: str) -> Measurement:
    name = f"finetune-{case}-bf16"

    def command(_peers: Peers, threads: int) -> list[str]:
        return ["finetune.py", "--cases", case, "--updates", "4", "--threads", str(threads), "--json"]

    def read(output: str) -> dict[str, Row]:
        (found,) = _json_lines(output)
        rates = {side: found[side]["examples_per_second"] for side in ("headwater", "transformers")}
        return {name: row("examples/s", rates.pop("headwater"), rates, found["speed_ratios"])}

    return Measurement(name, command, read)


def _finetune_default(peers: Peers, _threads: int) -> list[str]:
    data = os.environ.get("HEADWATER_DATA")
    options = ["--rows", "128", "800", "--json", *(["--data", data] if data else [])]
    setfit = peers.folder / "setfit" / "bin" / "python"
    return ["finetune_default.py", *options, *(["--setfit", str(setfit)] if setfit.exists() else [])]


def _finetune_times(output: str) -> dict[str, Row]:
    """Read finetune_default.py; the rates are tables an hour, so that higher is faster."""
    rows = {}
    for result in _json_lines(output):
        rates = {side: 3_600 / seconds for side, seconds in result["seconds"].items()}
        rows[f"finetune-default-{result['rows']}"] = row("tables/h", rates.pop("headwater"), rates)
    return rows


def _serving(output: str) -> dict[str, Row]:
    (found,) = _json_lines(output)
    rows = {}
    for key in found:
        clients, _, rest = key.partition(" ")
        if rest != "streamed, ratio":
            continue
        rates = {side: found[f"{clients} streamed, {side} tokens/s"] for side in ("headwater", "llama.cpp")}
        peers = {"llama.cpp's server, bf16": rates["llama.cpp"]}
        rows[f"serve-{clients}-bf16"] = row("tokens/s", rates["headwater"], peers)
    return rows


def _serve_command(peers: Peers, threads: int) -> list[str]:
    options = ["--precision", "bf16", "--llama-type", "bf16", "--counts", "1", "8", "32", "--tokens", "32"]
    options += ["--rounds", "2", "--threads", str(threads), "--json"]
    return ["serve.py", "--llama-server", str(peers.llama / "llama-server"), *options]


def _tokenizer(what: str, megabytes: int) -> Measurement:
    def command(peers: Peers, _threads: int) -> list[str]:
        return ["tokenizer.py", what, "--text", str(peers.text), "--megabytes", str(megabytes), "--json"]

    def read(output: str) -> dict[str, Row]:
        rows = {}
        for found in _json_lines(output):
            seconds = found["seconds"]
            ours = seconds.pop("headwater")
            rates = {name: megabytes / statistics.median(times) for name, times in seconds.items()}
            best = min(seconds, key=lambda name: statistics.median(seconds[name]))
            ratios = [peer / own for peer, own in zip(seconds[best], ours, strict=True)]
            form = "" if what == "train" else "-many" if found["many"] else "-one"
            rows[f"tokenizer-{what}{form}"] = row("MB/s", megabytes / statistics.median(ours), rates, ratios)
        return rows

    return Measurement(f"tokenizer-{what}", command, read, needs=("text",))


def _beside_others(output: str) -> dict[str, Row]:
    """Read busy.py: a row's share is what Headwater keeps of its rate alone."""
    rows = {}
    for found in _json_lines(output):
        alone = found["rates"].pop("alone")
        for load, rates in found["rates"].items():
            more = {"limit": "the rate alone", "share_of_limit": rates["headwater"] / alone["headwater"]}
            kept = {"transformers_share": rates["transformers"] / alone["transformers"]}
            peers = {"transformers": rates["transformers"]}
            name = f"{load.replace(' ', '-')}-{found['task']}"
            rows[name] = row("steps/s", rates["headwater"], peers, **more, **kept)
    return rows


MEASUREMENTS = [
    _logits("bf16"),
    _logits("fp32"),
    Measurement("generate", _generate_command, _generation),
    _requests("bf16"),
    _requests("fp32"),
    _training("small-1024", "bf16"),
    _training("small-1024", "fp32"),
    _training("midi-4k", "bf16"),
    _choices("midi-4k"),
    _finetune("train-0.5"),
    _finetune("predict"),
    Measurement("finetune-default", _finetune_default, _finetune_times),
    Measurement("serve", _serve_command, _serving, needs=("llama",)),
    Measurement("busy", lambda _peers, _threads: ["busy.py", "--json"], _beside_others),
    _tokenizer("encode", 20),
    _tokenizer("train", 40),
]
