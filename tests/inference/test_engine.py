from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from headwater.errors import DataError, UsageError
from headwater.inference import (
    Engine,
    Event,
    Generation,
    Precision,
    Request,
    Runner,
    TextStream,
    native_network,
    torch_network,
)
from headwater.inference.backends import open_network
from headwater.inference.native_network import NativeNetwork, supported
from headwater.inference.torch_network import TorchNetwork, TorchRunner, matrices
from headwater.model import Transformer, build_model, preset
from headwater.tokenizer import Tokenizer

CONTEXT = 200
# Of a log-probability, against the float32 model.
TOLERANCE = {"fp32": 1e-4, "bf16": 0.05, "int8": 0.15}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["the river runs to the sea. ", "ein Fluß fließt. ", "강물이 바다로 흐른다. "]
    return Tokenizer.train(texts, kind="gpt2", vocab_size=290, special_tokens=["<|endoftext|>"])


def make_model(name: str, tokenizer: Tokenizer) -> Transformer:
    changes = {"vocabulary": tokenizer.vocabulary_size + 3, "context": CONTEXT, "init_deviation": 0.08}
    return build_model(preset(name, **changes), seed=5).eval()


class Case(NamedTuple):
    """A model and how it is run."""

    model: Transformer
    precision: Precision
    native: bool

    def runner(self) -> Runner:
        kind = NativeNetwork if self.native else TorchNetwork.of
        return kind(self.model, self.precision).runner(4)


