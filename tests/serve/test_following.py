"""A served run: its losses and samples, and its model again at each new checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headwater.report import report
from headwater.serve import Limits, following
from headwater.serve.api import create_app
from headwater.serve.following import RunLosses
from headwater.serve.opening import open_models


@pytest.mark.slow
def test_a_served_run_is_followed_and_its_model_replaced(
    train_run: Callable[[int | None], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_EVERY", 0.05)
    run = train_run(2)
    models = open_models([f"mine={run}"], precision="fp32", slots=2)
    with TestClient(create_app(models, Limits()), base_url="http://127.0.0.1") as client:
        asked = {"model": "mine", "prompt": "the river", "max_tokens": 5, "temperature": 0}
        state = client.get("/run", params={"model": "mine"}).json()
        assert (state["complete"], state["served_update"], state["updates"]) == (False, 2, 4)
        assert len(state["training"]) >= 2
        assert len(state["held_out"]) >= 1
        assert state["samples"][0]["prompt"] == "the river"
        assert client.get("/v1/models").json()["data"][0]["run"] is True
        assert client.post("/v1/completions", json=asked).status_code == 200
        page = report([run], tmp_path / "report.html").read_text(encoding="utf-8")
        assert "is not finished" in page
        train_run(None)
        for _ in range(600):
            state = client.get("/run", params={"model": "mine"}).json()
            if state["complete"] and state["served_update"] is None:
                break
            time.sleep(0.05)
        assert state["update"] == 4
        assert state["served_update"] is None, "the finished model has taken the checkpoint's place"
        assert client.post("/v1/completions", json=asked).status_code == 200


def test_a_model_without_a_run_has_no_losses(base_folder: Path) -> None:
    models = open_models([f"mine={base_folder}"], precision="fp32", slots=2)
    with TestClient(create_app(models, Limits()), base_url="http://127.0.0.1") as client:
        answer = client.get("/run")
        assert answer.status_code == 400
        assert "not of a run folder" in answer.json()["error"]["message"]


def test_a_journal_is_read_in_parts_and_again_if_it_is_shorter(tmp_path: Path) -> None:
    path, journal = tmp_path / "metrics.jsonl", RunLosses(tmp_path)
    assert journal.read().training == []
    line = '{"step": 1, "tokens": 10, "loss": 3.0}\n'
    path.write_text(line + '{"step": 2, "tok', encoding="utf-8")
    assert journal.read().training == [(10, 3.0)]
    path.write_text(line + '{"step": 2, "tokens": 20, "loss": 2.5, "validation_loss": 2.6}\n', encoding="utf-8")
    assert journal.read().training == [(10, 3.0), (20, 2.5)]
    assert journal.held_out == [(20, 2.6)]
    path.write_text(line, encoding="utf-8")
    assert journal.read().training == [(10, 3.0)]
