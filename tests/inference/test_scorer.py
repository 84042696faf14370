from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError, UsageError
from headwater.inference import Precision, Scorer, encode_pairs, windows
from headwater.inference.backends import open_network
from headwater.inference.native_network import NativeNetwork, supported
from headwater.inference.shared_prefixes import forests
from headwater.inference.torch_network import TorchNetwork
from headwater.model import Transformer, build_model, preset
from headwater.tokenizer import Tokenizer

SENTENCES = ["the river runs to the sea. ", "a stone lies in the river. ", "rain fell on the town. "]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(SENTENCES, kind="gpt2", vocab_size=300, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module", params=["gpt2-nano", "gpt1-nano"])
def model(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Transformer:
    # A large deviation makes probabilities uneven, as a trained model's are.
    config = preset(request.param, vocabulary=tokenizer.vocabulary_size, context=48, init_deviation=0.08)
    return build_model(config, seed=3).eval()


@pytest.fixture(scope="module", params=["torch", "native"])
def scorer(request: pytest.FixtureRequest, model: Transformer, tokenizer: Tokenizer) -> Scorer:
    if request.param == "torch":
        return Scorer(TorchNetwork.of(model, "fp32"), tokenizer)
    if not supported(model):
        pytest.skip("no compiler, or a processor without AVX-512: everything runs in torch")
    return Scorer(NativeNetwork(model, "fp32"), tokenizer)


def score_plainly(model: Transformer, context: list[int], continuation: list[int]) -> np.ndarray:
    ids = torch.tensor([[*context, *continuation]])
    with torch.no_grad():
        log_probabilities = model(ids[:, :-1]).log_softmax(dim=-1)[0]
    rows = range(len(context) - 1, ids.shape[1] - 1)
    return np.array([log_probabilities[row, ids[0, row + 1]].item() for row in rows])


ids = st.integers(min_value=0, max_value=279)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_scores_equal_the_plain_forward_pass_in_any_batch(
    data: st.DataObject, scorer: Scorer, model: Transformer
) -> None:
    trunk = data.draw(st.lists(ids, min_size=1, max_size=30))
    requests = []
    for _ in range(data.draw(st.integers(min_value=1, max_value=6))):
        own = data.draw(st.lists(ids, max_size=6))
        context = trunk[: data.draw(st.integers(min_value=1, max_value=len(trunk)))] + own
        requests.append((context, data.draw(st.lists(ids, min_size=1, max_size=8))))
    together = scorer.token_scores(requests)
    for (context, continuation), scores in zip(requests, together, strict=True):
        expected = score_plainly(model, context, continuation)
        np.testing.assert_allclose(scores.log_probability, expected, atol=1e-5)
    reverse = scorer.score_ids(requests[::-1])[::-1]
    for request, both in zip(requests, reverse, strict=True):
        assert scorer.score_ids([request])[0] == pytest.approx(both, abs=1e-5)


@settings(deadline=None)
@given(lists=st.lists(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=40), min_size=1, max_size=12))
def test_a_forest_has_every_text_along_its_path(lists: list[list[int]]) -> None:
    seen = []
    for forest in forests(lists):
        for member, path in zip(forest.members, forest.paths, strict=True):
            assert [forest.ids[row] for row in path] == lists[member]
            assert [forest.positions[row] for row in path] == list(range(len(path)))
            seen.append(member)
    assert sorted(seen) == list(range(len(lists)))


def test_a_shared_start_is_stored_once() -> None:
    start = list(range(100))
    (forest,) = forests([[*start, answer, 7] for answer in range(4)])
    assert len(forest.ids) == 96 + 4 * 6  # in whole pages of 16 positions


@given(
    length=st.integers(min_value=1, max_value=60),
    context=st.integers(min_value=1, max_value=20),
    data=st.data(),
)
def test_windows_predict_every_token_once_with_their_context(
    length: int, context: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(min_value=1, max_value=context))
    first = data.draw(st.integers(min_value=1, max_value=length))
    text = list(range(length))
    predicted = []
    for before, targets in windows(text, first, context, stride):
        inputs = [*before, *targets[:-1]]
        assert inputs == text[inputs[0] : inputs[0] + len(inputs)]
        assert len(inputs) <= context
        assert before
        if inputs[0] > 0:
            assert len(inputs) == context
        predicted += targets
    assert predicted == text[first:]


def test_windows_are_scored_as_plain_texts(scorer: Scorer, model: Transformer) -> None:
    text = [(7 * i) % 280 for i in range(100)]
    start = scorer.tokenizer.end_of_text
    assert start is not None
    parts = scorer.token_scores(list(windows([start, *text], 1, 32, 8)))
    scores = np.concatenate([part.log_probability for part in parts])
    assert scores.shape == (100,)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores[:32], score_plainly(model, [start], text[:32]), atol=1e-5)
    np.testing.assert_allclose(scores[32:40], score_plainly(model, text[7:32], text[32:40])[-8:], atol=1e-5)
    assert scorer.token_scores([]) == []