CASES = [
    ("gpt2-nano", "torch", "fp32"),
    ("gpt1-nano", "torch", "bf16"),
    ("gpt2-nano", "torch", "int8"),
    ("gpt2-nano", "native", "fp32"),
    ("gpt1-nano", "native", "fp32"),
    ("gpt2-nano", "native", "bf16"),
    ("gpt2-nano", "native", "int8"),
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Case:
    name, runner, precision = request.param
    model = make_model(name, tokenizer)
    if runner == "native" and not supported(model):
        pytest.skip("no compiler, or a processor without AVX-512: everything runs in torch")
    return Case(model, precision, runner == "native")


@pytest.fixture
def engine(case: Case, tokenizer: Tokenizer) -> Engine:
    return Engine(case.runner(), tokenizer)


def prompt(length: int, seed: int) -> tuple[int, ...]:
    numbers = random.Random(seed)
    return tuple(numbers.randrange(256) for _ in range(length))


def requests(count: int) -> list[Request]:
    """Unequal prompts, many of them with a common start, of unequal length and sampling."""
    common = prompt(150, 0)
    return [
        Request(
            prompt=common[: 10 + 20 * (i % 7)] + prompt(i % 5, i) if i % 3 else prompt(1 + 9 * i, i),
            max_tokens=3 + i % 9,
            min_tokens=3 + i % 9,
            seed=i // 2,
            sample=i % 2,
            temperature=i % 3 / 2,
            top_k=40 * (i % 2),
            top_p=0.9 if i % 5 == 0 else 1.0,
            alternatives=2,
        )
        for i in range(count)
    ]


def test_the_first_token_is_the_models_own_choice(engine: Engine, case: Case) -> None:
    tolerance, block = TOLERANCE[case.precision], engine.runner.shared_block
    for length in (1, 2, block, block + 1, block + 2, 130, CONTEXT):
        ids = prompt(length, length)
        request = Request(prompt=ids, max_tokens=1, temperature=0, alternatives=3)
        (event,) = engine.submit(request)
        with torch.no_grad():
            expected = case.model(torch.tensor([ids]))[0, -1].log_softmax(0)
        assert event.alternatives is not None
        allowed = expected[: engine.vocabulary]
        if case.precision == "fp32":
            assert event.token == int(allowed.argmax())
        for token, log_probability in event.alternatives.likeliest:
            assert log_probability == pytest.approx(float(expected[token]), abs=tolerance)


def test_blocks_as_long_as_a_gpu_s_give_the_models_choice(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.setattr(torch_network, "_BLOCK", 256)  # beyond the context
    model = make_model("gpt2-nano", tokenizer)
    engine = Engine(TorchNetwork.of(model, "fp32").runner(4), tokenizer)
    for length in (1, 130, CONTEXT - 1, 130):
        ids = prompt(length, 3)
        generation = engine.submit(Request(prompt=ids, max_tokens=1, temperature=0)).wait()
        with torch.no_grad():
            allowed = model(torch.tensor([ids]))[0, -1, : engine.vocabulary]
        assert generation.tokens == [int(allowed.argmax())]


def test_generation_equals_recomputing_everything(engine: Engine, case: Case) -> None:
    tolerance = TOLERANCE[case.precision]
    request = Request(prompt=prompt(70, 1), max_tokens=40, min_tokens=40, temperature=0, alternatives=0)
    generation = engine.submit(request)
    events = list(generation)
    ids = [*request.prompt, *generation.tokens]
    with torch.no_grad():
        logits = case.model(torch.tensor([ids]))[0].log_softmax(-1)
    for position, event in enumerate(events, start=69):
        assert event.alternatives is not None
        expected = float(logits[position, ids[position + 1]])
        assert event.alternatives.log_probability == pytest.approx(expected, abs=tolerance)


def test_a_text_is_the_same_alone_and_in_a_crowd(case: Case, tokenizer: Tokenizer) -> None:
    """Not only the tokens: their log-probabilities too, to the last bit."""
    wanted = requests(14)
    alone = []
    for request in wanted:
        alone.append(list(Engine(case.runner(), tokenizer).submit(request)))
    crowd = Engine(case.runner(), tokenizer)
    order = list(range(len(wanted)))
    random.Random(2).shuffle(order)
    running: dict[int, Generation] = {}
    for place, index in enumerate(order):  # they join between steps
        running[index] = crowd.submit(wanted[index])
        for _ in range(place % 3):
            crowd.step()
    while crowd.step():
        pass
    for index, events in enumerate(alone):
        assert list(running[index]) == events, f"request {index}"
    again = [list(crowd.submit(request)) for request in wanted]  # with whatever the slots hold now
    assert again == alone


def test_threads_drive_the_engine_together(engine: Engine) -> None:
    wanted = requests(8)
    expected = [engine.submit(request).wait().tokens for request in wanted]
    got: dict[int, list[int]] = {}

    def work(index: int) -> None:
        got[index] = engine.submit(wanted[index]).wait().tokens

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[index] for index in range(len(wanted))] == expected


def test_the_last_event_is_not_lost_to_another_threads_step(engine: Engine) -> None:
    class Late(deque[Event]):
        """Empty when it is looked at; before the look has its consequence another thread ends the text."""

        def __bool__(self) -> bool:
            held = len(self) > 0
            while not held and engine.step():
                pass
            return held

    generation = engine.submit(Request(prompt=(1, 2), max_tokens=5, min_tokens=5))
    generation._events = Late()
    assert [event.token for event in generation] == generation.tokens
    assert len(generation.tokens) == 5


def test_a_long_prompt_does_not_stall_the_others(engine: Engine) -> None:
    short = engine.submit(Request(prompt=(1, 2), max_tokens=20, min_tokens=20))
    engine.step()
    engine.step()
    long = engine.submit(Request(prompt=prompt(190, 3), max_tokens=2))
    before = len(short.tokens)
    engine.step()
    assert len(short.tokens) == before + 1
    assert not long.tokens
    assert len(long.wait().tokens) == 2


def test_a_cancelled_request_frees_its_slot(engine: Engine) -> None:
    running = [engine.submit(Request(prompt=(i,), max_tokens=100, min_tokens=100)) for i in range(6)]
    engine.step()
    engine.step()
    assert engine.load == (4, 2)
    running[0].cancel()
    running[5].cancel()
    engine.step()
    assert engine.load == (4, 0)
    assert running[0].finished == running[5].finished == "cancelled"
    assert [event.finished for event in running[5]] == ["cancelled"]
    running[0].cancel()
    assert len(running[4].wait().tokens) == 100


def test_events_are_taken_without_a_step(engine: Engine) -> None:
    generation = engine.submit(Request(prompt=(1, 2), max_tokens=5, min_tokens=5))
    assert list(generation.take_events()) == []
    while engine.step():
        pass
    events = list(generation.take_events())
    assert [event.token for event in events] == generation.tokens
    assert events[-1].finished == "length"


def test_a_fault_on_the_way_changes_no_text(engine: Engine) -> None:
    request = Request(prompt=prompt(80, 6), max_tokens=12, min_tokens=12, seed=1)
    expected = engine.submit(request).wait().tokens
    again = engine.submit(request)

    second = Request(prompt=prompt(90, 7), max_tokens=20, min_tokens=20)
    other = engine.submit(second)
    emit = other._emit

    def faulty(event: Event) -> None:
        emit(event)
        if event.token is not None and len(again.tokens) == 5:
            raise KeyboardInterrupt

    other._emit = faulty  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        while engine.step():
            pass
    while engine.step():
        pass
    assert again.tokens == expected
    assert other.tokens == engine.submit(second).wait().tokens


def test_a_prompt_whose_step_failed_is_read_again(
    engine: Engine, case: Case, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(prompt=prompt(80, 8), max_tokens=2, min_tokens=2, seed=1, alternatives=0)

    def fail(steps: object, block: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "step", fail)
        failed = engine.submit(request)
        with pytest.raises(MemoryError):
            failed.wait()
        failed.cancel()
    assert list(engine.submit(request)) == list(Engine(case.runner(), tokenizer).submit(request))


def test_a_request_without_a_possible_token_ends_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(prompt=(1, 2), max_tokens=5, min_tokens=5)
    expected = engine.submit(request).wait().tokens
    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "step", lambda steps, block: torch.full((1, engine.vocabulary), torch.nan))
        broken = engine.submit(Request(prompt=(3,), max_tokens=5))
        with pytest.raises(DataError, match="largest logit is nan"):
            broken.wait()
    assert engine.submit(request).wait().tokens == expected
    assert broken.finished == "cancelled"
    assert engine.load == (0, 0)


def test_an_error_of_one_request_reaches_only_its_owner(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(prompt=(1, 2), max_tokens=5, min_tokens=5)
    expected = engine.submit(request).wait().tokens
    choose, steps = engine._choose, []

    def failing(generation: Generation, output: torch.Tensor, token: int | None) -> int:
        if generation is broken:
            raise DataError("the model's largest logit is nan")
        steps.append(generation)
        return choose(generation, output, token)

    monkeypatch.setattr(engine, "_choose", failing)
    good, broken = engine.submit(request), engine.submit(Request(prompt=(3,), max_tokens=5))
    assert good.wait().tokens == expected
    assert len(steps) == 5, "nothing is computed twice"
    with pytest.raises(DataError, match="largest logit is nan"):
        broken.wait()
    assert engine.load == (0, 0)


def test_a_step_does_not_look_at_every_waiting_request(engine: Engine) -> None:
    class Counted(deque[Generation]):
        looked = 0

        def __iter__(self) -> Iterator[Generation]:
            self.looked += len(self)
            return super().__iter__()

        def __contains__(self, key: object) -> bool:
            self.looked += len(self)
            return super().__contains__(key)

    engine._waiting = waiting = Counted()
    running = [engine.submit(Request(prompt=(1,), max_tokens=1)) for _ in range(40)]
    engine.cancel(*running[20:30])
    assert engine.load == (0, 30)
    while engine.step():
        pass
    assert waiting.looked == 0
    assert [generation.finished for generation in running].count("cancelled") == 10
    assert engine.load == (0, 0)


def test_minimum_length_bars_the_end_of_text(engine: Engine, tokenizer: Tokenizer) -> None:
    end = tokenizer.end_of_text
    assert end is not None
    request = Request(prompt=(1,), bias={end: 100.0}, temperature=0, max_tokens=9, min_tokens=4)
    ended = engine.submit(request).wait()
    assert ended.finished == "stop"
    assert ended.tokens.index(end) == 4
    assert "endoftext" not in ended.text


def test_beyond_the_context(engine: Engine) -> None:
    full = prompt(CONTEXT, 1)
    assert len(engine.submit(Request(prompt=full)).wait().tokens) == 1  # the last token needs no place
    with pytest.raises(UsageError, match="context"):
        engine.submit(Request(prompt=(*full, 1)))
    with pytest.raises(UsageError, match="max_tokens=51"):
        engine.submit(Request(prompt=prompt(150, 1), max_tokens=52))
    shifted = Request(prompt=prompt(300, 1), max_tokens=250, min_tokens=250, beyond_context="shift", seed=4)
    generation = engine.submit(shifted).wait()
    assert len(generation.tokens) == 250
    assert engine.submit(shifted).wait().tokens == generation.tokens


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": ()}, "no tokens"),
        ({"prompt": (1, 100_000)}, "token id 100000 at position 1"),
        ({"prompt": (1,), "stop": ("",)}, "empty"),
        ({"prompt": (1,), "max_tokens": 2, "min_tokens": 3}, "min_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(engine: Engine, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        engine.submit(Request.model_validate(wrong))
    assert engine.load == (0, 0)


@pytest.mark.parametrize("most", [None, 5])
def test_the_repair_of_too_large_a_least_length_can_be_followed(engine: Engine, most: int | None) -> None:
    request = Request(prompt=(1,), max_tokens=most, min_tokens=100_000)  # more than the context has
    with pytest.raises(UsageError, match="min_tokens 100000 is more") as caught:
        engine.submit(request)
    fewer = int(caught.value.repair.partition("min_tokens=")[2].split()[0])
    engine.submit(request.model_copy(update={"min_tokens": fewer})).cancel()


def test_streams_have_whole_characters_and_end_before_a_stop(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("naïve 강물 🌊 the end. STOP after")
    pieces = []
    stream = TextStream(tokenizer, ["STOP"])
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    assert "".join(pieces) == "naïve 강물 🌊 the end. "
    assert all("\ufffd" not in piece and "S" not in piece for piece in pieces)


def test_the_beginning_of_a_stop_text_is_written_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, ["abc", "bd"])
    pieces = [stream.push(token) for token in tokenizer.encode("xab")]
    assert "".join(pieces) + stream.finish() == "xab"
    cut = TextStream(tokenizer)
    pieces = [cut.push(token) for token in tokenizer.encode("a강")[:-1]]
    assert "".join(pieces) + cut.finish() == "a"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_what_a_row_gives_does_not_depend_on_its_neighbours(precision: Precision, tokenizer: Tokenizer) -> None:
    """The property on which equal texts rest in torch, measured on this machine."""
    network = TorchNetwork.of(make_model("gpt2-nano", tokenizer), precision)
    if not TorchRunner(network, 4).together:
        pytest.skip("this machine's products differ by row: rows are computed one by one")
    rng = np.random.default_rng(1)
    for matrix, width in matrices(network):
        x = torch.from_numpy(rng.standard_normal((8, width), dtype=np.float32))
        other = torch.cat([x[:1], 100 * x[1:]])
        assert torch.equal(matrix(x)[0], matrix(other)[0])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("runner", ["torch", "native"])
def test_texts_are_equal_at_full_width_and_on_two_threads(precision: Precision, runner: str) -> None:
    tokenizer = Tokenizer.train(["a river "], vocab_size=280, special_tokens=["<|endoftext|>"])
    model = build_model(preset("gpt2-small", layers=1, vocabulary=4_096, init_deviation=0.08), seed=1).eval()
    case = Case(model, precision, runner == "native")
    if case.native and not supported(model):
        pytest.skip("no compiler, or a processor without AVX-512: everything runs in torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        alone = [list(Engine(case.runner(), tokenizer).submit(request)) for request in requests(5)]
        crowd = Engine(case.runner(), tokenizer)
        running = [crowd.submit(request) for request in requests(5)]
        while crowd.step():
            pass
        assert [list(generation) for generation in running] == alone
    finally:
        torch.set_num_threads(before)


def test_cores_that_other_programs_use_are_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks are hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal."""
    used = tmp_path / "stat"
    monkeypatch.setattr(native_network, "_STAT", used)
    monkeypatch.setattr(native_network.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    now = {"monotonic": 100.0, "process_time": 7.0}
    for name in now:
        monkeypatch.setattr(native_network.time, name, lambda name=name: now[name])
    monkeypatch.setattr(native_network.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(native_network.os, "nice", lambda _: 0)

    def show(*cpus: str) -> None:
        used.write_text("".join(f"cpu{n} {ticks}\n" for n, ticks in enumerate(cpus)))

    def turn(seconds: float, own: float, *cpus: str) -> int | None:
        show(*cpus)
        now["monotonic"] += seconds
        now["process_time"] += own
        return cores.count()

    show("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    cores = native_network._FreeCores()
    assert cores.count() == 2
    assert turn(0.1, 0, "10 0 0 0 0 0 0 0", "10 0 0 0 0 0 0 0") == 2  # too early to tell
    assert turn(0.9, 1.3, "70 0 30 0 0 0 0 0", "100 0 0 0 0 0 0 0") == 1  # 0.7 of 2.0 were not this process's
    assert turn(1.0, 1.0, "70 0 30 100 0 0 0 0", "200 0 0 0 0 0 0 0") == 2  # all of 1.0 was its own
    assert turn(1.0, 1.0, "70 100 30 100 0 0 0 0", "300 0 0 0 0 0 0 0") == 2  # the other has low priority
    assert turn(3.0, 3.0, "370 100 30 100 0 0 0 0", "600 0 0 0 0 0 0 0") == 1  # a long step
    assert turn(19.0, 0.0, "370 100 30 100 0 0 0 0", "900 0 0 0 0 0 0 0") == 1  # not asked for a while
    assert turn(1.0, 0.0, "370 100 30 200 0 0 0 0", "900 0 0 100 0 0 0 0") == 2
    assert turn(1.0, 0.0, "470 100 30 200 0 0 0 0", "1000 0 0 100 0 0 0 0") == 1  # at least half


def test_min_tokens_is_refused_if_every_token_ends_the_text(tokenizer: Tokenizer) -> None:
    engine = Engine(open_network(make_model("gpt2-nano", tokenizer)).runner(1), tokenizer)
    every = tuple(range(tokenizer.vocabulary_size))
    with pytest.raises(UsageError, match="every token would end the text, and min_tokens is 2"):
        engine.submit(Request(prompt=(1,), stop_tokens=every, min_tokens=2))
    assert engine.submit(Request(prompt=(1,), stop_tokens=every)).wait().finished == "stop"
