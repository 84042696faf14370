"""One interface: both backends, and every call on one of them, give the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from headwater.errors import UsageError
from headwater.inference import Engine, Network, Precision, Request, Scorer, continue_greedily, look_inside
from headwater.inference.backends import open_network
from headwater.inference.native_network import NativeNetwork, supported
from headwater.inference.scorer import logits_of
from headwater.inference.shared_prefixes import forests
from headwater.inference.torch_network import TorchNetwork
from headwater.model import build_model, preset
from headwater.tokenizer import Tokenizer

# Largest difference of a logit between the backends: int8 may round a value that differs in its last bit apart.
APART = {"fp32": 2e-5, "bf16": 0.05, "int8": 0.15}
PRECISIONS: list[Precision] = ["fp32", "bf16", "int8"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the river runs to the sea. "], vocab_size=270, special_tokens=["<|endoftext|>"])


def model_of(name: str) -> Any:
    config = preset(name, vocabulary=280, context=70, init_deviation=0.08)
    return build_model(config, seed=4).eval()


def both(name: str, precision: Precision) -> tuple[Network, Network]:
    model = model_of(name)
    if not supported(model):
        pytest.skip("the native kernels are not built here")
    return TorchNetwork.of(model, precision), NativeNetwork(model, precision)


texts = st.lists(st.lists(st.integers(0, 279), min_size=1, max_size=60), min_size=1, max_size=4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["gpt2-nano", "gpt1-nano"])
def test_both_backends_give_the_same_logits(name: str, precision: Precision) -> None:
    networks = both(name, precision)

    @settings(max_examples=15, deadline=None)
    @given(lists=texts)
    def check(lists: list[list[int]]) -> None:
        for forest in forests(lists):
            kept = np.arange(len(forest.ids))
            expected, got = (network.logits(network.hidden(forest, kept)) for network in networks)
            assert got.shape == expected.shape
            assert (got - expected).abs().max() <= APART[precision] * max(1.0, float(expected.abs().max()))

    check()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["gpt2-nano", "gpt1-nano", "lstm-nano"])
def test_every_call_computes_with_the_same_network(name: str, precision: Precision, tokenizer: Tokenizer) -> None:
    """Scores, echo, logits and generation: bit for bit where rows are exact, to rounding in torch."""
    if name == "lstm-nano" and precision == "int8":
        with pytest.raises(UsageError, match=precision):
            open_network(model_of(name), precision)
        return
    network = open_network(model_of(name), precision)
    scorer = Scorer(network, tokenizer)
    ids = [(7 * i) % 270 for i in range(40)]
    rounding = {"fp32": 2e-5, "bf16": 0.05, "int8": 0.05}[precision]
    tolerance = 0.0 if isinstance(network, NativeNetwork) else rounding
    scores = scorer.token_scores([(ids[:1], ids[1:])])[0].log_probability
    echoed = [one.log_probability for one in scorer.alternatives([ids], 3)[0]]
    np.testing.assert_allclose(echoed, scores, atol=tolerance)
    logits = logits_of(network, torch.tensor([ids, ids[::-1]]))[0]
    rows = logits[:-1] - logits[:-1].logsumexp(1, keepdim=True)
    read = rows[torch.arange(39), torch.tensor(ids[1:])].numpy()
    np.testing.assert_allclose(read, scores, atol=max(tolerance, 2e-6))
    request = Request(prompt=tuple(ids[:30]), max_tokens=8, min_tokens=8, temperature=0, alternatives=3)
    generation = Engine(network.runner(2), tokenizer).submit(request)
    events = list(generation)
    continued = scorer.alternatives([[*ids[:30], *generation.tokens]], 3)[0][29:]
    for event, echo in zip(events, continued, strict=True):
        assert event.alternatives is not None
        assert event.alternatives.log_probability == pytest.approx(echo.log_probability, abs=max(tolerance, 2e-6))


@pytest.mark.parametrize("shape", [(0, 3), (1, 0)])
def test_a_batch_without_tokens_has_no_logits(shape: tuple[int, int]) -> None:
    network = open_network(model_of("gpt2-nano"))
    assert logits_of(network, torch.zeros(shape, dtype=torch.int64)).shape == (*shape, 280)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_inspection_shows_what_is_scored(precision: Precision) -> None:
    ids = [(11 * i) % 270 for i in range(33)]
    for network in both("gpt2-nano", precision):
        found = look_inside(network, ids, 280, window=5)
        (forest,) = forests([ids])
        expected = network.logits(network.hidden(forest, np.array([32])))[0]
        np.testing.assert_allclose(found.logits[-1], expected, atol=APART[precision] * 4)
        np.testing.assert_allclose(found.attention.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(found.recent[:, :, -1], found.attention[:, :, -5:], atol=1e-6)
        silent = look_inside(network, ids, 280, off=[(0, 0), (1, 2)])
        assert np.abs(silent.logits[-1] - found.logits[-1]).max() > 0.01
    if precision == "fp32":
        follow = continue_greedily(network, ids, 280, 4)
        for place, token in enumerate(follow):
            assert token == int(look_inside(network, ids + follow[:place], 280).logits[-1].argmax())


@pytest.mark.parametrize("name", ["gpt2-nano", "gpt1-nano"])
def test_one_head_and_its_mlp_are_the_models(name: str) -> None:
    model, ids, (layer, head) = model_of(name), [(11 * i) % 270 for i in range(33)], (1, 1)
    block, config = model.blocks[layer], model.config
    with torch.no_grad():
        for place, parameter in enumerate(part for key, part in model.named_parameters() if "norm" in key):
            parameter += 0.3 * torch.randn(len(parameter), generator=torch.Generator().manual_seed(place))
        x = model.tokens.weight[torch.tensor([ids])] + model.positions.weight[: len(ids)]
        for before in model.blocks[:layer]:
            x = before(x)
        read = block.norm_1(x) if block.pre_norm else x
        parts = block.attention.query_key_value(read)[0].view(len(ids), 3, config.heads, -1)[:, :, head]
        query, keys, values = parts[-1, 0], parts[:, 1], parts[:, 2]
        weights = (keys @ query / np.sqrt(len(query))).softmax(0)
        middle = x + block.attention(read)
        middle = middle if block.pre_norm else block.norm_1(middle)
        inner = block.mlp.expand(block.norm_2(middle) if block.pre_norm else middle)[0, -1]
        units = functional.gelu(inner, approximate="tanh")
        after = middle[0, -1] + block.mlp.contract(units)

        def lens(state: Tensor, deviation: Tensor) -> Tensor:
            """The logits of a vector by a norm whose deviation is given, without the norm's bias."""
            norm = model.final_norm if block.pre_norm else block.norm_2
            scaled = (state - state.mean(-1, keepdim=True)) / deviation * norm.weight
            return scaled @ model.tokens.weight.T

        deviation = (after.var(correction=0) + config.norm_epsilon).sqrt()
        shares = lens(block.mlp.contract.weight.T * units[:, None], deviation)
    kinds = [TorchNetwork.of, NativeNetwork] if supported(model) else [TorchNetwork.of]
    for kind in kinds:
        found = look_inside(kind(model, "fp32"), ids, 280, head=(layer, head), units=len(units))
        assert found.head is not None
        assert found.units is not None
        for ours, expected in zip(
            found.head, (query, keys, values, keys @ query, weights, weights @ values), strict=True
        ):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-5)
        order = found.units.numbers
        assert sorted(order) == list(range(len(units)))
        assert (np.diff(np.abs(found.units.activations)) <= 1e-6).all()
        np.testing.assert_allclose(found.units.inputs, inner[order], rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(found.units.activations, units[order], rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(found.units.logits, shares[order], rtol=1e-4, atol=1e-4)
        # All units together with everything else are the logits after the block.
        rest = lens(middle[0, -1] + block.mlp.contract.bias, deviation)
        bias = (model.final_norm if block.pre_norm else block.norm_2).bias @ model.tokens.weight.T
        total = found.units.logits.sum(0) + (rest + bias).detach().numpy()
        np.testing.assert_allclose(total, found.logits[layer + 1], atol=2e-4)


def test_a_network_keeps_the_weights_that_it_read() -> None:
    model = model_of("gpt2-nano")
    kinds = [TorchNetwork.of, NativeNetwork] if supported(model) else [TorchNetwork.of]
    (forest,) = forests([[1, 2, 3]])
    for kind in kinds:
        network = kind(model, "fp32")
        before = network.logits(network.hidden(forest, np.arange(3))).clone()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        assert torch.equal(network.logits(network.hidden(forest, np.arange(3))), before)


def test_the_scores_of_an_lstm_are_those_of_its_forward_pass(tokenizer: Tokenizer) -> None:
    model = model_of("lstm-nano")
    scorer = Scorer(open_network(model), tokenizer)
    requests = [([5, 6, 7], [8, 9]), ([5], [8]), ([5, 6, 7], [1] * 30)]
    for (context, continuation), scores in zip(requests, scorer.token_scores(requests), strict=True):
        ids = torch.tensor([context + continuation])
        with torch.no_grad():
            rows = model(ids[:, :-1])[0].log_softmax(-1)[len(context) - 1 :]
        expected = rows.gather(1, torch.tensor(continuation)[:, None])[:, 0]
        np.testing.assert_allclose(scores.log_probability, expected.numpy(), atol=1e-5)


def test_a_model_in_training_mode_is_read_without_its_dropout(tokenizer: Tokenizer) -> None:
    """GPT-1's own code drops embedding rows and predicts position rows while it trains."""
    config = preset(
        "gpt1",
        vocabulary=280,
        context=70,
        layers=2,
        width=128,
        heads=2,
        embedding_dropout="matrix",
        softmax_rows="all",
    )
    model = build_model(config, seed=4)
    evaluated = Scorer(open_network(model.eval()), tokenizer).score_ids([([1, 2], [3, 4])])
    assert Scorer(open_network(model.train()), tokenizer).score_ids([([1, 2], [3, 4])]) == evaluated
    assert model.training
