"""`make test-gpu` writes rows as steps end, and a second call does what is left. The steps here need no GPU."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_run", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_run", module)
    spec.loader.exec_module(module)
    return module


def options(out: Path, **changes: object) -> argparse.Namespace:
    return argparse.Namespace(**({"out": out, "minutes": 5.0, "again": False, "tests_at_once": 1} | changes))


def test_a_second_call_does_what_is_left(script: ModuleType, tmp_path: Path) -> None:
    count = tmp_path / "count"

    def step(name: str, code: str, measures: bool = False) -> object:
        program = f"open({str(count)!r}, 'a').write({name[0]!r}); {code}"
        return script.Step(name, (sys.executable, "-c", program), measures)

    steps = [
        step("passes", "print('1 passed')"),
        step("fails", "raise SystemExit('no kernel')"),
        step("skips", "print('SKIPPED [1] needs two GPUs')"),
        step("measures", "print('note'); print('{\"tokens_per_second\": 5}')", measures=True),
        step("nothing", "print('no figures')", measures=True),
        step("peer", "print('SKIPPED No module named peer')", measures=True),
    ]
    assert script.do(steps[:2], options(tmp_path)) == []
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"step": "cut')  # by a killed call
    (tmp_path / "rows.jsonl").write_text((tmp_path / "rows.jsonl").read_text() + "\n")
    left = script.do(steps, options(tmp_path, minutes=-1.0))  # no time
    assert left == ["skips", "measures", "nothing", "peer"]
    assert script.do(steps, options(tmp_path)) == []
    rows = {row["step"]: row for row in script.read_rows(tmp_path)}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        **{"passes": "passed", "fails": "failed", "skips": "skipped"},
        **{"measures": "measured", "nothing": "failed", "peer": "skipped"},
    }
    assert rows["measures"]["tokens_per_second"] == 5
    assert "no kernel" in rows["fails"]["output"]
    assert "needs two GPUs" in rows["skips"]["reason"]
    assert count.read_text() == "pfsmnp"
    script.do(steps, options(tmp_path, again=True))
    assert count.read_text() == "pfsmnpfnp"  # a peer may have been installed


def test_a_step_without_end_is_a_row(script: ModuleType) -> None:
    row = script.result_of(script.Step("sleeps", (sys.executable, "-c", "import time; time.sleep(60)")), 0.5)
    assert (row["state"], row["output"]) == ("failed", "ended after 0 s")


def test_rows_of_other_sources_are_done_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"step": "a", "state": "passed", "sources": "older"}) + "\n")
    assert script.read_rows(tmp_path) == []


def test_the_steps_are_the_tests_and_the_figures(script: ModuleType) -> None:
    tests = script.tests()
    assert "test_first_hour.py::test_the_host_waits_once_an_update[gpt2-small]" in {step.name for step in tests}
    names = [step.name for step in script.measurements("")]
    assert names[0] == "pre-training bf16"
    assert "generation fp32, 64 texts" in names
    assert names[-3:] == ["fine-tuning at the defaults", "fine-tuning with transformers' Trainer", "scoring"]
    skipped = {step.name: step.skipped for step in script.measurements("") if step.skipped}
    assert list(skipped) == ["pre-training bf16 next to nanoGPT", "pre-training fp32 next to nanoGPT"]
    assert not any(step.skipped for step in script.measurements("nanoGPT"))


@pytest.mark.parametrize("only", ["scoring", pytest.param("", marks=pytest.mark.slow)])
def test_figures_are_measured_on_a_cpu(script: ModuleType, tmp_path: Path, only: str) -> None:
    steps = [step for step in script.measurements("", "cpu") if only in step.name]
    assert script.do(steps, options(tmp_path, minutes=60.0)) == []
    for row in script.read_rows(tmp_path):
        assert row["state"] == ("skipped" if "nanoGPT" in row["step"] else "measured"), row
