"""The tables of the evaluation page, and the page of the papers' numbers: `tools/pages.py` writes them.

The verification comes from docs/verification.json, which `python -m headwater_papers.verification --json` writes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from headwater.evaluation import all_tasks
from headwater_papers.paper_tables import GPT1, GPT1_COLUMNS, SIZES, TABLES, gpt1, markdown

ROOT = Path(__file__).parents[1]
PROTOCOLS = ROOT / "docs/protocols.toml"
VERIFICATION = ROOT / "docs/verification.json"
PARTS = {"mnli-mm", "race-m", "race-h"}  # of sets that are counted as a whole


def protocols() -> Iterator[str]:
    """Yield a table of every protocol."""
    yield "| protocol | what exactly is scored | the paper's choice | inferred here |"
    yield "|---|---|---|---|"
    described = tomllib.loads(PROTOCOLS.read_text(encoding="utf-8"))
    if described.keys() != all_tasks().keys():
        raise SystemExit(f"{PROTOCOLS} does not describe: {sorted(described.keys() ^ all_tasks().keys())}")
    for name in all_tasks():
        cells = (described[name].get(key, "–").replace("|", "\\|") for key in ("scored", "paper", "inferred"))
        yield f"| `{name}` | {' | '.join(cells)} |"


def verification() -> Iterator[str]:
    """Yield a table of the largest differences, with one column for each model, and the largest of each model."""
    found = json.loads(VERIFICATION.read_text(encoding="utf-8"))
    models = list(found)
    yield f"| protocol | {' | '.join(f'{model}: examples, largest difference' for model in models)} |"
    yield "|---" * (len(models) + 1) + "|"
    for protocol in all_tasks():
        cells = []
        for model in models:
            row = found[model].get(protocol)
            cells.append("not run" if row is None else f"{row[0]}, {row[1]:.0e}")
        yield f"| `{protocol}` | {' | '.join(cells)} |"
    for model in models:
        worst, protocol = max(
            (found[model][protocol][1], protocol) for protocol in all_tasks() if protocol in found[model]
        )
        yield f"\nLargest difference with {model}: {worst:.1e}, in `{protocol}`."


def published() -> Iterator[str]:
    """Yield the page of the papers' numbers."""
    yield "# The papers' numbers"
    yield ""
    yield "Every number of both papers that this project compares with, from"
    yield "`headwater_papers/paper_tables.toml`. Each table says whether its numbers are printed,"
    yield "derived, read off a figure, or not verified."
    for table in TABLES.values():
        yield f"\n## {table.source}: {table.title}\n"
        yield from markdown(table)
    ahead, behind = gpt1_ahead(), "all but RTE, SST-2 and MRPC"
    yield "\n## Counts and gains\n"
    yield f"GPT-1 is ahead of every earlier system on {len(ahead)} of 12 data sets ({behind})."
    yield f"GPT-2's largest model is ahead on {len(gpt2_ahead())} of 8 data sets of its table 3.\n"
    yield "| data set | GPT-1 | over the best earlier system |"
    yield "|---|---|---|"
    for task in [name for name in GPT1_COLUMNS if name not in PARTS]:
        yield f"| {task} | {gpt1(task):g} | {gain(task):+.1f} |"


def gain(task: str) -> float:
    """Return how far GPT-1 is above the best earlier system that its table prints for a set."""
    name, column = GPT1_COLUMNS[task]
    table = TABLES[name]
    place = table.columns.index(column)
    earlier = [row[place] for system, row in table.rows.items() if system != GPT1]
    return round(gpt1(task) - max(value for value in earlier if isinstance(value, int | float)), 2)


def gpt1_ahead() -> list[str]:
    """Return the sets of table 1 on which GPT-1 is ahead of every earlier system: "9 of 12"."""
    return [task for task in GPT1_COLUMNS if task not in PARTS and gain(task) > 0]


def gpt2_ahead() -> list[str]:
    """Return the data sets of table 3 on which the largest GPT-2 is ahead: the paper's "7 of 8"."""
    table = TABLES["gpt2-table-3"]
    lower = {"LAMBADA ppl", "WikiText2", "PTB", "enwik8 bpb", "text8 bpc", "WikiText103", "1BW"}
    found: dict[str, bool] = {}
    for column in table.columns:
        before, now = (table.value(row, column) for row in ("state of the art", SIZES[-1]))
        name = column.split()[0].split("-")[0]
        found[name] = found.get(name, True) and (now < before if column in lower else now > before)
    return [name for name, ahead in found.items() if ahead]
