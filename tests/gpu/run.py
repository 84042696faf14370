"""Test and measure this checkout on a machine with a GPU: `make test-gpu`, about ten minutes, without a network.

    python tests/gpu/run.py                        # with the torch of this Python; headwater need not be installed
    python tests/gpu/run.py --out results --minutes 10
    python tests/gpu/run.py --only generation      # steps whose names contain the word
    python tests/gpu/run.py --device cpu           # tiny models: tries the script itself where there is no GPU

Each test runs in a process of its own, so that one failure does not end the rest. Then come pre-training,
generation, prefill and fine-tuning next to transformers, and scoring. A row of OUT/rows.jsonl is written when its
step ends. A second call does what the first one left: rows of the same sources are kept, and those that failed are
repeated with --again. What was skipped, and why, is a row too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 300  # of a step
TAIL = 1_500  # characters of a failed step's output
Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A command, and whether the last line of its output is the figures of a row; or why it is skipped."""

    name: str
    command: tuple[str, ...] = ()
    measures: bool = False
    skipped: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    parser.add_argument("--minutes", type=float, default=10.0, help="no step begins later")
    parser.add_argument("--only", default="", help="a part of the names of the steps to do")
    parser.add_argument("--again", action="store_true", help="repeat steps that failed")
    parser.add_argument("--tests-at-once", type=int, default=3)
    parser.add_argument("--nanogpt", default=os.environ.get("NANOGPT", ""), help="folder of a nanoGPT checkout")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, preset = options.measure
        try:
            print(json.dumps(MEASURES[name](options.device, preset)))
        except ImportError as error:  # of the peer
            print(f"SKIPPED {error}")
        return
    if options.device == "cuda":
        require_gpu()
    steps = [*tests(), *measurements(options.nanogpt, options.device)]
    left = do([s for s in steps if options.only in s.name], options)
    show(read_rows(options.out))
    if left:
        print(f"Left for the same command again: {'; '.join(left)}")


def require_gpu() -> None:
    """End here without a GPU: every step would be skipped or fail."""
    program = "import torch; print(torch.cuda.is_available())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if ended.stdout.strip() != "True":
        raise SystemExit(f"torch of {sys.executable} finds no GPU. {ended.stderr[-TAIL:]}".strip())


def tests() -> list[Step]:
    """Return a step for each test of this folder."""
    pytest = (
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "addopts=--import-mode=importlib",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
    )
    command = [*pytest, "--collect-only", "tests/gpu"]
    output = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True).stdout
    names = [line for line in output.splitlines() if "::" in line]
    if not names:
        raise SystemExit(f"no test was found:\n{output}")
    return [Step(name.rpartition("/")[2], (*pytest, name)) for name in names]


def measurements(nanogpt: str, device: str = "cuda") -> list[Step]:
    """Return the steps that measure: each is repeated by its command alone. On a CPU the models are tiny."""
    preset, case = ("gpt2-pico", "midi-4k") if device == "cpu" else ("gpt2-small", "gpt2-small")
    rounds, tokens = ("3", []) if device == "cuda" else ("1", ["--prompt", "8", "--new", "8", "--long", "16"])
    steps = []
    for precision in ("bf16", "fp32"):
        command = ["benchmarks/pretrain.py", "--device", device, "--case", case, "--precision", precision]
        command += ["--rounds", "1", "--json", *(["--updates", "1"] if device == "cpu" else [])]
        name = f"pre-training {precision}"
        if nanogpt:
            steps.append(measurement(f"{name} next to nanoGPT", *command, "--nanogpt", nanogpt))
        else:
            steps.append(measurement(name, *command))
            steps.append(Step(f"{name} next to nanoGPT", skipped="no checkout is named: --nanogpt FOLDER"))
    for precision in ("bf16", "fp32"):
        for batch in ("1", "8", "64"):  # and prefill
            command = ["benchmarks/generate.py", "--device", device, "--preset", preset, "--batches", batch]
            command += ["--rounds", rounds, *tokens, "--json"]
            command += ["--sides", f"headwater:{precision}", f"transformers:{precision}"]
            steps.append(measurement(f"generation {precision}, {batch} texts", *command))
    for name in MEASURES:
        steps.append(measurement(name, "tests/gpu/run.py", "--device", device, "--measure", name, preset))
    return steps


