"""Per-example log-likelihoods equal those of lm-evaluation-harness 0.4 on the same model folder.

Needs a Python with lm_eval, torch and transformers: this one, or the one that HEADWATER_LM_EVAL names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.inference import after_start, load, windows

PROGRAM = """
import json, sys
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

model, asked = sys.argv[1], json.load(open(sys.argv[2]))
lm = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=3)
def requests(kind, arguments):
    return [Instance(kind, {}, tuple(one), number) for number, one in enumerate(arguments)]
found = {
    "pairs": lm.loglikelihood(requests("loglikelihood", asked["pairs"])),
    "texts": lm.loglikelihood_rolling(requests("loglikelihood_rolling", [[text] for text in asked["texts"]])),
}
json.dump(found, open(sys.argv[3], "w"))
"""


@pytest.mark.slow
def test_log_likelihoods_are_those_of_the_harness(world: Any, tmp_path: Path, data: Path) -> None:
    python = os.environ.get("HEADWATER_LM_EVAL")
    if python is None and importlib.util.find_spec("lm_eval") is None:
        pytest.skip("needs lm_eval 0.4: install it, or set HEADWATER_LM_EVAL to a Python that has it")
    lambada = data / "eval-zeroshot" / "lambada" / "lambada_test_openai.jsonl"
    wiki = data / "eval-zeroshot" / "wikitext2" / "wiki.test.raw"
    passages = [json.loads(line)["text"] for line in lambada.read_text(encoding="utf-8").splitlines()[:25]]
    pairs = [(context, f" {word}") for context, _, word in (text.rpartition(" ") for text in passages)]
    pairs += [("", "The river flows"), ("Spaces at the end  ", "go on"), ("A line\n\n", "Another line")]
    texts = wiki.read_text(encoding="utf-8").split("\n = ")[1:4]
    asked = {"pairs": pairs, "texts": [text[:4000] for text in texts]}
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    program = [python or sys.executable, "-c", PROGRAM, str(world.wide), "asked.json", "found.json"]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))

    lm = load(world.wide)
    for (value, greedy), (expected, expected_greedy), pair in zip(
        lm.score(pairs), found["pairs"], pairs, strict=True
    ):
        assert value == pytest.approx(expected, abs=1e-4, rel=1e-6), pair
        assert greedy == expected_greedy
    for text, expected in zip(asked["texts"], found["texts"], strict=True):
        context = lm.scorer.context
        before, rest = after_start(lm.tokenizer, lm.tokenizer.encode(text))
        scores = lm.scorer.score_ids(list(windows([*before, *rest], len(before), context, context)))
        value = sum(score for score, _ in scores)
        assert value == pytest.approx(expected, rel=1e-6)
