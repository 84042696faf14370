"""Evaluate a model on protocols: compute figures with their errors, and store every example.

A protocol whose files are missing or damaged is skipped with its reason. An example that cannot be asked (empty,
or longer than the context) is left out and counted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from headwater import shipped
from headwater.config import Config
from headwater.corpus import TrainingGrams, training_grams
from headwater.device import choose_device
from headwater.errors import (
    MALFORMED,
    DataError,
    HeadwaterError,
    MismatchError,
    ResourceError,
    UsageError,
    nearest,
    resumable,
)
from headwater.evaluation.asker import REQUESTS_TOGETHER, Asker
from headwater.evaluation.cache import AnswerCache
from headwater.evaluation.data_files import DataFiles
from headwater.evaluation.own_tasks import is_own, is_users, load_tasks, place_of, source_hashes
from headwater.evaluation.paper_values import published
from headwater.evaluation.protocols import Answer, Example, Scored, Task, TaskRequest
from headwater.evaluation.reader import Reader
from headwater.evaluation.results import (
    KIND,
    Result,
    Results,
    Skipped,
    write_examples,
    write_results,
)
from headwater.evaluation.tasks import TASKS, VERSION
from headwater.inference import LanguageModel, load
from headwater.model import ModelConfig
from headwater.shipped import hub_name
from headwater.storage import SILENT, Progress, Stage, identity_of

# The most reasons in the error that no protocol could be scored.
_REASONS = 3


class EvaluateConfig(Config):
    """How a model is evaluated."""

    window: int | None = Field(default=None, ge=1)
    """Tokens that the model sees at a time; by default its context."""
    stride: int | None = Field(default=None, ge=1)
    """Tokens between the starts of two windows; by default half of a window."""
    precision: Literal["fp32", "bf16", "int8", "int4"] = "fp32"
    """Number format of the weights; see `hw.load`."""
    yardstick_bytes: int | None = Field(default=None, ge=0)
    """The most bytes of training text for xz and the n-gram model; 0 omits them."""


@dataclass(frozen=True)
class ProtocolOutcome:
    """The outcome of one protocol: results, a record for each example, and examples that were left out."""

    results: Sequence[Result]
    records: Sequence[Mapping[str, Any]]
    left_out: Skipped | None


class UnsuitableTask(DataError):
    """The protocol cannot be asked of this model: it is of another kind, or no example fits it."""


def select(names: Sequence[str]) -> list[Task]:
    """Return the tasks with these names: protocols, prefixes that end before a dot, or the user's own tasks.

    `lambada` selects all of LAMBADA's; the name of a protocol selects only this one, also if others begin with it;
    `my_module:TASK` is a task of the user's. Raises UsageError for an unknown
    name, an empty list, and an own task with the name of a protocol.
    """
    if not names:
        raise UsageError("no task is named", expected="names that `headwater evaluate --list` prints")
    chosen: dict[str, Task] = {}
    for name in names:
        if is_own(name):
            for task in load_tasks(name):
                if task.protocol in TASKS:
                    raise UsageError(
                        f"--tasks {name}: the protocol {task.protocol!r} exists already",
                        repair="Give the task a protocol name of its own",
                    )
                chosen[task.protocol] = task
            continue
        matching = {p: task for p, task in TASKS.items() if p.startswith(f"{name}.")}
        matching = {name: TASKS[name]} if name in TASKS else matching
        if not matching:
            known = {*TASKS, *(protocol.partition(".")[0] for protocol in TASKS)}
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
    progress: Progress = SILENT,
) -> Results:
    """Evaluate the model in a folder, or one that ships, and write the results folder `out` unless it is complete.

    tasks: protocol names, prefixes of them that end before a dot, or `MODULE:NAME` of own tasks (`own_tasks`).
    data: the folders of the official files, or Headwater's tokens and labels folders. limit: the number of
    examples of each protocol. overlap: a training corpus; each result then also has the score without the examples
    that share 8-grams with it (GPT-2 section 4). Call it again to resume after an interruption.
    allow_empty: write results without scores if no protocol can be scored.

    Raises UsageError for an unknown task and for a limit below 1, ResourceError if a folder of `data` does not
    exist or if no protocol can be scored; then nothing is written.
    """
    choose_device(device, training=False)  # its error comes first
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}", expected="at least 1")
    config = config or EvaluateConfig()
    named, model = hub_name(model) or str(model), shipped.resolve(model)
    chosen = [task.configured(yardstick_bytes=config.yardstick_bytes, progress=progress) for task in select(tasks)]
    folders = [data] if isinstance(data, Path) else list(data)
    paths, missing = DataFiles(folders).locate_tasks(chosen)
    skipped = [Skipped(t.benchmark, t.protocol, missing[t.protocol]) for t in chosen if t.protocol in missing]
    if not paths and not allow_empty:
        raise _nothing_scored(skipped, tasks, folders)
    files = {path.resolve(): path for roles in paths.values() for path in roles.values()}
    sources = source_hashes(chosen)
    own = {"own_tasks": sources} if sources else {}
    stage = Stage(
        out,
        kind=KIND,
        config={
            "tasks": [task.protocol for task in chosen],
            "protocols": VERSION,
            "limit": limit,
            **own,
            **config.to_dict(),
        },
        defaults=EvaluateConfig.defaults(),
        inputs={"model": model} | _roles(files.values()) | ({} if overlap is None else {"overlap": overlap}),
    )
    if stage.is_complete():
        progress.note(f"{out} is complete already")
        return Results.read(out)
    lm = load(model, precision=config.precision, device=device)
    results: list[Result] = []
    training = None if overlap is None else training_grams(overlap)
    cache = AnswerCache(
        out.with_name(f".{out.name}.answers"), identity_of(model)[1], config.precision, progress.note
    )
    asker = Asker(lm, cache, config.window, config.stride)
    with stage.write() as work, cache:
        for task in chosen:
            if task.protocol not in paths:
                continue
            try:
                require_fit(task, lm.config)
                outcome = run_task(
                    task, paths[task.protocol], asker, training=training, limit=limit, progress=progress
                )
            except (DataError, MismatchError, ResourceError) as error:
                failed = not isinstance(error, UnsuitableTask)
                skipped.append(Skipped(task.benchmark, task.protocol, str(error), failed=failed))
                continue
            except Exception as error:
                if not is_users(task) or os.environ.get("HEADWATER_DEBUG"):
                    raise
                reason = f"the task's own code failed: {place_of(error)}; --debug shows the traceback"
                skipped.append(Skipped(task.benchmark, task.protocol, reason, failed=True))
                continue
            results += outcome.results
            skipped += [outcome.left_out] if outcome.left_out else []
            write_examples(outcome.records, task.protocol, work)
        if not results and not allow_empty:
            cache.remove()
            raise _nothing_scored(skipped, tasks, folders)
        summary = Results(named, results, skipped)
        write_results(summary, work)
    cache.remove()
    return summary


def _nothing_scored(skipped: Sequence[Skipped], tasks: Sequence[str], data: Sequence[Path]) -> ResourceError:
    """Return the error that no protocol could be scored, with each different reason once."""
    reasons: dict[str, list[str]] = {}
    for one in skipped:
        reasons.setdefault(one.reason, []).append(one.protocol)
    said = [f"{protocols[0]}{' and others' * (len(protocols) > 1)}: {why}" for why, protocols in reasons.items()]
    more = f" ({len(said) - _REASONS} more reasons)" if len(said) > _REASONS else ""
    options = shlex.join(["--tasks", ",".join(tasks), *(f"--data={folder}" for folder in data)])
    return ResourceError(
        f"no protocol could be scored: {' '.join(said[:_REASONS])}{more}",
        repair=f"See which protocols have their files: headwater evaluate --list {options}",
    )


def require_fit(task: Task, config: ModelConfig) -> None:
    """Raise UnsuitableTask if the protocol is not for this kind of model."""
    if task.masked and not config.is_masked:
        raise UnsuitableTask(
            "the protocol hides tokens, and this model does not fill blanks", expected="a masked model"
        )
    if not task.masked and not config.is_causal:
        raise UnsuitableTask(
            "the protocol reads from left to right, and this model does not",
            expected="a causal model; a masked one has the protocols that end in .pseudo-log-likelihood",
        )


def run_task(
    task: Task,
    files: Mapping[str, Path],
    asker: Asker | LanguageModel,
    *,
    training: TrainingGrams | None = None,
    limit: int | None = None,
    progress: Progress = SILENT,
) -> ProtocolOutcome:
    """Evaluate one protocol on a model; raise DataError if its files are damaged or no example can be asked."""
    asker = asker if isinstance(asker, Asker) else Asker(asker)
    reader = asker.reader
    every = examples_of(task, files, reader)
    examples = task.limited(every, limit)
    progress.start(task.protocol, len(examples), "examples")
    before = asker.seconds
    records: list[dict[str, Any]] = []
    reasons: list[str] = []
    for group in _groups(task, examples, reader, reasons):
        for example, mine in zip(
            (example for example, _ in group), _answers(task, group, asker, reader), strict=True
        ):
            record = {"id": example.id} | task.score(example, mine, reader)
            records.append(
                record | {"answers": [_stored(answer) for answer in mine], "example": _readable(example)}
            )
        progress.advance(len(records) + len(reasons))
    if not records:
        raise UnsuitableTask(
            f"no example of {task.protocol} could be asked: {reasons[0] if reasons else 'it has none'}"
        )
    figures = task.summarise(records)
    seconds = asker.seconds - before
    progress.finish(", ".join(f"{f.metric} {f.value:.4g}" for f in figures))
    details = task.details(files, examples)
    if len(examples) < len(every):  # because of the limit
        details |= {"first": task.count_measured(examples), "available": task.count_measured(every)}
    without = {} if training is None else _without_overlap(task, examples, records, training)
    results = [
        Result(
            task=task.benchmark,
            protocol=task.protocol,
            metric=figure.metric,
            value=figure.value,
            stderr=figure.stderr,
            count=figure.count,
            seconds=round(seconds, 3),
            published=published(task.protocol, figure.metric),
            chance=task.chance(figure.metric, examples),
            higher_is_better=task.metric(figure.metric).higher_is_better,
            settings=task.settings(reader),
            details={**figure.details, **details, **without.get(figure.metric, {})},
        )
        for figure in figures
    ]
    left_out = Skipped(task.benchmark, task.protocol, reasons[0], len(reasons)) if reasons else None
    return ProtocolOutcome(results, records, left_out)


def _answers(
    task: Task, group: Sequence[tuple[Example, Sequence[TaskRequest]]], asker: Asker, reader: Reader
) -> list[list[Answer]]:
    """Return the answers for each example of a group, with the further requests of its protocol."""
    given: list[list[Answer]] = [[] for _ in group]
    wanted = [list(requests) for _, requests in group]
    while any(wanted):
        answers = asker.ask([request for requests in wanted for request in requests])
        for number, (example, _) in enumerate(group):
            if wanted[number]:
                given[number] += [answers[request] for request in wanted[number]]
                wanted[number] = list(task.further(example, given[number], reader))
    return given


def examples_of(task: Task, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
    """Return the examples of a protocol; raise DataError if a file has another format."""
    try:
        return task.read(files, reader)
    except HeadwaterError:
        raise
    except MALFORMED as error:
        raise DataError(
            f"{', '.join(map(str, files.values()))} has another format: {type(error).__name__}: {error}",
            expected=f"the official file of {task.benchmark}",
        ) from None


def _readable(example: Example) -> dict[str, Any]:
    """Return the readable part of an example: its texts, answers and label."""

    def is_readable(value: Any) -> bool:
        texts = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
        return texts or isinstance(value, str | int)

    shown = {key: value for key, value in example.content.items() if is_readable(value)}
    return shown if any(isinstance(value, str) for value in shown.values()) else {"text": example.text} | shown


def _without_overlap(
    task: Task, examples: Sequence[Example], records: Sequence[dict[str, Any]], training: TrainingGrams
) -> dict[str, dict[str, Any]]:
    """Return for each metric the mean overlap, the number of examples with any, and the score without those.

    Examples with `Task.is_measured` false stay in and do not count. Stores the share of overlap in each record: 0
    for an example shorter than an n-gram.
    """
    texts = {example.id: example.text for example in examples}
    shares = training.shares(texts[record["id"]] for record in records)
    for record, (shared, count) in zip(records, shares, strict=True):
        record["overlap"] = shared / count if count else 0.0
    clean = [record for record in records if not (record["overlap"] and task.is_measured(record))]
    measured = [record["overlap"] for record in records if task.is_measured(record)]
    if not any(texts.values()) or not measured:
        return {}
    facts = {"mean": sum(measured) / len(measured), "examples": len(records) - len(clean)}
    try:
        figures = {figure.metric: figure for figure in task.summarise(clean)} if clean else {}
    except DataError:  # too few examples are left for a score
        figures = {}
    details = {}
    for metric in task.metrics:
        without = figures.get(metric.name)
        rest = {"value without": without.value, "stderr without": without.stderr} if without else {}
        details[metric.name] = {"overlap": facts | rest}
    return details


def _groups(
    task: Task, examples: Sequence[Example], reader: Reader, reasons: list[str]
) -> Iterator[list[tuple[Example, Sequence[TaskRequest]]]]:
    """Yield examples with their requests in batches; add to `reasons` why others are left out."""
    group: list[tuple[Example, Sequence[TaskRequest]]] = []
    for example in examples:
        try:
            group.append((example, task.requests(example, reader)))
        except DataError as error:
            reasons.append(f"example {example.id}: {error}")
            continue
        if sum(len(requests) for _, requests in group) >= REQUESTS_TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _stored(answer: Answer) -> dict[str, Any]:
    """Return an answer for the examples file; log-probabilities of a scored text have float32's seven digits."""
    if isinstance(answer, Scored):
        return {"log_probabilities": [float(f"{value:.7g}") for value in answer.log_probabilities]}
    return {"text": answer.text, "log_probabilities": list(answer.log_probabilities)}


def _roles(paths: Iterable[Path]) -> dict[str, Path]:
    """Return paths by their role in the lineage: the name of a folder, or that of a file and its folder.

    Equal names are numbered, so that each path is part of the results' identity.
    """
    roles: dict[str, Path] = {}
    for path in paths:
        name = f"data {path.name}" if path.is_dir() else f"data {path.parent.name}/{path.name}"
        alike = sum(role == name or role.startswith(f"{name} (") for role in roles)
        roles[f"{name} ({alike + 1})" if alike else name] = path
    return roles