def test_a_tie_with_the_likeliest_token_is_greedy(scorer: Scorer, model: Transformer) -> None:
    with torch.no_grad():
        best = int(model(torch.tensor([[5, 6]]))[0, -1].argmax())
    assert scorer.score_ids([([5, 6], [best])])[0][1]
    assert not scorer.score_ids([([5, 6], [(best + 1) % 280])])[0][1]


def test_a_long_context_loses_its_start(scorer: Scorer) -> None:
    context = [(11 * i) % 280 for i in range(80)]
    assert scorer.score_ids([(context, [1, 2])]) == scorer.score_ids([(context[-47:], [1, 2])])


def test_trailing_spaces_of_the_context_join_the_continuation(scorer: Scorer) -> None:
    context, continuation = scorer.encode_pairs([("the river ", "runs")])[0]
    assert (context, continuation) == scorer.encode_pairs([("the river", " runs")])[0]
    assert scorer.tokenizer.decode(continuation) == " runs"
    assert scorer.encode_pairs([("", "the")])[0][0] == [scorer.tokenizer.end_of_text]


def test_a_token_across_the_border_joins_the_continuation(tokenizer: Tokenizer) -> None:
    whole = tokenizer.encode("the river")
    assert len(whole) == len(tokenizer.encode("the ri")) - 1  # "river" is one token, "ri" is not
    assert encode_pairs(tokenizer, [("the ri", "ver")]) == [(whole[:1], whole[1:])]


def test_pairs_are_encoded_together_in_two_calls(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("the river ", "runs"), ("", "the"), ("a stone", " lies"), ("the river", " runs")] * 5
    alone = [scorer.encode_pairs([pair])[0] for pair in pairs]
    calls: list[int] = []
    encode = scorer.tokenizer.encode_batch

    def counted(texts: list[str], allow_special: bool | None) -> list[list[int]]:
        calls.append(len(texts))
        return encode(texts, allow_special)

    monkeypatch.setattr(scorer.tokenizer, "encode_batch", counted)
    assert scorer.encode_pairs(pairs) == alone
    assert calls == [20, 20]


def test_requests_that_cannot_be_scored_are_named(scorer: Scorer) -> None:
    with pytest.raises(DataError, match="no tokens"):
        scorer.score_ids([([1], [2]), ([], [1])])
    with pytest.raises(DataError, match="adds no token"):
        scorer.encode_pairs([("the river", "")])
    with pytest.raises(UsageError, match="out of range"):
        scorer.score_ids([([1], [3000])])


def test_a_model_whose_weights_are_not_finite_is_refused(model: Transformer, tokenizer: Tokenizer) -> None:
    broken = copy.deepcopy(model)
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    with pytest.raises(DataError, match="largest logit is nan"):
        Scorer(open_network(broken), tokenizer).score_ids([([1], [2])])


def test_weights_that_overflow_give_an_error_and_not_nan(model: Transformer, tokenizer: Tokenizer) -> None:
    broken = copy.deepcopy(model)
    with torch.no_grad():
        list(broken.parameters())[-2].mul_(3e38)  # the last norm's weight
    scorer = Scorer(open_network(broken), tokenizer)
    for call in (
        lambda: scorer.score_ids([([1], [2])]),
        lambda: scorer.mean_states([[1, 2]]),
        lambda: scorer.alternatives([[1, 2]], 2),
    ):
        with pytest.raises(DataError, match="expected a finite number"):
            call()


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("int8", 0.3)])
def test_every_precision_agrees_within_its_rounding(
    model: Transformer, tokenizer: Tokenizer, precision: Precision, tolerance: float
) -> None:
    requests = [([i, i + 1, i + 2], [i + 3, i + 4]) for i in range(50)]
    exact = [score for score, _ in Scorer(open_network(model), tokenizer).score_ids(requests)]
    rounded = [s for s, _ in Scorer(TorchNetwork.of(model, precision), tokenizer).score_ids(requests)]
    assert np.abs(np.subtract(exact, rounded)).max() < tolerance
