"""Run one protocol: ask the model, score each example, and compute the figures over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.corpus import TrainingGrams
from headwater.errors import MALFORMED, DataError, HeadwaterError
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.figures import Figure
from headwater.evaluation.protocols import Answer, Example, GenerationRequest, Scored, Task, TaskRequest
from headwater.evaluation.request_encoder import RequestEncoder
from headwater.evaluation.request_runner import REQUESTS_TOGETHER, RequestRunner
from headwater.evaluation.results import Result, Skipped
from headwater.inference import LanguageModel
from headwater.storage import SILENT, Progress
from headwater.tokenizer import LostText, lost_text


@dataclass(frozen=True)
class ProtocolOutcome:
    """The outcome of one protocol: results, a record for each example, and examples that were left out."""

    results: Sequence[Result]
    records: Sequence[Mapping[str, Any]]
    left_out: Skipped | None


class UnsuitableTask(DataError):
    """The protocol cannot be asked of this model: it is of another kind, or no example fits it."""


def run_task(
    task: Task,
    files: Mapping[str, Path],
    runner: RequestRunner | LanguageModel,
    *,
    config: EvaluateConfig | None = None,
    training: TrainingGrams | None = None,
    limit: int | None = None,
    write: Callable[[Mapping[str, Any]], object] | None = None,
    progress: Progress = SILENT,
) -> ProtocolOutcome:
    """Evaluate one protocol on a model; raise DataError if its files are damaged or no example can be asked.

    config: for a LanguageModel; a RequestRunner has its own.
    write: takes the whole record of each example, in their order; the records of the outcome are without answers
    and texts, so that the memory does not grow with these.
    """
    runner = runner if isinstance(runner, RequestRunner) else RequestRunner(runner, config)
    every = examples_of(task, files, runner.encoder)
    examples = task.limited(every, limit)
    progress.start(task.protocol, len(examples), "examples")
    before = runner.seconds
    shares = {} if training is None else _shares(examples, training)
    records, reasons, cut = _records(task, examples, runner, shares, write, progress)
    seconds = round(runner.seconds - before, 3)
    if not records:
        raise UnsuitableTask(
            f"no example of {task.protocol} could be asked: {reasons[0] if reasons else 'it has none'}"
        )
    figures = task.summarise(records)
    progress.finish(", ".join(f"{f.metric} {f.value:.4g}" for f in figures))
    details = _lost_text(task, files, examples, runner.encoder)
    if task.published and not task.is_published_set(files, every):
        details["not the published set"] = ", ".join(str(path) for path in files.values())
    if cut:
        details["cut contexts"] = cut
    details |= task.details(files, examples, runner.config, progress)
    if len(examples) < len(every):  # because of the limit
        details |= {"first": len(examples), "available": len(every)}
    without = _without_overlap(task, records) if shares else {}
    figures = [replace(f, details=details | without.get(f.metric, {}) | {**f.details}) for f in figures]
    results = [_result(task, figure, examples, runner.encoder, seconds=seconds) for figure in figures]
    left_out = Skipped(task.benchmark, task.protocol, reasons[0], len(reasons)) if reasons else None
    return ProtocolOutcome(results, records, left_out)


def _records(
    task: Task,
    examples: Sequence[Example],
    runner: RequestRunner,
    shares: Mapping[str, float | None],
    write: Callable[[Mapping[str, Any]], object] | None,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[str], int]:
    """Score the examples.

    Return the record of each one, why others could not be asked, and how many have a context or prompt that the
    model cannot read whole.
    """
    records: list[dict[str, Any]] = []
    reasons: list[str] = []
    cut = 0
    for group in _groups(task, examples, runner.encoder, reasons):
        cut += sum(any(_is_cut(request, runner.encoder) for request in requests) for _, requests in group)
        for (example, _), answers in zip(group, _answered(task, group, runner), strict=True):
            share = {"overlap": shares[example.id]} if example.id in shares else {}
            record = {"id": example.id} | task.score(example, answers, runner.encoder)
            if write is not None:
                stored = {"answers": [_stored(answer) for answer in answers], "example": _readable(example)}
                write(record | stored | share)
            records.append(record | share)
        progress.advance(len(records) + len(reasons))
    return records, reasons, cut


def _is_cut(request: TaskRequest, encoder: RequestEncoder) -> bool:
    """Return whether the model reads only a part of the context or prompt."""
    if isinstance(request, GenerationRequest):
        return request.is_cut
    return len(request.context) + len(request.continuation) - 1 > encoder.context


def _result(
    task: Task, figure: Figure, examples: Sequence[Example], encoder: RequestEncoder, **more: Any
) -> Result:
    """Return a figure with what is known of its protocol, and the papers' values if they are of the same text."""
    metric, details = task.metric(figure.metric), figure.details
    is_other = "not the published set" in details or ("lost text" in details and not metric.higher_is_better)
    return Result(
        **vars(figure),
        **more,
        task=task.benchmark,
        protocol=task.protocol,
        published={} if is_other else task.published.get(metric.name, {}),
        chance=task.chance(metric.name, examples),
        higher_is_better=metric.higher_is_better,
        settings={"window": encoder.window, "stride": encoder.stride} if task.in_windows else {},
    )