def measurement(name: str, *command: str) -> Step:
    """Return the step that measures with a script of this checkout."""
    return Step(name, (sys.executable, *command), measures=True)


def environment() -> dict[str, str]:
    """Return the environment of a step: this checkout's packages, installed or not, and GPT-2's vocabulary."""
    folders = [str(ROOT / "src"), str(ROOT / "papers" / "src"), os.environ.get("PYTHONPATH", "")]
    data = os.environ.get("HEADWATER_DATA") or str(ROOT / "tests" / "golden")
    path = os.pathsep.join(filter(None, folders))
    return os.environ | {"PYTHONPATH": path, "HEADWATER_DATA": data, "HF_HUB_OFFLINE": "1"}


def do(steps: Sequence[Step], options: argparse.Namespace) -> list[str]:
    """Do the steps that have no row yet, and measurements that were skipped; return the names of those left.

    Tests run side by side.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    done = {row["step"]: row["state"] for row in read_rows(options.out)}
    repeated = {"failed"} if options.again else set()
    due = [s for s in steps if done.get(s.name) in repeated | {None, "skipped" if s.measures else None}]
    end = time.monotonic() + 60 * options.minutes

    def run(step: Step) -> bool:
        if time.monotonic() > end:
            return False
        row = result_of(step)
        with (options.out / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['state']:9}{row['seconds']:6.0f} s  {step.name}", flush=True)
        return True

    due.sort(key=lambda step: step.measures)
    tests = [step for step in due if not step.measures]
    with ThreadPoolExecutor(options.tests_at_once) as pool:
        results = list(pool.map(run, tests))
    results += [run(step) for step in due[len(tests) :]]
    return [step.name for step, was_done in zip(due, results, strict=True) if not was_done]


def result_of(step: Step, seconds: float = SECONDS) -> Row:
    """Run a step; return its row: passed, measured, skipped (with the reason) or failed (with its last output)."""
    started = time.monotonic()
    row: Row = {"step": step.name, "state": "failed", "seconds": 0.0, "sources": sources()}
    if step.skipped:
        return row | {"state": "skipped", "reason": step.skipped}
    try:
        ended = subprocess.run(
            step.command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=seconds
        )
        output = ended.stdout + ended.stderr
        if ended.returncode:
            row["output"] = output[-TAIL:]
        elif reason := next((line for line in ended.stdout.splitlines() if line.startswith("SKIPPED")), ""):
            row |= {"state": "skipped", "reason": reason}
        elif step.measures:
            row |= {"state": "measured", **json.loads(ended.stdout.strip().splitlines()[-1])}
        else:
            row["state"] = "passed"
    except subprocess.TimeoutExpired:
        row["output"] = f"ended after {seconds:.0f} s"
    except (ValueError, IndexError) as error:
        row["output"] = f"its output has no figures: {error}"
    return row | {"seconds": time.monotonic() - started}


def sources() -> str:
    """Return a hash of the package, the tests of this folder and the benchmarks."""
    digest = hashlib.sha256()
    for folder in ("src", "tests/gpu", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_rows(out: Path) -> list[Row]:
    """Return the newest row of each step of the present sources; a line that was cut short is ignored."""
    rows: dict[str, Row] = {}
    path, now = out / "rows.jsonl", sources()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.get("sources") == now:
            rows[row["step"]] = row
    return list(rows.values())


def show(rows: Iterable[Row]) -> None:
    """Print each row that measured, was skipped or failed, and the number of tests that passed."""
    rows = list(rows)
    print(f"\n{sum(row['state'] == 'passed' for row in rows)} tests passed")
    known = ("step", "state", "seconds", "sources")
    for row in rows:
        if row["state"] != "passed":
            print(
                f"{row['state']:9} {row['step']}: {json.dumps({k: v for k, v in row.items() if k not in known})}"
            )


WORDS = [f"word{number}" for number in range(200)]


def write_base(folder: Path, preset_name: str) -> None:
    """Write a model without training, of the preset's shape, with a tokenizer of its own."""
    from headwater.model import build_model, preset, save_model
    from headwater.tokenizer import Tokenizer

    tokenizer = Tokenizer.train([" ".join(WORDS)], vocab_size=600, special_tokens=["<|endoftext|>"])
    folder.mkdir()
    save_model(build_model(preset(preset_name), seed=1), folder, tokenizer=tokenizer)


