"""The set-up of a reproduction in the reader's words: which text, which model, how it was trained."""

from __future__ import annotations

from headwater.corpus.folder import measure
from headwater.model import build_model
from headwater.model.folder import load_config
from headwater.pretrain import PretrainConfig
from headwater.provenance import open_folder
from headwater.reproduce.labelled import describe_rows
from headwater.reproduce.laboratory import Laboratory

Lines = list[tuple[str, str]]
_NAMED = 3  # sources that are named


def describe_text(laboratory: Laboratory, name: str) -> Lines:
    """The scale, the training text, the tokenizer, and what is held out."""
    plan = laboratory.scale.texts[name]
    train, held_out = laboratory.corpus(name)
    packed, _ = laboratory.tokens(name)
    sizes = measure(train), measure(held_out)
    counts = open_folder(packed, "tokens").config["counts"]["train"]
    files = [source.rsplit("/", 1)[-1] for source in plan.sources]
    sources = ", ".join(files[:_NAMED]) + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")
    return [
        ("scale", f"{laboratory.scale.name}: {laboratory.scale.about}"),
        (
            "text",
            f"{sources}, recipe {plan.recipe}: {sizes[0].documents:,} documents, {sizes[0].bytes / 1e6:.1f} MB, "
            f"{counts['tokens']:,} tokens to train on",
        ),
        (
            "held out",
            f"{sizes[1].documents:,} whole documents, {sizes[1].bytes / 1e6:.1f} MB, that no model reads",
        ),
        ("tokenizer", f"kind {plan.tokenizer}, {plan.vocabulary:,} entries, learned from the training text"),
    ]


def describe_model(laboratory: Laboratory, name: str) -> tuple[str, str]:
    """A model of the scale: its shape, its parameters, what it read."""
    plan = laboratory.scale.models[name]
    recipe = PretrainConfig.build(plan.recipe)
    shape = load_config(laboratory.model(name, laboratory.scale.seeds[0]))
    parameters = sum(p.numel() for p in build_model(shape, device="meta").parameters())
    form = f"{shape.layers} layers of {shape.width}, {shape.heads} heads"
    if shape.architecture == "lstm":
        form = f"{shape.layers} LSTM layer of {shape.units} units, embeddings of {shape.width}"
    tokens = recipe.steps * recipe.batch_size * recipe.window
    seeds = ", ".join(map(str, laboratory.scale.seeds))
    return (
        f"model {name}",
        f"{form}, context {recipe.window}, {parameters:,} parameters; {recipe.steps:,} updates of "
        f"{recipe.batch_size} sequences, {tokens:,} tokens, rate {recipe.learning_rate:g}; seeds {seeds}",
    )


def describe_fine_tuning(laboratory: Laboratory) -> Lines:
    """How models are fine-tuned, and on how many rows of which sets."""
    plan = laboratory.scale.labelled
    recipe = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in plan.recipe.items())
    rows = "; ".join(f"{name}: {describe_rows(taken)}" for name, taken in plan.sets.items())
    return [("fine-tuning", recipe or "as the paper"), ("rows", rows)]
