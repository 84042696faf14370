"""All stages, from local text to a trained model and a report.

Every stage is the function of a command and writes its own folder in `out`. This module makes only the choices
between them, such as the size of the model for the given time. Complete folders are kept, so that an interrupted
quickstart resumes.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.config import read_toml, recipe_files
from headwater.corpus import BuildConfig, build_corpus, read_documents, split
from headwater.device import choose_device
from headwater.display import byte_size
from headwater.errors import DataError, FolderError, HeadwaterError, UsageError, resumable
from headwater.evaluation import EvaluateConfig, evaluate
from headwater.finetuning import FinetuneConfig, finetune
from headwater.model import load_config
from headwater.pretraining import MINIMUM_TOKENS, PretrainConfig, pack, pretrain, seconds_per_update
from headwater.quickstart.labels import make_labels
from headwater.quickstart.samples import write_samples
from headwater.reading import read_json
from headwater.report import measured_lines, report
from headwater.storage import (
    INTERACTIVE,
    QUICKSTART,
    QUICKSTART_REPORT,
    Progress,
    has_manifest,
    open_folder,
    read_manifest,
    write_json,
)
from headwater.tokenizer import Tokenizer, train_tokenizer

BUILT_IN = "python-docs"
VALIDATION = 0.05
# A tokenizer that splits a text into its words needs fewer tokens: English has 3 bytes per token or more.
BYTES_A_TOKEN = 2.0
CONTINUE_BYTES = 20_000_000  # of a corpus that is large enough for a model from scratch
SHOWN = 4_000  # characters of a document that tell its language
MINUTES = 60 * 24 * 365  # for longer training there is `headwater pretrain`
# Candidates, smallest first, and the fewest tokens for each weight of the blocks: with fewer, a larger model is
# worse than a smaller one after the same time. (In 350 seconds of one core gpt2-nano read 5 tokens per weight and
# reached a held-out loss of 3.12; in 255 gpt2-pico read 27 and reached 3.07.)
LADDER = ("gpt2-pico", "gpt2-nano", "gpt2-micro", "gpt2-mini", "gpt2-midi")
TOKENS_A_WEIGHT = 10.0
# Bytes of text for each vocabulary entry: a small text does not fill a large vocabulary.
BYTES_AN_ENTRY = 500
VOCABULARY = (512, 4_096)
# The share of the minutes for fine-tuning, which is on classification alone: multiple choice stayed at chance with
# an eighth of four minutes.
FINETUNE_SHARE = 1 / 10
BATCH = 16  # sequences of an update, examples of one of fine-tuning
# For each measurement of the held-out loss: ten measurements on 256 windows cost as much as 53 updates.
VALIDATION_WINDOWS = 64
# Of the recipe of the chosen size; time and text decide the rest.
RECIPE_KEYS = ("preset", "optimizer", "learning_rate")
# Limits of the other stages for each minute of pre-training, so that together they take about as long: bytes of
# python-docs to gather, which the yardsticks learn from too (gpt2-pico reads about 10 MB per minute on two cores;
# xz takes 2 seconds per megabyte), and examples of each protocol.
TEXT_BYTES = 5_000_000
SCORED = 50
SAMPLE_PROMPTS = 4
# All stages together take about so many minutes for each minute of pre-training, and so many more: with one, 199
# seconds on two cores.
WHOLE = (2.0, 1.5)
PROMPT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Quickstart:
    """The paths of the results, a prompt, and the figures."""

    out: Path
    model: Path
    report: Path
    prompt: str
    figures: dict[str, Any]


@resumable()
def quickstart(
    out: Path,
    *,
    minutes: float = 4.0,
    text: Sequence[Path] = (),
    text_field: str = "text",
    encoding: str = "",
    seed: int = 1,
    device: str = "auto",
    progress: Progress = INTERACTIVE,
) -> Quickstart:
    """Run all stages in `out`; `minutes` is the time of pre-training.

    text: the user's own files. text_field: the field of their rows with the text. encoding: theirs, if it is not
    clear. device: of every stage with a model, as in `headwater.load`. The minutes also limit what the other
    stages read (TEXT_BYTES, SCORED).

    Raises UsageError if minutes are not positive and finite or the device cannot be used, DataError for text that
    cannot be used, FolderError if `out` has a quickstart of another seed, text or number of minutes.
    """
    choose_device(device)  # its error comes first
    for path in text:
        if not path.exists() and str(path) != BUILT_IN:
            raise DataError(
                f"{path} does not exist", expected="a file or a folder with text", repair="Check the path"
            )
    if not 0 < minutes <= MINUTES:
        why = "needs an end" if minutes > 0 else "leaves no time to train"
        raise UsageError(f"--minutes {minutes:g} {why}", expected=f"a number above 0, at most {MINUTES:,}")
    settings = {"minutes": minutes, "seed": seed}
    _require_own(out, settings)
    corpus, tokens, run = (out / name for name in ("corpus", "tokens", "run"))
    gathered = None if text else math.ceil(minutes * TEXT_BYTES)
    rules = BuildConfig.build({"text_field": text_field, "encoding": encoding, "python_docs_bytes": gathered})
    size, initial = _gather(out, settings, text, rules, progress)
    tokenizer, ladder = _candidates(initial, corpus, out / "tokenizer", size, progress)
    _pack(corpus, size, tokenizer, initial, tokens, progress)
    recipe = choose_recipe(ladder, tokens, run, minutes, seed, device, progress)
    model = pretrain(recipe, tokens, run, progress=progress)
    prompts = choose_prompts(corpus)
    write_samples(model, prompts, out / "samples", seed=seed, device=device, progress=progress)
    results = evaluate(
        model,
        ["heldout"],
        [tokens],
        out / "zero-shot",
        config=EvaluateConfig(yardstick_bytes=math.ceil(minutes * TEXT_BYTES)),
        limit=math.ceil(minutes * SCORED),
        device=device,
        progress=progress,
    )
    shown = [corpus, *([tokenizer] if initial is None else []), tokens, run, out / "samples", out / "zero-shot"]
    tuned: dict[str, Any] = {}
    rows = out / "labels" / "source"
    try:
        make_labels(corpus, rows, VALIDATION, seed=seed, progress=progress)
    except DataError as error:
        progress.note(f"fine-tuning is left out: {error.seen}")
    else:
        folder = out / "fine-tuned" / "source"
        config = choose_finetuning(rows, run, tokens, 60 * minutes * FINETUNE_SHARE, seed).with_keys(device=device)
        files = {"train": rows / "train.jsonl", "validation": rows / "validation.jsonl"}
        metrics = finetune(config, folder, model=model, **files, progress=progress)
        tuned = {key: metrics[key] for key in ("accuracy", "chance", "majority")}
        shown.append(folder)
    page = out / QUICKSTART_REPORT
    report(shown, page, progress=progress)
    figures = {"results": results.to_dict()["results"], "fine-tuned": tuned}
    return Quickstart(out, model, page, prompts[0], figures)


def _gather(
    out: Path, settings: dict[str, float], text: Sequence[Path], rules: BuildConfig, progress: Progress
) -> tuple[int, str | None]:
    """Gather the corpus in `out`; return its bytes and the shipped model to continue from."""
    corpus, is_new, minutes = out / "corpus", not (out / QUICKSTART).exists(), settings["minutes"]
    if is_new:
        progress.note(
            f"this takes about {WHOLE[0] * minutes + WHOLE[1]:.0f} minutes, {_time(minutes)} of them for "
            "pre-training; if it is interrupted, the same command resumes it"
        )
    existed = out.exists()
    try:
        build_corpus([*text] or [BUILT_IN], corpus, rules, progress=progress)
    except HeadwaterError:
        with suppress(OSError):  # it is not empty
            if not existed:
                out.rmdir()
        raise
    if is_new:
        write_json(out / QUICKSTART, settings)
    size = sum(len(document.text.encode()) for _, document in split(corpus, VALIDATION))
    initial = choose_start(corpus, size) if text else None
    if initial is not None:
        progress.note(f"{size / 1e6:.1f} MB of text: training continues from the shipped {initial}")
    return size, initial


def _candidates(
    initial: str | None, corpus: Path, out: Path, size: int, progress: Progress
) -> tuple[Path, list[PretrainConfig]]:
    """Return a tokenizer and recipes, smallest model first: those of the shipped model `initial`, or new ones.

    A new tokenizer is learned from the corpus of `size` bytes and written to `out`.
    """
    if initial is not None:
        return shipped.resolve(initial), [PretrainConfig(init_from=initial)]
    entries = max(VOCABULARY[0], min(VOCABULARY[1], size // BYTES_AN_ENTRY))
    train_tokenizer([corpus], out, vocab_size=entries, progress=progress)
    files = recipe_files()
    recipes = [read_toml(files[name]) for name in LADDER]
    return out, [PretrainConfig.build({key: recipe[key] for key in RECIPE_KEYS}) for recipe in recipes]


def _pack(corpus: Path, size: int, tokenizer: Path, initial: str | None, out: Path, progress: Progress) -> None:
    """Pack the corpus of `size` bytes; raise DataError, which says how much text is needed, if it is too short."""
    window = 0 if initial is None else load_config(tokenizer).context
    minimum = max(MINIMUM_TOKENS, window + 1)
    try:
        pack(corpus, tokenizer, out, VALIDATION, minimum=minimum, progress=progress)
    except DataError as error:
        encoder = Tokenizer.load(tokenizer)
        tokens = sum(len(encoder.encode(document.text)) for document in read_documents(corpus))
        if tokens * VALIDATION > 2 * minimum:
            raise
        needed = 2 * minimum / VALIDATION * size / max(1, tokens)
        raise DataError(
            f"{corpus} is too short: {byte_size(size)}, {tokens:,} tokens",
            expected=f"about {byte_size(needed)}",
            repair="Gather more text",
        ) from error


def _require_own(out: Path, settings: dict[str, float]) -> None:
    """Raise FolderError if `out` is a file, or has a quickstart of other minutes or of another seed."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file", expected="a folder to write", repair="Choose another --out")
    before = read_json(out / QUICKSTART) if (out / QUICKSTART).exists() else settings
    for key, value in settings.items():
        if before[key] != value:
            named = out if out.name else out.resolve()  # "." has no name
            other = shlex.quote(str(named.with_name(f"{named.name}-{key}-{value:g}")))
            raise FolderError(
                f"{out} has a quickstart of {key} {before[key]:g}, not {value:g}",
                repair=f"Choose another folder: --out {other}",
            )


