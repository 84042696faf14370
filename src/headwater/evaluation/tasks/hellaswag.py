"""HellaSwag (Zellers et al. 2019): choose the right one of four endings, on the official `hellaswag_val.jsonl`.

It is read as lm-evaluation-harness does. The context is `activity_label: ctx_a ctx_b`, with ctx_b capitalized; the
bracketed marks of the WikiHow part are removed. `.total` takes the ending with the highest log-probability,
`.per-character` divides that by the ending's characters (`acc_norm`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.evaluation.choice import SUMMARIES, Choice, Scoring
from headwater.evaluation.data_files import Source, read_json_rows
from headwater.evaluation.protocols import Example, numbered

ENDINGS = 4
_BRACKETS = re.compile(r"\[.*?\]")


def _endings(path: Path) -> list[Example]:
    expected = f"activity_label, ctx_a, ctx_b, {ENDINGS} endings and label"
    rows = read_json_rows(path, _ending_content, expected)
    return numbered((row, f"{row['context']} {row['answers'][row['label']]}") for row in rows)


def _ending_content(row: Mapping[str, Any]) -> dict[str, Any]:
    label = int(row["label"])
    context = _without_marks(f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}")
    endings = [_without_marks(ending) for ending in row["endings"]]
    if len(endings) != ENDINGS or not 0 <= label < ENDINGS:
        raise ValueError(f"{len(endings)} endings and label {label}")
    if not all(endings):
        raise ValueError("an ending is empty")
    return {"context": context, "answers": endings, "label": label}


def _without_marks(text: str) -> str:
    """Remove the WikiHow part's marks, such as `[header]`; `[title]` ends a sentence."""
    return _BRACKETS.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _hellaswag(scoring: Scoring) -> Choice:
    return Choice(
        "hellaswag",
        f"hellaswag.lm-eval.{scoring}",
        scoring,
        _endings,
        Source(
            "validation", names=("hellaswag_val.jsonl",), where="hellaswag_val.jsonl, github.com/rowanz/hellaswag"
        ),
        summary=f"the right one of four endings, as in lm-evaluation-harness, by {SUMMARIES[scoring]}",
    )


TASKS = [_hellaswag("total"), _hellaswag("per-character")]
