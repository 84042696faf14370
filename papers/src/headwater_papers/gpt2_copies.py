"""GPT-2, section 4: how many copies of a passage make a model know it by heart?

The paper names one text, the Gettysburg Address, with about forty copies in WebText. Here passages of held-out
text are planted in the training text as paragraphs, each as often as `copies` says, and the model reads every
paragraph once. Greedy decoding then continues the first half of each passage. The numbers of copies are rotated
over the passages from seed to seed, so that no passage is always the most frequent one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field, field_validator

from headwater import shipped
from headwater.config import Config
from headwater.corpus import Document, read_documents, split_words, texts_of, write_documents
from headwater.evaluation import Figure
from headwater.inference import load
from headwater.pretraining import PretrainConfig, pack, pretrain
from headwater.storage import Stage, open_folder
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import bands
from headwater_papers.gpt2_appendix import recited
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.paper_tables import number
from headwater_papers.scale import Scale, tokens_read, trainings
from headwater_papers.setup import describe_text
from headwater_papers.statistics import Measured, differences, over_seeds

_MODEL = "copies"
_WORDS = 20  # of the prompt, and of its continuation
_LONGEST = 60  # words of a paragraph that becomes a passage
_TOKENS = 60  # that greedy decoding writes, enough for the words
_BETWEEN = "\n\n"
_PAPER = int(number("gpt2-recitation | copies of the Gettysburg Address in WebText, about | value"))


class CopiesSettings(Config):
    """How often passages are planted, and how many passages for each number of copies."""

    copies: tuple[int, ...] = Field(default=(0, 1, 2, 4, 8, 16, 32, 64), min_length=2)
    passages: int = Field(default=4, ge=2)

    @field_validator("copies")
    @classmethod
    def _rise(cls, copies: tuple[int, ...]) -> tuple[int, ...]:
        if copies[0] < 0 or sorted(set(copies)) != list(copies):
            raise ValueError("expected different numbers of copies in rising order")
        return copies


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: a training on a planted text and its recitation, once a seed."""
    names = trainings(scale, [_MODEL])
    return {(kind, name) for name in names for kind in ("pre-training", "recitation")}


