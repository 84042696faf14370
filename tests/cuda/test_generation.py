"""Generation and scoring on a CUDA device without data, and their arithmetic on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headwater.inference import DecodeRow, Engine, PromptChunk, Request, torch_network
from headwater.inference.sampling import Sampling, choose, choose_rows
from headwater.inference.shared_prefixes import forests
from headwater.inference.torch_network import TorchNetwork, TorchRunner
from headwater.model import build_model, preset
from headwater.tokenizer import Tokenizer

SAMPLINGS = [
    Sampling(temperature=0),
    Sampling(),
    Sampling(top_k=5),
    Sampling(temperature=0.7, top_k=1),
    Sampling(top_p=0.6),
    Sampling(temperature=1.3, top_k=9, top_p=0.8, min_p=0.02),
    Sampling(min_p=0.2),
]


@pytest.mark.parametrize("name", ["gpt2-small", "gpt1"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_generation_step_runs_on_a_gpu_and_can_be_recorded(
    fake_cuda: Any, on_device: Any, monkeypatch: pytest.MonkeyPatch, name: str, precision: Any
) -> None:
    monkeypatch.setattr(torch_network, "recorded", lambda compute: compute)
    monkeypatch.setattr(torch_network, "rows_are_alike", lambda *_: True)  # compares values
    plain = build_model(preset(name, layers=2), device="meta")
    with fake_cuda(masks=True) as contract:
        network = TorchNetwork.of(on_device(plain), precision, consume=True)
        runner = TorchRunner(network, 16)
        contract.waits.clear()
        runner.step([], PromptChunk(3, 64, list(range(40))))
        contract.operators.clear()
        logits = runner.step([DecodeRow(1, 9, 7), DecodeRow(5, 200, 8)], None)
        assert logits.shape == (2, plain.config.vocabulary)
        attentions = sum(n for key, n in contract.operators.items() if key.startswith("_scaled_dot_product"))
        assert attentions == 2  # one a layer, whatever the number of slots
        assert not contract.waits  # so that the step can be recorded
        assert choose_rows(logits, SAMPLINGS[-2:], [0.1, 0.2]).shape == (2,)
        assert not contract.waits


def test_scores_are_computed_by_kernels_that_a_gpu_has(fake_cuda: Any, on_device: Any) -> None:
    plain = build_model(preset("gpt2-small", layers=1), device="meta")
    (forest,) = forests([[1, 2, 3, 4], [1, 2, 5]])
    with fake_cuda(masks=True):
        network = TorchNetwork.of(on_device(plain), "bf16", consume=True)
        hidden = network.hidden(forest, np.arange(len(forest.ids)))
        assert network.logits(hidden).shape == (len(forest.ids), plain.config.vocabulary)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_decoding_all_slots_in_one_pass_gives_the_same_text(precision: Any) -> None:
    tokenizer = Tokenizer.train(["a river "], vocab_size=270, special_tokens=["<|endoftext|>"])
    model = build_model(preset("gpt2-nano", vocabulary=280, context=70, init_deviation=0.08), seed=4).eval()
    network = TorchNetwork.of(model, precision)
    prompts = [[1, 2, 3], [9] * 60, [4, 5]]  # the second one's window moves on

    def request(prompt: list[int], seed: int) -> Request:
        return Request(prompt=prompt, max_tokens=12, seed=seed, temperature=0, beyond_context="shift")

    def texts(slots: int, *, crowd: bool = True, together: bool = True) -> list[list[int]]:
        runner = TorchRunner(network, slots)
        runner.together = together
        engine = Engine(runner, tokenizer)
        running = []
        for seed, prompt in enumerate(prompts):
            running.append(engine.submit(request(prompt, seed)))
            if not crowd:
                running[-1].wait()
        while engine.step():
            pass
        return [generation.tokens for generation in running]

    expected = texts(2)  # the third text takes over a slot
    assert texts(2, crowd=False) == expected
    if precision == "fp32":  # products of another shape may round otherwise
        assert texts(3) == texts(2, together=False) == expected


def test_choosing_for_all_rows_is_choosing_for_each() -> None:
    random = np.random.default_rng(2)
    logits = (4 * random.standard_normal((len(SAMPLINGS), 50))).astype(np.float32)
    logits[:, 7] = logits[:, 3]  # ties
    for _ in range(40):
        uniforms = random.random(len(SAMPLINGS))
        one_by_one = [choose(row, s, [], u) for row, s, u in zip(logits, SAMPLINGS, uniforms, strict=True)]
        assert choose_rows(torch.from_numpy(logits), SAMPLINGS, list(uniforms)).tolist() == one_by_one
    logits[2, 4] = np.inf
    assert choose_rows(torch.from_numpy(logits), SAMPLINGS, list(uniforms))[2] == -1