def _time(minutes: float) -> str:
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def choose_start(corpus: Path, size: int) -> str | None:
    """Return the shipped model to continue from, whose tokenizer needs the fewest tokens for the text.

    None for a corpus that gets a model from scratch: a large one, or one that the tokenizer does not split into
    words, is better served by a model and a tokenizer of its own; a small text is not enough to learn a language.
    None also if a local folder has the name of the shipped model.
    """
    if size > CONTINUE_BYTES:
        return None
    text = ""
    for document in read_documents(corpus):
        text += document.text[:SHOWN]
        if len(text) > 16 * SHOWN:
            break
    sizes = {
        name: len(Tokenizer.load(shipped.folder_of(name)).encode(text))
        for name in shipped.STARTS
        if name in shipped.names()
    }
    name = min(sizes, key=lambda name: sizes[name], default=None)
    if name is None or len(text.encode()) <= BYTES_A_TOKEN * sizes[name]:
        return None
    return None if shipped.is_shadowed(name) else name


def choose_recipe(
    ladder: Sequence[PretrainConfig],
    tokens: Path,
    run: Path,
    minutes: float,
    seed: int,
    device: str,
    progress: Progress,
) -> PretrainConfig:
    """Return the recipe of the largest model that reads enough tokens in the minutes, as measured on the device.

    A run that was started keeps its recipe, on any device.
    """
    recipe_file = run / "config.toml"
    if recipe_file.exists():
        return PretrainConfig.load(recipe_file, {"device": device})
    if has_manifest(run):  # the first file of a run
        begun = read_manifest(run).config
        return PretrainConfig.build(begun, {"init_from": ladder[0].init_from, "device": device})
    progress.start("choosing a size")
    chosen, steps = ladder[0], 0
    for recipe in ladder:
        recipe = recipe.model_copy(update={"batch_size": BATCH, "steps": 100, "seed": seed, "device": device})
        update = seconds_per_update(recipe.model_copy(update={"compile": "off"}), tokens)
        possible = max(20, int(60 * minutes / update))
        shape = recipe.architecture
        weights = 12 * shape.layers * shape.width**2
        if steps and possible * BATCH * recipe.window < TOKENS_A_WEIGHT * weights:
            break
        chosen, steps = recipe, possible
    progress.finish(f"{chosen.init_from or chosen.preset}, {steps:,} updates in {_time(minutes)}")
    return chosen.model_copy(
        update={
            "steps": steps,
            "warmup_steps": max(1, steps // 15),
            "validate_every": max(1, steps // 10),
            "validation_windows": VALIDATION_WINDOWS,
            "checkpoint_every": max(1, steps // 10),
        }
    )


def choose_prompts(corpus: Path) -> list[str]:
    """Return evenly spaced beginnings of held-out documents; of few documents, of the paragraphs of each."""
    held_out = [document.text for part, document in split(corpus, VALIDATION) if part == "validation"]
    groups = [held_out]
    if len(held_out) < SAMPLE_PROMPTS:
        groups = [list(filter(str.strip, text.split("\n\n")[1:])) or [text] for text in held_out]
    each, chosen = math.ceil(SAMPLE_PROMPTS / len(groups)), []
    for texts in groups:
        beginnings = list(dict.fromkeys(filter(None, map(_beginning, texts))))
        chosen.append(beginnings[:: max(1, len(beginnings) // each)][:each])
    prompts = filter(None, chain.from_iterable(zip_longest(*chosen)))
    return list(dict.fromkeys(prompts))[:SAMPLE_PROMPTS]


def _beginning(text: str) -> str:
    """Return the first words of a text, cut between words if possible."""
    start = text.strip()[: PROMPT_CHARACTERS + 1]
    if len(start) > PROMPT_CHARACTERS:
        start = start.rsplit(None, 1)[0][:PROMPT_CHARACTERS]
    return start


def choose_finetuning(labels: Path, run: Path, tokens: Path, seconds: float, seed: int) -> FinetuneConfig:
    """Return a configuration with at most 3 epochs and as many updates as fit the seconds at pre-training's speed.

    No more rows are read, for training and for measuring, than the updates use.
    """
    speed = statistics.median(line["tokens_per_second"] for line in measured_lines(run))
    counts = open_folder(tokens, "tokens").config["counts"]["train"]
    tokens_a_byte = counts["tokens"] / counts["bytes"]
    examples = (labels / "train.jsonl").read_bytes()
    count = examples.count(b"\n")
    tokens_an_example = max(1.0, len(examples) / count * tokens_a_byte)
    possible = int(seconds * speed / (tokens_an_example * BATCH))
    steps = max(10, min(possible, 3 * count // BATCH))
    return FinetuneConfig().with_keys(
        recipe="auto",
        steps=steps,
        validate_every=steps,  # once: three measurements on all held-out rows can cost more than the updates
        limit=steps * BATCH,
        batch_size=BATCH,
        seed=seed,
    )
