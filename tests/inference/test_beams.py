"""Beam search finds what transformers finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import headwater as hw
from headwater.errors import UsageError
from headwater.inference import BeamSearch, LanguageModel
from headwater.inference.torch_network import TorchNetwork
from headwater.shipped import DEFAULT, resolve

PROMPTS = ["The river", "A stone lies", "Once upon a time", "In the year 1900,", "She said", "The most important"]
PROMPTS += ["He was born in", "Scientists have found that", "the", "It is a truth"]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return hw.load(DEFAULT)


@pytest.fixture(scope="module")
def peer() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(resolve(DEFAULT), dtype=torch.float32).eval()


def searched(lm: LanguageModel, prompt: str, beams: int, length_penalty: float = 1.0, **options: Any) -> Any:
    request = lm.request(prompt, **options)
    search = BeamSearch(lm.network.runner(beams), lm.tokenizer, request, beams, length_penalty=length_penalty)
    while search.step():
        pass
    return search


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beams", "length_penalty", "least", "penalty"), [(4, 1.0, 0, 1.0), (3, 2.0, 8, 1.0), (5, -0.5, 0, 1.3)]
)
def test_beams_are_those_of_transformers(
    lm: LanguageModel, peer: Any, beams: int, length_penalty: float, least: int, penalty: float
) -> None:
    end = lm.tokenizer.end_of_text
    for prompt in PROMPTS:
        ids = torch.tensor([lm.tokenizer.encode(prompt)])
        expected = peer.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=length_penalty,
            max_new_tokens=16,
            min_new_tokens=least or None,
            repetition_penalty=penalty,
            pad_token_id=end,
            eos_token_id=end,
            output_scores=True,
            return_dict_in_generate=True,
        )
        found = searched(
            lm, prompt, beams, length_penalty, max_tokens=16, min_tokens=least, repetition_penalty=penalty
        )
        for beam, sequence in zip(found.best, expected.sequences.tolist(), strict=True):
            # Those that end early are padded there.
            assert beam.tokens == sequence[ids.shape[1] :][: len(beam.tokens)], prompt
        scores = [beam.score for beam in found.best]
        assert scores == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)


def test_one_beam_is_the_greedy_text(lm: LanguageModel) -> None:
    greedy = lm.generate("The river", temperature=0, max_tokens=12)
    search = searched(lm, "The river", 1, max_tokens=12)
    assert search.text(search.best[0]) == greedy


def test_generate_returns_the_best_beam_or_the_next(lm: LanguageModel) -> None:
    search = searched(lm, "The river", 3, max_tokens=8)
    texts = [lm.generate("The river", num_beams=3, max_tokens=8, sample=rank, seed=rank) for rank in range(3)]
    assert texts == [search.text(beam) for beam in search.best]
    assert len(set(texts)) == 3
    assert lm.generate(["The river", "The"], num_beams=3, max_tokens=8)[0] == texts[0]
    for wrong in ({"num_beams": 0}, {"num_beams": 2, "sample": 2}, {"num_beams": 2, "beyond_context": "shift"}):
        with pytest.raises(UsageError):
            lm.generate("The river", **wrong)


def test_a_beam_ends_at_a_stop_text(lm: LanguageModel) -> None:
    plain = searched(lm, "The river", 3, max_tokens=8)
    stop = plain.text(plain.best[0])[3:6]
    search = searched(lm, "The river", 3, max_tokens=8, stop=(stop,))
    for beam in search.best:
        text = search.text(beam)
        assert stop not in text
        assert (beam.finished == "stop") == (stop in lm.tokenizer.decode(beam.tokens))
    assert "stop" in {beam.finished for beam in search.best}


def test_all_backends_find_the_same_beams(tmp_path: Path) -> None:
    lm = hw.load(DEFAULT)
    expected = searched(lm, "The river runs to the sea. " * 12, 3, max_tokens=6).best
    network = TorchNetwork.of(lm.model, "fp32")
    request = lm.request("The river runs to the sea. " * 12, max_tokens=6)
    search = BeamSearch(network.runner(3), lm.tokenizer, request, 3)
    while search.step():
        pass
    assert [beam.tokens for beam in search.best] == [beam.tokens for beam in expected]


def test_a_beam_beyond_the_end_of_text_has_the_text_of_an_engine(lm: LanguageModel) -> None:
    end = lm.tokenizer.end_of_text
    options: Any = {"ignore_end": True, "max_tokens": 4, "bias": {end: 1e4}, "stop": "<|end"}
    search = searched(lm, "The river", 2, **options)
    generation = lm.submit("The river", temperature=0, **options).wait()
    assert search.best[0].tokens == generation.tokens == [end] * 4
    assert search.text(search.best[0]) == generation.text == ""
