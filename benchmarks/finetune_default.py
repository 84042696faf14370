"""Time a default fine-tuning, from the command to its end, beside TF-IDF with a linear model and SetFit.

    python benchmarks/finetune_default.py --rows 128 800 --setfit PYTHON_WITH_SETFIT

Every side is a whole process that reads the same table of short texts in two classes (SST-2's sentences
from `--data`, else made ones of its lengths) and trains. `headwater finetune` learns TF-IDF, a probe and a
fine-tuned base, weighs them by cross-validation and writes its report. scikit-learn learns TF-IDF of words and
characters with logistic regression, its strength chosen by cross-validation. SetFit fine-tunes the same encoder
at its defaults. SetFit takes hours for a few hundred rows, so it is stopped after `--steps` updates, and its
time is what came before the first update plus all the updates that its trainer planned at the measured pace.
The sides take turns, and medians of the rounds are printed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headwater import shipped

TFIDF = """
import csv, sys
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
features = make_union(
    TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
    TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
)
strengths = {"logisticregression__C": [0.1, 1.0, 10.0, 100.0]}
model = GridSearchCV(make_pipeline(features, LogisticRegression(max_iter=500)), strengths, cv=3)
model.fit([row["text"] for row in rows], [row["label"] for row in rows])
"""
SETFIT = """
import csv, json, sys, time
started = time.perf_counter()
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from transformers import TrainerCallback
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
model = SetFitModel.from_pretrained(sys.argv[2])
table = Dataset.from_dict({"text": [r["text"] for r in rows], "label": [int(r["label"]) for r in rows]})

class Pace(TrainerCallback):
    def on_step_begin(self, arguments, state, control, **_):
        if state.global_step == 2:
            self.begin = time.perf_counter()
    def on_step_end(self, arguments, state, control, **_):
        if state.global_step == int(sys.argv[3]) or state.global_step == state.max_steps:
            pace = (time.perf_counter() - self.begin) / (state.global_step - 2)
            before = self.begin - started - 2 * pace
            print(json.dumps({"seconds": before + pace * state.max_steps, "updates": state.max_steps}), flush=True)
            import os
            os._exit(0)

arguments = TrainingArguments(report_to="none", seed=1)
Trainer(model=model, args=arguments, train_dataset=table, callbacks=[Pace()]).train()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[128, 800])
    parser.add_argument("--data", type=Path, help="folder of data sets, for SST-2's sentences")
    parser.add_argument("--base", default="minilm")
    parser.add_argument("--setfit", help="python of an environment with setfit")
    parser.add_argument("--steps", type=int, default=30, help="updates of SetFit that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            result = compare(rows, Path(folder), options)
        if options.json:
            print(json.dumps(result), flush=True)
        else:
            times = "; ".join(f"{side} {seconds:.1f} s" for side, seconds in result["seconds"].items())
            print(f"{rows} rows, {options.base}: {times}", flush=True)


def compare(rows: int, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return the median seconds of each side for a table of so many rows."""
    table, base = folder / "train.csv", str(shipped.resolve(options.base))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(read(options.data)[:rows])
    headwater = [sys.executable, "-m", "headwater", "finetune", "--task", "classify", "--train", str(table)]
    seconds: dict[str, list[float]] = {"headwater": [], "TF-IDF, scikit-learn": []}
    for turn in range(options.rounds):
        out = str(folder / f"out-{turn}")
        seconds["headwater"].append(timed([*headwater, "--model", base, "--out", out]))
        seconds["TF-IDF, scikit-learn"].append(timed([sys.executable, "-c", TFIDF, str(table)]))
    if options.setfit:
        # Its packages alone: PYTHONPATH may name those of this process.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [options.setfit, "-c", SETFIT, str(table), base, str(options.steps)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=environment)
        line = next(line for line in ran.stdout.splitlines() if line.startswith('{"seconds"'))
        seconds["SetFit"] = [json.loads(line)["seconds"]]
    return {"rows": rows, "seconds": {side: statistics.median(times) for side, times in seconds.items()}}


def timed(command: list[str]) -> float:
    """Return the seconds of a command."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def read(data: Path | None) -> list[tuple[str, str]]:
    """Return short texts with a label of two, in an order of their own."""
    order = random.Random(1)
    if data is None:
        words = ("a fine warm clever film", "a dull cold empty film")
        rows = [
            (" ".join(order.choices(words[n % 2].split(), k=order.randint(4, 30))), str(n % 2))
            for n in range(2_000)
        ]
    else:
        lines = (data / "finetune" / "sst2" / "sentences" / "train.tsv").read_text(encoding="utf-8").splitlines()
        rows = [(text, label) for text, _, label in (line.rpartition("\t") for line in lines)]
    order.shuffle(rows)
    return rows


if __name__ == "__main__":
    main()
