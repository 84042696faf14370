"""Beam search for /v1/completions, in short jobs of the model's second thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from headwater.inference import Alternatives, Beam, BeamSearch, Event, Request
from headwater.serve.served import Served


async def beam_events(
    served: Served, requests: Sequence[tuple[Request, int]], beams: int, n: int, length_penalty: float | None
) -> AsyncIterator[tuple[int, Event]]:
    """Yield the events of each request's `n` best beams, as the engine has them: (number of the beam, event).

    requests: each with its length. One search of a model runs at a time, so that only one needs memory.
    """
    number = 0
    penalty = 1.0 if length_penalty is None else length_penalty
    for request, length in requests:
        async with served.searching:
            search = await served.compute(partial(_begin, served, request, length, beams, penalty))
            while await served.compute(search.step):
                pass
            for beam in search.best[:n]:
                for event in await served.compute(partial(_events, served, request, search, beam)):
                    yield number, event
                number += 1


def _begin(served: Served, request: Request, length: int, beams: int, penalty: float) -> BeamSearch:
    runner = served.lm.network.runner(beams)
    return BeamSearch(runner, served.tokenizer, request, beams, length_penalty=penalty, length=length)


def _events(served: Served, request: Request, search: BeamSearch, beam: Beam) -> list[Event]:
    scores: list[Alternatives] = []
    if request.alternatives is not None:
        ids = [*request.prompt, *beam.tokens]
        scores = served.scorer.alternatives([ids], request.alternatives)[0][-len(beam.tokens) :]
    return search.events(beam, scores)
