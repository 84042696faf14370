"""Compare settings of fine-tuning on development rows, which belong to the training part of each set.

python tools/finetune_defaults.py MODEL --data DIR --out FILE --rows 2000 --try epochs=8 --try epochs=8,lambda_lm=0

Each setting fine-tunes MODEL once for each set and seed: on ROWS of the set's training rows, a tenth of which
chooses the epoch, and is scored on DEVELOPMENT other training rows. FILE keeps one JSON line for each training, so
that an interrupted search resumes, and a later one compares with it. The last lines printed are each setting's
score on each set, and the mean difference from the defaults, paired by set and seed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import labelled

if TYPE_CHECKING:
    from headwater.datasets import Found

SETS = ("sst2", "cola", "mrpc", "stsb", "qnli", "snli", "scitail")
DEVELOPMENT = 1_000
DEFAULTS = ""


def main() -> int:
    """Train what the file does not have yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder of the sets; repeatable")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument("--rows", type=int, help="rows to train on; default: all")
    parser.add_argument("--sets", default=",".join(SETS), help=f"default: {','.join(SETS)}; or {labelled.CHATBOT}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--try", dest="settings", action="append", default=[], help="KEY=VALUE,KEY=VALUE")
    given = parser.parse_args()
    sets = given.sets.split(",")
    settings = [DEFAULTS, *given.settings]
    asked = {"model": str(given.model), "rows": given.rows}
    for seed in range(1, given.seeds + 1):
        for name in sets:
            found = arrange(name, given.data, given.rows)
            for setting in settings:
                key = asked | {"set": name, "setting": setting, "seed": seed}
                if all({**entry, **key} != entry for entry in read(given.out)):
                    value = train(given.model, found, setting, seed)
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**key, "value": value}) + "\n")
    entries = [entry for entry in read(given.out) if {**entry, **asked} == entry]
    print(table(entries, sets, settings))
    return 0


def arrange(name: str, data: Sequence[Path], rows: int | None) -> Found:
    """Return a set that is trained on `rows` of its training rows, and tested on others of them."""
    found = labelled.chatbot(data) if name == labelled.CHATBOT else labelled.published(name, data)
    shuffled = random.Random(0).sample(found.train, len(found.train))
    held = min(DEVELOPMENT, len(shuffled) - (rows or 1))
    if held < 1:
        raise SystemExit(f"{name} has {len(shuffled):,} training rows, too few for --rows {rows:,}")
    return replace(found, train=shuffled[held:][:rows], validation=None, tests={"development": shuffled[:held]})


def train(model: Path, found: Found, setting: str, seed: int) -> float:
    """Return the set's metric on the development rows after fine-tuning with this setting."""
    from headwater.datasets import run_one
    from headwater.finetuning import FinetuneConfig
    from headwater.storage import SILENT

    pairs = [pair.split("=", 1) for pair in setting.split(",") if pair]
    config = FinetuneConfig(seed=seed, **{key: json.loads(value) for key, value in pairs})
    with tempfile.TemporaryDirectory() as folder:
        metrics = run_one(config, found, model=model, out=Path(folder) / "run", progress=SILENT)
    value = metrics["tests"]["development"][found.benchmark.metric]["value"]
    print(f"{found.benchmark.name} {setting or 'defaults'} seed {seed}: {value:.4f}", flush=True)
    return float(value)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the file of results, if it exists."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def table(entries: Sequence[Mapping[str, Any]], sets: Sequence[str], settings: Sequence[str]) -> str:
    """Return the settings' scores as Markdown, in points, with the standard error of the mean difference."""
    values = {(entry["setting"], entry["set"], entry["seed"]): 100 * entry["value"] for entry in entries}
    lines = [f"| setting | {' | '.join(sets)} | difference |", "|---|" + "---:|" * (len(sets) + 1)]
    for setting in settings:
        means = [
            statistics.fmean(value for (one, place, _), value in values.items() if (one, place) == (setting, name))
            for name in sets
        ]
        differences = [
            value - values[DEFAULTS, name, seed]
            for (one, name, seed), value in values.items()
            if one == setting and name in sets
        ]
        spread = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
        cells = " | ".join(f"{mean:.1f}" for mean in means)
        lines.append(
            f"| {setting or 'defaults'} | {cells} | {statistics.fmean(differences):+.1f} ± {spread:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