def text_of(row: int, words: int) -> str:
    """Return one of many texts of so many words."""
    return " ".join(WORDS[(row * 7 + position * (3 + row % 5)) % len(WORDS)] for position in range(words))


ROWS = {"cuda": 2_000, "cpu": 200}  # of 20 words, for fine-tuning


def measure_fine_tuning(device: str, preset_name: str) -> Row:
    """Return the seconds of `headwater finetune` at its defaults."""
    from headwater.cli.main import main as headwater

    with TemporaryDirectory() as temporary:
        base, table, out = (Path(temporary) / name for name in ("base", "train.csv", "out"))
        write_base(base, preset_name)
        rows = (f"{text_of(row, 20)},{'ab'[row % 2]}\n" for row in range(ROWS[device]))
        table.write_text("text,label\n" + "".join(rows), encoding="utf-8")
        started = time.perf_counter()
        command = ["finetune", "--task", "classify", "--model", str(base), "--train", str(table)]
        if status := headwater([*command, "--out", str(out), "--device", device]):
            raise SystemExit(status)
        return {"seconds_of_training": time.perf_counter() - started, "rows": ROWS[device]} | machine(device)


def measure_trainer(device: str, preset_name: str) -> Row:
    """Return the seconds of transformers' Trainer on the same base and rows: three epochs in batches of 32."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    with TemporaryDirectory() as temporary:
        base = Path(temporary) / "base"
        write_base(base, preset_name)
        started = time.perf_counter()
        tokenizer = AutoTokenizer.from_pretrained(base)
        tokenizer.pad_token = tokenizer.eos_token
        model = AutoModelForSequenceClassification.from_pretrained(base, pad_token_id=tokenizer.pad_token_id)
        rows = [{"label": row % 2, **tokenizer(text_of(row, 20))} for row in range(ROWS[device])]
        plan = {"num_train_epochs": 3, "per_device_train_batch_size": 32, "bf16": device == "cuda"}
        quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": device == "cpu"}
        arguments = TrainingArguments(str(Path(temporary) / "out"), **plan, **quiet)
        collate = DataCollatorWithPadding(tokenizer)
        Trainer(model, arguments, train_dataset=rows, data_collator=collate).train()
        return {"seconds_of_training": time.perf_counter() - started, "rows": ROWS[device]} | machine(device)


def measure_scoring(device: str, preset_name: str) -> Row:
    """Return the pairs of a context (10 to 100 words) and a continuation that are scored a second."""
    from headwater.inference import load

    with TemporaryDirectory() as temporary:
        write_base(Path(temporary) / "base", preset_name)
        lm, times = load(Path(temporary) / "base", device=device), []
        pairs = [(text_of(row, 10 + row % 90), " " + text_of(row + 1, 5)) for row in range(512)]
        for _ in range(4):
            started = time.perf_counter()
            lm.score(pairs)
            times.append(time.perf_counter() - started)
    return {"pairs_per_second": len(pairs) / statistics.median(times[1:])} | machine(device)


def machine(device: str) -> Row:
    """Return the device and torch that a figure is of."""
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    return {"device": name, "torch": torch.__version__}


MEASURES = {
    "fine-tuning at the defaults": measure_fine_tuning,
    "fine-tuning with transformers' Trainer": measure_trainer,
    "scoring": measure_scoring,
}

if __name__ == "__main__":
    main()
