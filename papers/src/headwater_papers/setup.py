"""The set-up of a reproduction in words: the text, the models, and their training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from headwater.corpus import statistics
from headwater.display import counted
from headwater.finetuning import FinetuneConfig
from headwater.model import load_config
from headwater.pretraining import PretrainConfig
from headwater.storage import open_folder
from headwater_papers.labelled import FULL, VARIANTS, describe_rows
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Cost, Rows, Scale, shape_of, tokens_read, training_flops
from headwater_papers.task_sets import BY_NAME

Lines = list[tuple[str, str]]
_NAMED = 3  # sources that are listed
_FINE_TUNING = "fine-tuning on "
_SEQUENCES = {"similarity": 2, "choice": 4}  # the most that an example has; 1 for other tasks


def describe(laboratory: Laboratory, models: Sequence[str], *, fine_tuned: bool = False) -> Lines:
    """Return lines about the text of some models, each model, and with `fine_tuned` their fine-tuning."""
    texts = [text for model in models if (text := laboratory.scale.models[model].text)]
    lines = describe_text(laboratory, texts[0]) if texts else [_describe_scale(laboratory.scale)]
    lines += [describe_model(laboratory, model) for model in models]
    if fine_tuned:
        sets = laboratory.scale.labelled.sets
        rows = "; ".join(f"{name}: {describe_rows(taken)}" for name, taken in sets.items())
        lines += [describe_recipe(laboratory.scale), ("rows", rows)]
    return lines


def describe_recipe(scale: Scale) -> tuple[str, str]:
    """Return the keys of fine-tuning that the scale sets."""
    keys = (f"{key.replace('_', ' ')} {value}" for key, value in scale.labelled.recipe.items())
    return "fine-tuning", ", ".join(keys) or "as the paper"


def training_notes(scale: Scale, models: Sequence[str]) -> list[str]:
    """Return notes on what differs between the seeds of a model, and between the training texts of the models."""
    read, notes = {}, []
    for name in models:
        plan = scale.models[name]
        if plan.model:
            read[name] = f"what {plan.model} read"
            notes.append(
                f"{name} is {plan.model} for every seed: seeds change only head, order of rows and dropout. "
                "Intervals do not include the spread over pre-trainings."
            )
        else:
            read[name] = f"{tokens_read(scale, name):,} tokens of {plan.text}"
            notes.append(f"Each seed pre-trains its own {name}; intervals include the spread over pre-trainings.")
    if len(set(read.values())) > 1:
        listed = ", ".join(f"{name} {what}" for name, what in read.items())
        notes.append(
            f"These models did not train on equal text and tokens, and comparisons include that: {listed}."
        )
    return notes


def parameters(laboratory: Laboratory, name: str) -> int:
    """Return the parameters of a model of the scale, embeddings included."""
    return load_config(laboratory.model(name, laboratory.scale.seeds[0])).parameter_count


def describe_text(laboratory: Laboratory, name: str) -> Lines:
    """Return the scale, the training text, the held-out text and the tokenizer."""
    plan = laboratory.scale.texts[name]
    train, held_out = laboratory.corpus(name)
    packed, _ = laboratory.tokens(name)
    sizes = statistics(train), statistics(held_out)
    counts = open_folder(packed, "tokens").config["counts"]["train"]
    files = [source.rsplit("/", 1)[-1] for source in plan.sources]
    sources = ", ".join(files[:_NAMED]) + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")
    return [
        _describe_scale(laboratory.scale),
        (
            "text",
            f"{sources}, recipe {plan.recipe}: {sizes[0]['documents']:,} documents, "
            f"{sizes[0]['bytes'] / 1e6:.1f} MB, {counts['tokens']:,} tokens to train on",
        ),
        (
            "held out",
            f"{sizes[1]['documents']:,} whole documents, {sizes[1]['bytes'] / 1e6:.1f} MB, that no model reads",
        ),
        ("tokenizer", f"kind {plan.tokenizer}, {plan.vocabulary:,} entries, learned from the training text"),
    ]


def _describe_scale(scale: Scale) -> tuple[str, str]:
    return "scale", f"{scale.name}: {scale.about}"


def describe_model(laboratory: Laboratory, name: str) -> tuple[str, str]:
    """Return a model's shape, parameters and training."""
    plan = laboratory.scale.models[name]
    shape = load_config(laboratory.model(name, laboratory.scale.seeds[0]))
    form = f"{counted(shape.layers, 'layer')} of {shape.width}, {counted(shape.heads, 'head')}"
    if shape.is_recurrent:
        ways = " in each direction" if shape.architecture == "bilstm" else ""
        form = f"{counted(shape.layers, 'LSTM layer')}{ways} of {shape.units} units, embeddings of {shape.width}"
    form += f", {shape.parameter_count:,} parameters"
    if plan.model:
        return f"model {name}", f"{plan.model}: {form}, context {shape.context}; not pre-trained here"
    recipe = PretrainConfig.build(plan.recipe)
    seeds = ", ".join(map(str, laboratory.scale.seeds))
    return (
        f"model {name}",
        f"{form}, context {recipe.window}; {recipe.steps:,} updates of {recipe.batch_size} sequences, "
        f"{tokens_read(laboratory.scale, name):,} tokens, rate {recipe.learning_rate:g}; seeds {seeds}",
    )


def describe_work(scale: Scale, pieces: Iterable[tuple[str, str]], pretraining: Cost) -> str:
    """Return the number of pieces of work of each kind, and the cost of fine-tuning relative to pre-training.

    The cost of fine-tuning is an upper bound, with every text as long as the context. Sets without a limit on
    their rows are listed and not counted.
    """
    kinds = Counter("fine-tuning" if kind.startswith(_FINE_TUNING) else kind for kind, _ in pieces)
    work = "; ".join(f"{kind}: {number:,}" for kind, number in sorted(kinds.items()))
    models = {variant.name: variant.model for variant in VARIANTS}
    tuned = [(kind.removeprefix(_FINE_TUNING), name) for kind, name in pieces if kind.startswith(_FINE_TUNING)]
    settings = FinetuneConfig.build({"task": "classify"}, scale.labelled.recipe)
    flops, whole = 0.0, set()
    for benchmark, name in tuned:
        rows = scale.labelled.sets.get(benchmark, Rows(train=1)).train
        if rows is None:
            whole.add(benchmark)
            continue
        shape = shape_of(scale, models.get(name.partition(",")[0], FULL.model))
        epochs = settings.epochs_for(rows)
        sequences = rows * epochs * _SEQUENCES.get(BY_NAME[benchmark].task, 1)
        flops += sequences * shape.context * training_flops(shape)
    if not tuned:
        return f"the work: {work}"
    cost = f"{flops:.1e} floating-point operations"
    if pretraining.flops:
        cost = f"{flops / pretraining.flops:.1f} times what pre-training takes"
    text = f"the work: {work}; fine-tuning takes at most {cost}"
    return f"{text}, without {', '.join(sorted(whole))}, of which all rows are used" if whole else text
