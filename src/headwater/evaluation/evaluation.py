"""Evaluate a model on protocols: compute figures with their errors, and store every example.

A protocol whose files are missing or damaged is skipped with its reason. An example that cannot be asked (empty,
or longer than the context) is left out and counted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from headwater import shipped
from headwater.corpus import TrainingGrams, training_grams
from headwater.device import choose_device
from headwater.errors import (
    DataError,
    FolderError,
    MismatchError,
    ResourceError,
    UsageError,
    nearest,
    resumable,
)
from headwater.evaluation.answers import AnswerFile
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.data_files import DataFiles
from headwater.evaluation.protocols import Task
from headwater.evaluation.request_encoder import RequestEncoder
from headwater.evaluation.request_runner import RequestRunner
from headwater.evaluation.results import (
    FILE,
    KIND,
    Result,
    Results,
    Skipped,
    examples_writer,
)
from headwater.evaluation.score_task import UnsuitableTask, examples_of, run_task
from headwater.evaluation.tasks import TASK_FILE, VERSION, all_tasks, missing_benchmarks, read_task_file
from headwater.inference import load
from headwater.model import load_config
from headwater.plugins import not_installed
from headwater.reading import sha256_of
from headwater.shipped import hub_name
from headwater.storage import INTERACTIVE, Progress, Stage, identity_of, write_json
from headwater.tokenizer import Tokenizer

# The most reasons in the error that no protocol could be scored.
_REASONS = 3


def select(names: Sequence[str]) -> list[Task]:
    """Return the tasks with these names: protocols, prefixes that end before a dot, or a user's task files.

    `lambada` selects all of LAMBADA's; the name of a protocol selects only this one, also if others begin with it.
    Raises UsageError for an unknown name, an empty list, and a task file with the name of a protocol;
    ResourceError for a name of headwater-papers if that is not installed.
    """
    if not names:
        raise UsageError("no task is named", expected="names that `headwater evaluate --list` prints")
    tasks, chosen = all_tasks(), dict[str, Task]()
    for name in dict.fromkeys(names):
        if name.endswith(TASK_FILE):
            for task in read_task_file(Path(name)):
                if task.protocol in tasks or task.protocol in chosen:
                    raise UsageError(
                        f"--tasks {name}: another task has the protocol name {task.protocol!r}",
                        repair="Give the task a protocol name of its own",
                    )
                chosen[task.protocol] = task
            continue
        matching = {p: task for p, task in tasks.items() if p.startswith(f"{name}.")}
        matching = {name: tasks[name]} if name in tasks else matching
        if not matching:
            if name.partition(".")[0] in missing_benchmarks():
                raise not_installed(f"the task {name}")
            known = {*tasks, *(protocol.partition(".")[0] for protocol in tasks)}
            raise UsageError(
                f"there is no task {name!r}",
                expected="a name that `headwater evaluate --list` prints",
                repair=nearest(name, sorted(known)),
            )
        chosen |= matching
    return list(chosen.values())


@resumable()
def evaluate(
    model: Path,
    tasks: Sequence[str],
    data: Path | Sequence[Path],
    out: Path,
    *,
    config: EvaluateConfig | None = None,
    overlap: Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    allow_empty: bool = False,
    progress: Progress = INTERACTIVE,
) -> Results:
    """Evaluate the model in a folder, or one that ships, and write the results folder `out` unless it is complete.

    tasks: protocol names, prefixes of them that end before a dot, or task files.
    data: the folders of the official files, or a tokens folder. limit: the number of
    examples of each protocol. overlap: a training corpus; each result then also has the score without the examples
    that share 8-grams with it (GPT-2 section 4). Call it again to resume after an interruption.
    allow_empty: write results without scores if no protocol can be scored.

    Raises UsageError for an unknown task and for a limit below 1, ResourceError if a folder of `data` does not
    exist or if no protocol can be scored; then nothing is written.
    """
    config = config or EvaluateConfig()
    choose_device(device, training=False)  # its error comes first
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}", expected="at least 1")
    named, model = hub_name(model) or str(model), shipped.resolve(model)
    folders = [data] if isinstance(data, Path) else list(data)
    chosen = select(tasks)
    located, missing = DataFiles(folders, partial(_has_tokenizer_of, model)).locate_tasks(chosen)
    skipped = [Skipped(task.benchmark, task.protocol, why) for task, why in missing.items()]
    if not located and not allow_empty:
        raise _nothing_scored(skipped, tasks, folders)
    stage = _stage(out, config, chosen, limit, model, overlap, located.values())
    if stage.is_complete(progress):
        return Results.read(out)
    answers = AnswerFile(out.with_name(f".{out.name}.answers"), identity_of(model)[1], config.precision)
    runner = RequestRunner(load(model, precision=config.precision, device=device), config, answers)
    training = None
    if overlap is not None:
        texts = _example_texts(located, runner.encoder, limit)
        training = training_grams(overlap, texts, progress=progress)
    with stage.write() as work, answers:
        results, left_out = _score(located, runner, training, limit, work, progress)
        skipped += left_out
        failed = any(entry.failed for entry in skipped)  # its answers are needed again
        if not results and not allow_empty:
            if not failed:
                answers.remove()
            raise _nothing_scored(skipped, tasks, folders)
        summary = Results(named, results, skipped)
        write_json(work / FILE, summary.to_dict())
    if not failed:
        answers.remove()
    return summary


def _stage(
    out: Path,
    config: EvaluateConfig,
    tasks: Sequence[Task],
    limit: int | None,
    model: Path,
    overlap: Path | None,
    files: Iterable[Mapping[str, Path]],
) -> Stage:
    """Return the stage of a results folder, whose configuration has the protocols and hashes of own task files."""
    own = {task.protocol: sha256_of(task.file) for task in tasks if task.file and task.protocol not in all_tasks()}
    different = {path.resolve(): path for roles in files for path in roles.values()}
    inputs = {"model": model} | {f"data-{number}": path for number, path in enumerate(different.values())}
    inputs |= {} if overlap is None else {"overlap": overlap}
    protocols = {"tasks": [task.protocol for task in tasks], "own_tasks": own, "limit": limit}
    return Stage(out, kind=KIND, config=protocols | {"protocols": VERSION} | config.to_dict(), inputs=inputs)


def _score(
    located: Mapping[Task, Mapping[str, Path]],
    runner: RequestRunner,
    training: TrainingGrams | None,
    limit: int | None,
    work: Path,
    progress: Progress,
) -> tuple[list[Result], list[Skipped]]:
    """Return the results of all tasks, whose examples are written below `work`, and what was left out and why."""
    results, left_out = list[Result](), list[Skipped]()
    for task, files in located.items():
        try:
            with examples_writer(task.protocol, work) as write:
                scored = run_task(
                    task, files, runner, training=training, limit=limit, write=write, progress=progress
                )
        except (DataError, FolderError, MismatchError, ResourceError) as error:
            failed = not isinstance(error, UnsuitableTask)
            left_out.append(Skipped(task.benchmark, task.protocol, str(error), failed=failed))
            continue
        results += scored.results
        left_out += [scored.left_out] if scored.left_out else []
    return results, left_out


def _example_texts(
    located: Mapping[Task, Mapping[str, Path]], encoder: RequestEncoder, limit: int | None
) -> Iterator[str]:
    """Yield the texts of all examples; a task that cannot be read is named later, when it is run."""
    for task, files in located.items():
        with suppress(Exception):
            for example in task.limited(examples_of(task, files, encoder), limit):
                yield example.text


def _has_tokenizer_of(model: Path, folder: Path) -> bool:
    """Return whether a Headwater folder was made with a model's tokenizer; one without a tokenizer suits all."""
    if not (folder / "tokenizer").is_dir():
        return True
    own = Tokenizer.of_model(model, load_config(model).vocabulary)
    return own is not None and own.identity == Tokenizer.load(folder / "tokenizer").identity


def _nothing_scored(skipped: Sequence[Skipped], tasks: Sequence[str], data: Sequence[Path]) -> ResourceError:
    """Return the error that no protocol could be scored, with the first different reasons."""
    reasons: dict[str, str] = {}
    for entry in skipped:
        reasons.setdefault(entry.reason, f"{entry.protocol}: {entry.reason}")
    options = shlex.join(["--tasks", ",".join(tasks), *(f"--data={folder}" for folder in data)])
    return ResourceError(
        f"no protocol could be scored: {' '.join([*reasons.values()][:_REASONS])}",
        repair=f"See which protocols have their files: headwater evaluate --list {options}",
    )
