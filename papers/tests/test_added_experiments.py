"""Experiments that the papers only suggest: copies, convergence, position, distance, and *very* in Korean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headwater.corpus import Document
from headwater.model import ModelConfig, build_model
from headwater_papers import reproduce
from headwater_papers.gpt1_distances import ranges
from headwater_papers.gpt1_korean import read_reviews
from headwater_papers.gpt1_positions import VARIANTS, read_positions
from headwater_papers.gpt2_copies import by_copies, choose_passages, plant
from headwater_papers.scale import ModelPlan, Scale, TextPlan


def test_copies_are_planted_between_the_paragraphs_that_are_read() -> None:
    documents = [Document(name, "\n\n".join(f"{name}{place}" for place in range(40))) for name in "ab"]
    first, second = plant(documents, {"once": 1, "often": 6, "never": 0}, 0.5, seed=1)
    parts = [document.text.split("\n\n") for document in (first, second)]
    assert [[part for part in own if part[:1] in "ab" and part[1:].isdigit()] for own in parts] == [
        [f"{name}{place}" for place in range(20)] for name in "ab"
    ]
    every = parts[0] + parts[1]
    assert (every.count("once"), every.count("often"), every.count("never")) == (1, 6, 0)
    again = list(plant(documents, {"once": 1, "often": 6}, 0.5, seed=1))
    assert [document.text for document in again] == [first.text, second.text]


def test_each_passage_has_each_number_of_copies_in_turn() -> None:
    text = "\n\n".join(" ".join(f"w{place}-{word}" for word in range(45)) for place in range(6))
    passages = choose_passages([text, "too short"], 4)
    assert len(passages) == 4
    assert all(len(begin.split()) == len(rest.split()) == 20 for begin, rest in passages)
    turns = [by_copies(passages, (0, 1, 2, 4), turn) for turn in range(4)]
    assert all(sorted(copies) == [0, 1, 2, 4] for copies in zip(*turns, strict=True))


def test_half_of_the_reviews_are_positive_and_none_is_between(tmp_path: Path) -> None:
    for film in range(4):
        rows = [{"review": f"{film} 평점 {rating} 점", "rating": str(rating)} for rating in range(1, 11)]
        (tmp_path / f"{film}.json").write_text(json.dumps([*rows, {"review": "짧다", "rating": "10"}]), "utf-8")
    reviews = read_reviews(tmp_path, 8)
    assert [label for _, label in reviews] == [0] * 4 + [1] * 4
    assert {int(text.split()[2]) for text, label in reviews if label} <= {9, 10}
    assert {int(text.split()[2]) for text, label in reviews if not label} <= {1, 2, 3, 4}


@pytest.mark.slow
def test_convergence_compares_the_same_updates(scale: Scale, sets: Path, tmp_path: Path) -> None:
    settings = {"gpt1_convergence": {"set": "sst2", "rows": [8, 16], "updates": 4}}
    few = scale.model_copy(update={"experiments": settings})
    results = reproduce(["gpt1_convergence"], few, sets, tmp_path).results["gpt1_convergence"]
    assert [(row["setting"], row["seeds"]) for row in results["rows"][:4]] == [
        (f"{rows} rows, λ = {rate}", 3) for rows in (8, 16) for rate in (0.5, 0)
    ]
    assert len(results["findings"]) == 1


@pytest.mark.slow
def test_position_and_distance_are_measured_once_a_seed(scale: Scale, sets: Path, tmp_path: Path) -> None:
    small = {"width": 16, "heads": 1, "context": 16, "batch_size": 4, "updates": 30, "windows": 8}
    experiments = {"gpt1_positions": small, "gpt1_distances": small}
    recipe = {"preset": "gpt2-pico", "batch_size": 4, "context": 16, "steps": 4, "learning_rate": 1e-3}
    web = TextPlan(sources=("text.txt",), vocabulary=300, held_out=0.3, validation=0.1)
    models = {"gpt2-a": ModelPlan(text="web", recipe=recipe)}
    few = scale.model_copy(update={"texts": {"web": web}, "models": models, "experiments": experiments})
    outcome = reproduce(list(experiments), few, sets, tmp_path).results
    assert [row["setting"] for row in outcome["gpt1_positions"]["rows"]] == 2 * list(VARIANTS)
    names = [name for name, _ in outcome["gpt1_distances"]["setup"]]
    assert {"models", "LSTM"} <= set(names)
    assert len(outcome["gpt1_distances"]["rows"]) == 3 * len(ranges(16))


def test_ranges_of_the_context_double() -> None:
    assert ranges(16) == {"1": 1, "2 to 3": 2, "4 to 7": 4, "8 to 15": 8}
    assert list(ranges(128))[-3:] == ["16 to 31", "32 to 63", "64 to 127"]


def test_the_causal_mask_shows_positions() -> None:
    ids = np.random.default_rng(1).integers(0, 20, (800, 16))
    shape = {"layers": 2, "width": 16, "heads": 1, "context": 16, "vocabulary": 20, "init_deviation": 0.3}
    found = {}
    for attention in ("causal", "full"):
        model = build_model(ModelConfig.build(shape, {"attention": attention}), seed=1)
        model.positions.weight.data.zero_()
        found[attention] = float(np.mean(read_positions(model, ids)))
    assert found["causal"] > 0.05  # tokens without an order: only the mask tells
    assert abs(found["full"]) < 0.01