def _answered(
    task: Task, group: Sequence[tuple[Example, Sequence[TaskRequest]]], runner: RequestRunner
) -> list[list[Answer]]:
    """Return the answers for each example of a group, also to the further requests of its protocol."""
    collected: list[list[Answer]] = [[] for _ in group]
    wanted = [list(requests) for _, requests in group]
    while any(wanted):
        answers = runner.answer([request for requests in wanted for request in requests])
        for number, (example, _) in enumerate(group):
            if wanted[number]:
                collected[number] += [answers[request] for request in wanted[number]]
                wanted[number] = list(task.further(example, collected[number], runner.encoder))
    return collected


def examples_of(task: Task, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
    """Return the examples of a protocol; raise DataError if a file has another format."""
    try:
        return task.read(files, encoder)
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

    readable = {key: value for key, value in example.content.items() if is_readable(value)}
    has_text = any(isinstance(value, str) for value in readable.values())
    return readable if has_text else {"text": example.text} | readable


def _shares(examples: Sequence[Example], training: TrainingGrams) -> dict[str, float | None]:
    """Return the share of each example's n-grams that are in the training text; None for one without an n-gram.

    An example without a text is not measured.
    """
    measured = [example for example in examples if example.text]
    pairs = zip(measured, training.shares(example.text for example in measured), strict=True)
    return {example.id: shared / count if count else None for example, (shared, count) in pairs}


def _lost_text(
    task: Task, files: Mapping[str, Path], examples: Sequence[Example], encoder: RequestEncoder
) -> dict[str, Any]:
    """Return the shares of the scored text that the tokenizer loses, if it loses any."""
    lost = LostText()
    if encoder.tokenizer.kind != "gpt2":
        for text in task.scored_texts(files, examples):
            lost = lost.plus(lost_text(encoder.tokenizer, text, encoder.encode(text)))
    shares = lost.shares()
    return {"lost text": shares} if shares else {}


def _without_overlap(task: Task, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each metric the mean overlap, the number of examples with any, and the score without them.

    Examples that are too short for an n-gram cannot be judged: they are counted, and left out of that score too.
    """
    measured = [record["overlap"] for record in records if "overlap" in record]
    judged = [share for share in measured if share is not None]
    if not measured:
        return {}
    facts: dict[str, Any] = {
        "examples": sum(share > 0 for share in judged),
        "judged": len(judged),
        "cannot be judged": len(measured) - len(judged),
    }
    if judged:
        facts["mean"] = sum(judged) / len(judged)
    clean = [record for record in records if record.get("overlap", 0.0) == 0.0]
    try:
        figures = {figure.metric: figure for figure in task.summarise(clean)} if clean and judged else {}
    except DataError:  # too few examples are left for a score
        figures = {}
    details = {}
    for metric in task.metrics:
        without = figures.get(metric.name)
        rest = {"value without": without.value, "stderr without": without.stderr} if without else {}
        details[metric.name] = {"overlap": facts | rest}
    return details


def _groups(
    task: Task, examples: Sequence[Example], encoder: RequestEncoder, reasons: list[str]
) -> Iterator[list[tuple[Example, Sequence[TaskRequest]]]]:
    """Yield examples with their requests in batches; add to `reasons` why others are left out."""
    group: list[tuple[Example, Sequence[TaskRequest]]] = []
    size = 0
    for example in examples:
        try:
            requests = task.requests(example, encoder)
        except (DataError, *MALFORMED) as error:
            reason = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
            reasons.append(f"example {example.id}: {reason}")
            continue
        group.append((example, requests))
        size += max(1, len(requests))
        if size >= REQUESTS_TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def _stored(answer: Answer) -> dict[str, Any]:
    """Return an answer for the examples file; log-probabilities of a scored text have float32's seven digits."""
    if isinstance(answer, Scored):
        return {"log_probabilities": [float(f"{value:.7g}") for value in answer.log_probabilities]}
    return {"text": answer.text, "log_probabilities": list(answer.log_probabilities)}
