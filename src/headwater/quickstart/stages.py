"""The stages as functions: `hw.build_corpus`, `hw.train_tokenizer`, `hw.pretrain`, `hw.evaluate`.

Each writes one folder, as the command of the same name does. Called again, it returns the complete folder.
`settings` takes any configuration key, nested as in TOML; `verbose` prints the progress on stderr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater import shipped
from headwater.config import read_recipe
from headwater.corpus import build_corpus as write_corpus
from headwater.corpus import load_recipe
from headwater.evaluation import EvaluateConfig, Results
from headwater.evaluation import evaluate as run_evaluation
from headwater.pretraining import PretrainConfig, require_one_model
from headwater.pretraining import pretrain as run_pretraining
from headwater.storage import SILENT, PlainProgress, Progress
from headwater.tokenizer import Kind, Tokenizer
from headwater.tokenizer import train_tokenizer as run_tokenizer
from headwater.training import OnUpdate

Paths = str | Path | Sequence[str | Path]


def build_corpus(
    sources: Paths,
    out: str | Path,
    *,
    recipe: str = "plain",
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> Path:
    """Gather files, folders or built-in sources into the corpus folder `out`; return it.

    recipe: a name that `headwater corpus build --help` lists, or a TOML file. workers: the number of processes.
    Raises DataError for a source without usable text, UsageError for an unknown recipe or key.
    """
    write_corpus(
        _listed(sources), out, load_recipe(recipe, settings), workers=workers, progress=_progress(verbose)
    )
    return Path(out)


def train_tokenizer(
    sources: Paths,
    out: str | Path,
    *,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    verbose: bool = False,
) -> Tokenizer:
    """Learn a vocabulary from corpus folders or text files and write the tokenizer folder `out`; return it.

    vocab_size includes special tokens. Raises UsageError if it is too small for the alphabet.
    """
    return run_tokenizer(
        [Path(source) for source in _listed(sources)],
        Path(out),
        kind=kind,
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        progress=_progress(verbose),
    )


def pretrain(
    tokens: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    preset: str | None = None,
    init_from: str | Path | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_update: OnUpdate | None = None,
    verbose: bool = False,
) -> Path:
    """Train a language model on a tokens folder and write the run folder `out`; return its model folder.

    recipe: a TOML file or a name such as "gpt2-nano"; other options override it. preset: the model, by default
    gpt2-mini. init_from: a trained model to continue from, instead of a preset. on_update: called after every
    update with a dictionary of step, loss, learning rate and other figures. Call it again to resume an interrupted
    run.

    Raises UsageError for wrong options, MismatchError for tokens of another tokenizer, TrainingError if the loss
    is not finite.
    """
    given = {
        "preset": preset,
        "init_from": None if init_from is None else str(init_from),
        "steps": steps,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
        "device": device,
    }
    layers = [{} if recipe is None else read_recipe(recipe)]
    layers.append({key: value for key, value in given.items() if value is not None})
    require_one_model(given, settings or {})
    config = PretrainConfig.build(*layers, settings or {}, source=str(recipe or "pretrain()"))
    return run_pretraining(config, Path(tokens), Path(out), on_update=on_update, progress=_progress(verbose))


def evaluate(
    model: str | Path,
    tasks: str | Sequence[str],
    data: Paths,
    out: str | Path,
    *,
    overlap: str | Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    settings: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> Results:
    """Score a model zero-shot and write the results folder `out`; return the results.

    model: a folder, a shipped model, or a hub name that is on this machine. tasks: protocols (`headwater
    evaluate --list`), prefixes of their names that end before a dot, or "my_module:TASK". data: folders with their
    files. overlap: a training corpus, to score also without the examples that overlap with it. limit: use only the
    first examples of each protocol.

    Raises UsageError for an unknown task, ResourceError for a folder of data that does not exist or if no protocol
    can be scored.
    """
    return run_evaluation(
        shipped.replace_hub_name(model),
        [tasks] if isinstance(tasks, str) else list(tasks),
        [Path(folder) for folder in _listed(data)],
        Path(out),
        config=EvaluateConfig.build(settings or {}, source="settings"),
        overlap=None if overlap is None else Path(overlap),
        limit=limit,
        device=device,
        progress=_progress(verbose),
    )


def _listed(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _progress(verbose: bool) -> Progress:
    return PlainProgress() if verbose else SILENT
