"""lm-evaluation-harness 0.4 reads the same log-likelihoods from the server as the library gives offline.

`lm_eval_exchange.json` is what version 0.4.13 asked with the server's tokenizer, and what it was answered.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater as hw
from headwater.inference import after_start, windows

EXCHANGE = Path(__file__).parent / "lm_eval_exchange.json"
PROGRAM = """
import json, sys, requests
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

if __name__ == "__main__":
    url, folder, pairs = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
    local = {"tokenizer": folder, "tokenizer_backend": "huggingface"}
    # Without a tokenizer the harness finds the server's: /tokenizer_info and /tokenize.
    options = {**(local if sys.argv[7] == "local" else {}), "num_concurrent": int(sys.argv[5])}
    url += "/v1/completions"
    lm = LocalCompletionsAPI(model="base", base_url=url, max_length=65, batch_size=1, **options)
    exchange, send = [], requests.Session.request
    def recorded(session, method, url, **options):
        answer = send(session, method, url, **options)
        exchange.append([method.upper(), url.removeprefix(sys.argv[1]), options.get("json"), answer.json()])
        return answer
    requests.Session.request = recorded
    asked = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(pairs)]
    written = [Instance("generate_until", {}, ("the river", {"until": ["z"], "max_gen_toks": 8}), 0)]
    rolled = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in json.load(open(sys.argv[6]))]
    found = [lm.loglikelihood(asked), lm.generate_until(written), lm.loglikelihood_rolling(rolled)]
    json.dump([*found, exchange], open(sys.argv[4], "w"))
"""


def test_the_harness_gets_the_recorded_answers(http: httpx.Client, base_folder: Path) -> None:
    for method, path, body, expected in json.loads(EXCHANGE.read_text(encoding="utf-8")):
        found = http.request(method, path, json=body).json()
        if path != "/v1/completions":
            assert found == expected
            continue
        (choice,), (before,) = found["choices"], expected["choices"]
        assert choice["text"] == before["text"]
        for key, values in (before["logprobs"] or {}).items():
            if key == "token_logprobs":
                assert choice["logprobs"][key][1:] == pytest.approx(values[1:], abs=1e-4)
            elif key == "top_logprobs":
                assert [set(top or ()) for top in choice["logprobs"][key]] == [set(top or ()) for top in values]
            else:
                assert choice["logprobs"][key] == values
    # An empty context is the end of text, which the harness looks up by its name.
    end = hw.Tokenizer.load(base_folder).end_of_text
    named = http.post("/tokenize", json={"prompt": "<|endoftext|>", "add_special_tokens": False}).json()
    assert named["tokens"] == [end]


@pytest.mark.slow
@pytest.mark.parametrize(("tokenizer", "concurrent"), [("local", 1), ("local", 4), ("remote", 1)])
def test_the_harness_reads_the_same_numbers(
    server: Any, base_folder: Path, tmp_path: Path, tokenizer: str, concurrent: int
) -> None:
    python = os.environ.get("HEADWATER_LM_EVAL")
    if python is None and importlib.util.find_spec("lm_eval") is None:
        pytest.skip(
            "needs lm_eval 0.4 with its extra `api`: install it, or set HEADWATER_LM_EVAL to a Python with it"
        )
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    pairs = [("the river", " runs"), ("a stone lies", " in the river"), ("", "the sea"), ("the sea. ", "a stone")]
    pairs += [("the river runs to the sea. " * 20, "a stone"), ("a", " river runs to the sea")]
    (tmp_path / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    command = [python or sys.executable, str(program), server.url, str(base_folder)]
    texts = ["the sea", "the river runs to the sea. a stone lies in the river. " * 15]
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command += [str(tmp_path / "pairs.json"), str(tmp_path / "found.json"), str(concurrent)]
    command += [str(tmp_path / "texts.json"), tokenizer]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if "ModuleNotFoundError" in ran.stderr:
        pytest.skip(f"lm_eval lacks a package: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr[-3000:]
    found, written, rolled, exchange = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    if tokenizer == "remote":
        asked = [entry[:3] for entry in exchange]
        assert [
            entry for entry in json.loads(EXCHANGE.read_text(encoding="utf-8")) if entry[:3] not in asked
        ] == []
    lm = hw.load(base_folder)
    encoded = lm.scorer.encode_pairs(pairs)
    # Through an API the harness keeps the last 64 tokens of a pair; the model could read 64 and score a 65th.
    kept = [([*context, *rest][-64 : -len(rest)], rest) for context, rest in encoded]
    for (value, greedy), (expected, expected_greedy), pair in zip(
        found, lm.scorer.score_ids(kept), pairs, strict=True
    ):
        assert value == pytest.approx(expected, abs=1e-4), pair
        assert greedy == expected_greedy, pair
    assert written == [lm.generate("the river", temperature=0, max_tokens=8, stop=["z", "<|endoftext|>"])]
    # A window is one token shorter for the same reason.
    for text, value in zip(texts, rolled, strict=True):
        ids = lm.tokenizer.encode(text)
        before, rest = after_start(lm.tokenizer, ids)
        scores = lm.scorer.score_ids(list(windows([*before, *rest], len(before), 63, 63)))
        assert value == pytest.approx(sum(score for score, _ in scores), abs=1e-4, rel=1e-6)
