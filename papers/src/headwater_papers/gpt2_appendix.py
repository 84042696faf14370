"""GPT-2, appendix A: one context continued several times (table 12), one prompt (table 13), one known text.

The paper's memorisation probe begins the Gettysburg Address, of which WebText has some forty copies, and continues
greedily. Copies are counted only for a model that the scale trains, in that model's own text: the text of another
model is not here. How many copies make a text known by heart is measured by `gpt2_copies`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.corpus import split_words, texts_of
from headwater.inference import LanguageModel, load
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.gpt2_ladder import PREFIX, TOP_K, rungs
from headwater_papers.gpt2_samples import as_line
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import number
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe

_BASE = "writer"
SIX, TEN = 6, 10  # samples of tables 12 and 13
# The prompt of table 13.
UNICORNS = (
    "In a shocking finding, scientist discovered a herd of unicorns living in a remote, previously unexplored "
    "valley, in the Andes Mountains. Even more surprising to the researchers was the fact that the unicorns "
    "spoke perfect English."
)
# Lincoln's address of 1863, Bliss copy: a sentence and a half, and what follows.
BEGINNING = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in "
    "Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a great "
    "civil war,"
)
REST = (
    "testing whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on "
    "a great battle-field of that war. We have come to dedicate a portion of that field, as a final resting "
    "place for those who here gave their lives that that nation might live. It is altogether fitting and "
    "proper that we should do this."
)
ADDRESS = "Gettysburg Address"
_SHOWN = 120  # characters of what the probe writes
# The context of table 12 for a model whose training text is not known here: written for this experiment.
OWN_CONTEXT = (
    "Nobody had told the lamplighter's daughter that the ferry no longer ran on Tuesdays. She waited on the jetty "
    "with a basket of quinces and a clock wrapped in a blanket, and counted the herons on the other bank. At noon "
    "a boy came down the steps. He had a key in one hand and, in the other, a letter that was addressed to her "
    "grandfather, who had been dead for eleven years. He asked her whether she could read. She said that this "
    "depended on who had written it. Then she looked at the hand, put the basket down, and"
)


class AppendixSettings(Config):
    """The model that writes, and the tokens of table 12."""

    base: str = ""
    """A model folder, or the name of a model that ships; by default the scale's largest GPT-2, first seed."""
    context: int = Field(
        default=int(number("gpt2-appendix | table 12, six samples of one context | tokens of context"))
    )
    length: int = Field(
        default=int(number("gpt2-appendix | table 12, six samples of one context | tokens of the sample"))
    )


def _settings(scale: Scale) -> AppendixSettings:
    return scale.settings("gpt2_appendix", AppendixSettings)


def arranged(scale: Scale) -> Scale:
    """Return the scale with the model of its settings, if any."""
    base = _settings(scale).base
    return scale.with_base(_BASE, base) if base else scale


def _writer(scale: Scale) -> str:
    return _BASE if _BASE in scale.models else rungs(scale)[-1]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the model, unless it exists, and what it writes."""
    writer = _writer(scale)
    trained = set() if scale.models[writer].model else {("pre-training", trainings(scale, [writer])[0])}
    return trained | {("writing", "appendix A")}


def run(laboratory: Laboratory) -> Findings:
    """Let the model write, and count what it recites."""
    scale = laboratory.scale
    settings, writer = _settings(scale), _writer(scale)
    model = laboratory.model(writer, scale.seeds[0])
    text = scale.models[writer].text  # "" for a model that exists already
    train, held_out = laboratory.corpus(text) if text else (None, None)

    def measure() -> dict[str, Any]:
        lm = load(model, device=laboratory.device)
        options: dict[str, Any] = {"max_tokens": settings.length, "top_k": TOP_K, "beyond_context": "shift"}
        context = OWN_CONTEXT
        if held_out is not None:
            ids = lm.tokenizer.encode(next(iter(texts_of(held_out))))
            context = lm.tokenizer.decode(ids[len(ids) // 2 :][: settings.context])
        return {
            "context": context,
            "six": [lm.generate(context, seed=seed, **options) for seed in range(SIX)],
            "ten": [lm.generate(UNICORNS, seed=seed, **options) for seed in range(TEN)],
            "recited": recited(lm, BEGINNING, REST, settings.length),
            "copies": None if train is None else copies(BEGINNING, texts_of(train)),
        }

    corpora = {} if train is None or held_out is None else {"train": train, "held out": held_out}
    written = laboratory.measured(
        "appendix",
        "written.json",
        measure,
        kind="writing",
        name="appendix A",
        config={"context": settings.context, "length": settings.length, "top_k": TOP_K},
        inputs={"model": model, **corpora},
    )
    words, probe = written["recited"]
    published = number("gpt2-recitation | copies of the Gettysburg Address in WebText, about | value")
    rows = [] if train is None else [Row(ADDRESS, "copies in the training text", [written["copies"]], published)]
    note = f"it writes: {as_line(probe)[:_SHOWN]}"
    rows.append(Row(ADDRESS, "words that greedy decoding recites", [words], note=note))
    where = (
        "a text that was written for this experiment"
        if train is None
        else f"{settings.context} tokens from the middle of a held-out book"
    )
    shown = [f"Table 12, the context: *{as_line(written['context'])}*"]
    shown += [f"Table 12, sample {n}: {as_line(text)}" for n, text in enumerate(written["six"], start=1)]
    shown += [f"Table 13, the prompt: *{UNICORNS}*"]
    shown += [f"Table 13, sample {n} of {TEN}: {as_line(text)}" for n, text in enumerate(written["ten"], start=1)]
    return Findings(
        rows=rows,
        findings=[],
        setup=[
            *describe(laboratory, [writer]),
            (
                "samples",
                f"{settings.length} tokens, drawn from the {TOP_K} most probable; table 12 after {where}. The "
                "paper prints the best of ten for table 13; here are all. The probe is greedy, and one run of one "
                "model: no claim rests on it",
            ),
        ],
        notes=shown,
    )


def recited(lm: LanguageModel, begin: str, rest: str, length: int) -> tuple[int, str]:
    """Return how many words of `rest` greedy decoding writes after `begin`, and all that it writes."""
    text = lm.generate(begin, max_tokens=length, temperature=0.0, beyond_context="shift")
    pairs = zip(split_words(text), split_words(rest), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)), text


def copies(beginning: str, texts: Iterable[str]) -> int:
    """Return how often a beginning occurs in the texts, whatever the white space."""
    wanted = " ".join(beginning.split())
    return sum(" ".join(text.split()).count(wanted) for text in texts)


APPENDIX = Experiment(
    name="gpt2_appendix",
    title="Samples of one context, and a text known by heart",
    paper="GPT-2",
    section="8 (appendix A, tables 12 and 13, the Gettysburg Address)",
    claim="Sampling gives varied continuations of one context; greedy decoding shows whether a text is known by "
    "heart.",
    models=(PREFIX,),
    any_base=True,
    settings=AppendixSettings,
    arranged=arranged,
    pieces=pieces,
    run=run,
    paper_tables=("gpt2-appendix", "gpt2-recitation"),
)
