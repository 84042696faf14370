"""HellaSwag on lines in the official format: what is scored, and how each protocol chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import DataError
from headwater.evaluation import RequestEncoder, Scored, all_tasks
from headwater.tokenizer import Tokenizer

WIKIHOW: dict[str, Any] = {
    "ind": 7,
    "activity_label": "Home and Garden",
    "ctx_a": "[header] How to dry herbs [title] Cut the stems. [step] Use sharp scissors.",
    "ctx_b": "the leaves",
    "ctx": "[header] How to dry herbs [title] Cut the stems. [step] Use sharp scissors. the leaves",
    "split": "val",
    "split_type": "indomain",
    "label": 2,
    "endings": ["burn.", "fall [substeps] down.", "stay green.", "turn into stone at night."],
    "source_id": "wikihow~1",
}


@pytest.fixture(scope="module")
def encoder() -> RequestEncoder:
    return RequestEncoder(Tokenizer.load("gpt2"), 1024)


def write(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**WIKIHOW, **changes}) + "\n", encoding="utf-8")
    return path


def asked(encoder: RequestEncoder, protocol: str, path: Path) -> list[tuple[str, str]]:
    task = all_tasks()[protocol]
    (example,) = task.read({"validation": path}, encoder)
    decode = encoder.tokenizer.decode
    return [(decode(r.context), decode(r.continuation)) for r in task.requests(example, encoder)]  # type: ignore[union-attr]


def test_context_and_endings_are_those_of_the_harness(encoder: RequestEncoder, tmp_path: Path) -> None:
    path = write(tmp_path / "hellaswag_val.jsonl")
    harness = asked(encoder, "hellaswag.lm-eval.total", path)
    assert {context for context, _ in harness} == {
        "Home and Garden: How to dry herbs. Cut the stems. Use sharp scissors. The leaves"
    }
    assert [ending for _, ending in harness] == [
        " burn.", " fall down.", " stay green.", " turn into stone at night."
    ]  # fmt: skip


def test_each_protocol_divides_by_its_own_length(encoder: RequestEncoder, tmp_path: Path) -> None:
    path = write(tmp_path / "hellaswag_val.jsonl", endings=["a" * 30, "b" * 10, "c" * 4, "d" * 5])
    # Totals -6, -5, -4, -4.5; per character -0.2, -0.5, -1, -0.9.
    values = [(-6.0,), (-1.25,) * 4, (-2.0,) * 2, (-4.5,)]
    answers = [Scored(value, (False,) * len(value)) for value in values]
    chosen = {}
    for protocol, task in all_tasks().items():
        if task.benchmark == "hellaswag":
            (example,) = task.read({"validation": path}, encoder)
            chosen[protocol] = task.score(example, answers, encoder)["chosen"]
    assert chosen == {
        "hellaswag.lm-eval.total": 2,
        "hellaswag.lm-eval.per-character": 0,
    }


@pytest.mark.parametrize("changes", [{"endings": ["a"]}, {"label": 4}, {"ctx_b": None}, {"endings": [""] * 4}])
def test_a_line_of_another_form_is_named(encoder: RequestEncoder, tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path / "hellaswag_val.jsonl", **changes)
    with pytest.raises(DataError, match=r"hellaswag_val.jsonl row 1 has another format"):
        all_tasks()["hellaswag.lm-eval.total"].read({"validation": path}, encoder)