def run(laboratory: Laboratory) -> Findings:
    """Plant the passages, train, and measure how much of each the models recite."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_copies", CopiesSettings)
    recited_shares: dict[int, Measured] = {count: Measured() for count in settings.copies}
    for seed in scale.seeds:
        for count, values in _recite(laboratory, seed, settings).items():
            mean = Figure.share("", values)
            recited_shares[count].add(mean.value, mean.stderr)
    fewest, most = settings.copies[0], settings.copies[-1]
    plan = scale.models[_MODEL]
    return Findings(
        rows=[
            Row(
                f"{count} copies",
                "share of the continuation that is recited",
                values,
                examples=settings.passages,
            )
            for count, values in recited_shares.items()
        ],
        findings=[
            judge(
                CLAIMS["gpt2_copies.recites"],
                recited_shares[most].linear(1, -0.5),
                here=f"{over_seeds(recited_shares[most]).text(0, 100)} %",
                copies=most,
            ),
            judge(
                CLAIMS["gpt2_copies.rises"],
                differences(recited_shares[most], recited_shares[fewest]),
                most=most,
                fewest=fewest,
            ),
        ],
        setup=[
            *describe_text(laboratory, plan.text),
            _planted_model(laboratory),
            (
                "passages",
                f"the first {2 * _WORDS} words of paragraphs of held-out text, {settings.passages} for each "
                f"number of copies, planted at random places; the first {_WORDS} words are the prompt",
            ),
        ],
        notes=[
            f"The models read {tokens_read(scale, _MODEL):,} tokens of the text, every paragraph once. A passage "
            f"of {_PAPER} copies is a far larger share of this text than of WebText.",
        ],
        figures={
            "words-by-copies": lambda figure: bands(
                figure,
                {"recited": {count: values for count, values in recited_shares.items() if count}},
                "copies in the training text",
                "share of the continuation that is recited",
                log_x=True,
                references={f"{fewest} copies": over_seeds(recited_shares[fewest]).value},
            )
        },
    )


def choose_passages(texts: Iterable[str], count: int) -> list[tuple[str, str]]:
    """Return `count` passages of texts, evenly spaced, as prompt and continuation."""
    found = [
        words
        for text in texts
        for paragraph in text.split(_BETWEEN)
        if 2 * _WORDS <= len(words := paragraph.split()) <= _LONGEST
    ]
    chosen = [found[int(place)] for place in evenly_placed(len(found), count)]
    return [(" ".join(words[:_WORDS]), " ".join(words[_WORDS : 2 * _WORDS])) for words in chosen]


def plant(
    documents: Iterable[Document], passages: Mapping[str, int], share: float, seed: int
) -> Iterator[Document]:
    """Yield the first `share` of each document's paragraphs, with copies of the passages between them.

    passages: the number of copies of each. Every place between two paragraphs is equally probable.
    """
    taken = []
    for document in documents:
        paragraphs = document.text.split(_BETWEEN)
        taken.append((document, paragraphs[: round(len(paragraphs) * share)]))
    copies = [passage for passage, count in passages.items() for _ in range(count)]
    places = np.random.default_rng(seed).integers(0, sum(len(some) for _, some in taken), len(copies))
    before: dict[int, list[str]] = {}
    for place, passage in zip(places.tolist(), copies, strict=True):
        before.setdefault(place, []).append(passage)
    start = 0
    for document, paragraphs in taken:
        text = [part for place, own in enumerate(paragraphs, start) for part in (*before.get(place, ()), own)]
        start += len(paragraphs)
        if text:
            yield replace(document, text=_BETWEEN.join(text))


def by_copies(passages: Sequence[tuple[str, str]], copies: Sequence[int], turn: int) -> list[int]:
    """Return the number of copies of each passage; `turn` rotates them."""
    return [copies[(place + turn) % len(copies)] for place in range(len(passages))]


def _train(laboratory: Laboratory, seed: int, passages: Mapping[str, int]) -> Path:
    """Return the run of a model that reads a planted text once."""
    plan = laboratory.scale.models[_MODEL]
    train, _ = laboratory.corpus(plan.text)
    tokens, _ = laboratory.tokens(plan.text)
    packed = open_folder(tokens, "tokens").config["counts"]["train"]["tokens"]
    share = min(1.0, tokens_read(laboratory.scale, _MODEL) / packed)
    config = {"passages": dict(passages), "share": share, "seed": seed}
    corpus = laboratory.place(f"corpus-planted-{seed}", config, {"corpus": train})
    stage = Stage(corpus, kind="corpus", config=config, inputs={"corpus": train})
    if not stage.is_complete():
        with stage.write() as work:
            planted = plant(read_documents(train), passages, share, seed)
            labels = dict.fromkeys(label for document in read_documents(train) for label in document.labels)
            write_documents(planted, work, list(labels))
    recipe = PretrainConfig.build(plan.recipe, {"seed": seed, "epochs": 1.0}, source=f"models.{_MODEL}.recipe")
    base = {"model": shipped.resolve(recipe.init_from)} if recipe.init_from else {}
    tokenizer = base.get("model", tokens / "tokenizer")
    planted_tokens = laboratory.place(
        f"tokens-planted-{seed}", {}, {"corpus": corpus, "tokenizer": tokens / "tokenizer"} | base
    )
    pack(corpus, tokenizer, planted_tokens, laboratory.scale.texts[plan.text].validation)
    out = laboratory.place(f"run-{_MODEL}-{seed}", recipe.to_dict(), {"tokens": planted_tokens} | base)
    recipe = recipe.model_copy(update={"device": laboratory.device})
    with laboratory.piece("pre-training", f"{_MODEL}, seed {seed}", out):
        pretrain(recipe, planted_tokens, out, progress=laboratory.progress)
    return out


def _recite(laboratory: Laboratory, seed: int, settings: CopiesSettings) -> dict[int, list[float]]:
    """Return by number of copies the share of each passage's continuation that a model recites, from its start."""
    _, held_out = laboratory.corpus(laboratory.scale.models[_MODEL].text)
    passages = choose_passages(texts_of(held_out), settings.passages * len(settings.copies))
    copies = by_copies(passages, settings.copies, seed - 1)
    texts = [" ".join(passage) for passage in passages]
    run_folder = _train(laboratory, seed, dict(zip(texts, copies, strict=True)))

    def counted() -> list[int]:
        lm = load(run_folder / "model", device=laboratory.device)
        return [recited(lm, begin, rest, _TOKENS)[0] for begin, rest in passages]

    words = laboratory.measured(
        f"recitation-{seed}",
        "words.json",
        counted,
        kind="recitation",
        name=f"{_MODEL}, seed {seed}",
        config={"words": _WORDS, "tokens": _TOKENS},
        inputs={"model": run_folder / "model", "held out": held_out},
    )
    found: dict[int, list[float]] = {count: [] for count in settings.copies}
    for count, (_, rest), value in zip(copies, passages, words, strict=True):
        found[count].append(value / len(split_words(rest)))
    return found


def _planted_model(laboratory: Laboratory) -> tuple[str, str]:
    plan = laboratory.scale.models[_MODEL]
    recipe = PretrainConfig.build(plan.recipe)
    shape = recipe.architecture
    return (
        f"model {_MODEL}",
        f"{f'{recipe.init_from}, continued with its own tokenizer; ' if recipe.init_from else ''}"
        f"{shape.layers} layers of {shape.width}, {shape.heads} heads, context {recipe.window}; one pass, about "
        f"{recipe.steps:,} updates of {recipe.batch_size} sequences, rate {recipe.learning_rate:g}; seeds "
        f"{', '.join(map(str, laboratory.scale.seeds))}",
    )


COPIES = Experiment(
    name="gpt2_copies",
    title="How many copies make a text known by heart",
    paper="GPT-2",
    section="4",
    claim="A text that the training text repeats often enough is recited.",
    models=(_MODEL,),
    settings=CopiesSettings,
    pieces=pieces,
    run=run,
    paper_tables=("gpt2-recitation",),
)
