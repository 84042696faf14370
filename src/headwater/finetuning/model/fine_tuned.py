"""A fine-tuned model: its base, the members of its mixture, the meaning of its outputs, its folder, predictions.

The folder is a Hugging Face model folder (the language model with its three more rows, and the tokenizer) with
`task.json`, `head.safetensors` and, of the member tfidf, its two files. If both the unchanged base and a tuned one
are members, the folder's model is the tuned one, and `unchanged/` has the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from headwater import shipped
from headwater.config import Config
from headwater.errors import FolderError, UsageError
from headwater.finetuning.model.heads import Pooled, PooledModel, TaskModel, text_frame
from headwater.finetuning.model.inputs import Encoded, encode
from headwater.finetuning.model.mixture import expected_score, pool
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.read import Columns
from headwater.finetuning.rows.row import MemberName, Raw, TaskName
from headwater.model import load_model, read_tensors, save_model
from headwater.reading import read_json
from headwater.storage import has_manifest, open_folder, read_manifest, write_json
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

Content = TypeVar("Content", bound=Config)
TASK_FILE, HEAD_FILE, UNCHANGED = "task.json", "head.safetensors", "unchanged"
# Rows that are tokenized, sorted by length and predicted together: memory stays the same for any number of rows.
_WINDOW = 2_048


class TaskDescription(Config):
    """The content of `task.json`: the meaning of outputs and columns, and the mixture."""

    task: TaskName
    labels: Labels
    columns: Columns = Columns()
    weights: dict[MemberName, float] = Field(min_length=1)
    temperature: float = 1.0
    pooled: Pooled = "mean"
    dropout: float = 0.1


@dataclass
class Prediction:
    """The label that a fine-tuned model gives one row.

    label: class name, list of labels, score, or number of the right answer, counted as in training; None for a row
    without text, which has no prediction. probabilities: by class name, level or answer. cut: tokens of the row
    that did not fit the context; tokens: those that were read, of all its sequences.
    """

    row: int
    label: str | int | float | list[str] | None
    probabilities: dict[str, float]
    cut: int = 0
    tokens: int = 0

    @property
    def output(self) -> int:
        """The index of the most probable output."""
        values = list(self.probabilities.values())
        return values.index(max(values)) if values else 0


@dataclass
class FineTuned:
    """The members of a mixture and its description. base: the language model of its folder."""

    description: TaskDescription
    tokenizer: Tokenizer
    base: Model = field(repr=False)
    members: dict[MemberName, Tfidf | TaskModel] = field(repr=False)

    @classmethod
    def of(cls, model: TaskModel, tokenizer: Tokenizer, labels: Labels) -> FineTuned:
        """Return a model with GPT-1's head alone as a fine-tuned model."""
        described = TaskDescription(task=model.task, labels=labels, weights={"gpt1": 1.0}, dropout=model.dropout)
        return cls(described, tokenizer, model.model, {"gpt1": model})

    @property
    def task(self) -> TaskName:
        """Which of the four inputs."""
        return self.description.task

    @property
    def labels(self) -> Labels:
        """What the outputs mean."""
        return self.description.labels

    def encode(self, rows: Iterable[Raw], labels: Labels | None = None, name: str = "") -> Encoded:
        """Encode rows in composed form, with their targets if `labels` are given; see `inputs.encode`."""
        composed = [row.composed() for row in rows]
        return encode(
            composed,
            self.task,
            self.tokenizer,
            self.base.config.context,
            targets=None if labels is None else labels.targets(composed, name),
            name=name,
            frame=text_frame(self.tokenizer, self.base.config, self.task, self.members),
        )

    def probabilities(self, encoded: Encoded) -> npt.NDArray[np.float32]:
        """Return P(y | x), (examples, outputs or most answers); 0 for an answer that an example does not have."""
        each = [
            member.probabilities(encoded.texts, self.labels)
            if isinstance(member, Tfidf)
            else member.predict(encoded, self.labels)[0]
            for member in self.members.values()
        ]
        weights = [self.description.weights[name] for name in self.members]
        return pool(each, weights, self.labels, self.description.temperature)

    def predict(self, rows: Iterable[Raw]) -> Iterator[Prediction]:
        """Yield the rows' predictions in order, in constant memory."""
        iterator = iter(rows)
        while window := list(islice(iterator, _WINDOW)):
            encoded = self.encode(window)
            counts = np.diff(encoded.first)
            tokens = np.diff(encoded.starts[encoded.first]).tolist()
            shares = zip(window, counts, self.probabilities(encoded), encoded.cut.tolist(), tokens, strict=True)
            for row, count, share, cut, read in shares:
                prediction = self.prediction(row.row, share[:count] if self.task == "choice" else share)
                empty = row.is_empty(self.task)
                yield Prediction(row.row, None, {}) if empty else replace(prediction, cut=cut, tokens=read)

    def decide(self, probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return what probabilities mean, see `decide`."""
        return decide(self.labels, probabilities)

    def prediction(self, number: int, share: npt.NDArray[np.float32]) -> Prediction:
        """Return one row's prediction from its probabilities, (outputs or answers,)."""
        labels, decision = self.labels, decide(self.labels, share[None])[0]
        names, first = labels.output_names, labels.first_answer
        if labels.target == "labels":
            chosen = [name for name, has in zip(names, decision, strict=True) if has]
            return Prediction(number, chosen, {n: round(float(p), 6) for n, p in zip(names, share, strict=True)})
        decided = float(decision)
        label: str | int | float = round(decided, 6)
        if labels.target == "class":
            label = names[int(decided)]
        elif labels.target == "answer":
            names, label = [str(first + index) for index in range(len(share))], first + int(decided)
        return Prediction(number, label, {n: round(float(p), 6) for n, p in zip(names, share, strict=True)})

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder."""
        from safetensors.torch import save_file

        save_model(self.base, folder, tokenizer=self.tokenizer)
        tensors = {}
        for name, member in self.members.items():
            if isinstance(member, Tfidf):
                member.save(folder)
                continue
            for key, value in member.head.state_dict().items():
                tensors[f"{name}.{key}"] = value.detach().float().cpu().contiguous()
            if member.model is not self.base:
                (folder / UNCHANGED).mkdir(exist_ok=True)
                save_model(member.model, folder / UNCHANGED, tokenizer=self.tokenizer)
        save_file(tensors, folder / HEAD_FILE)
        write_json(folder / TASK_FILE, self.description.to_dict())

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a folder has a fine-tuned model."""
        return (folder / TASK_FILE).is_file()

    @classmethod
    def load(cls, folder: Path, *, device: torch.device | str = "cpu") -> FineTuned:
        """Open a folder that `save` or `headwater finetune` wrote; raise FolderError for any other."""
        if not cls.is_in(folder):
            raise _not_fine_tuned(folder)
        path = folder / TASK_FILE
        described = parse_part(TaskDescription, read_json(path), path)
        if not described.labels.outputs:
            raise FolderError(f"{path} names no {described.labels.target}", expected="what the outputs mean")
        base = load_model(folder, dtype=torch.float32, device=device)  # compares the folder with its manifest
        tokenizer = Tokenizer.load(folder)
        members: dict[MemberName, Tfidf | TaskModel] = {}
        member: TaskModel
        try:
            heads = read_tensors(folder / HEAD_FILE)
            for name in described.weights:
                if name == "tfidf":
                    members[name] = Tfidf.load(folder, described.task)
                    continue
                own = base
                if name == "probe" and (folder / UNCHANGED).is_dir():
                    own = load_model(folder / UNCHANGED, dtype=torch.float32, device=device)
                outputs, dropout = described.labels.outputs, described.dropout
                if name == "gpt1":
                    delimiter = tokenizer.task_tokens.delimiter
                    member = TaskModel(own, described.task, outputs, dropout=dropout, delimiter=delimiter)
                else:
                    member = PooledModel(own, described.task, outputs, pooled=described.pooled, dropout=dropout)
                prefix = f"{name}."
                member.head.load_state_dict(
                    {key.removeprefix(prefix): value for key, value in heads.items() if key.startswith(prefix)}
                )
                member.head.to(device)
                members[name] = member.eval()
        except (OSError, RuntimeError) as error:
            raise FolderError(f"{folder / HEAD_FILE} is missing or damaged: {error}") from None
        return cls(described, tokenizer, base.eval(), members)


def decide(labels: Labels, probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return (examples,): the index of the most probable output, or the expected score.

    For several labels (examples, outputs): 1 for each with a probability of at least one half, else 0.
    """
    if labels.target == "labels":
        return (probabilities >= 0.5).astype(np.float64)
    if labels.target == "score":
        levels = np.array(labels.levels)
        return np.clip(expected_score(probabilities, levels), levels[0], levels[-1])
    return probabilities.argmax(axis=1).astype(np.float64)


def original_base(folder: Path) -> str | Path | None:
    """Return the model that a folder was fine-tuned from: a shipped model's name or a path; None if unknown."""
    inputs = read_manifest(folder).inputs if has_manifest(folder) else []
    base = next((entry.path_from(folder) for entry in inputs if entry.role in {"base", "model"}), None)
    ships = base is not None and base.name in shipped.names() and base.resolve() == shipped.folder_of(base.name)
    return base.name if base is not None and ships else base


def refuse_as_base(folder: Path) -> None:
    """Raise UsageError for a fine-tuned model: it may have learned from rows that measure the new one."""
    if not FineTuned.is_in(folder):
        return
    base = original_base(folder)
    raise UsageError(
        f"{folder} is fine-tuned already",
        expected="a base: train again on all rows",
        repair=f"Start from its base: --model {shlex.quote(str(base))}" if base else "",
    )


def _not_fine_tuned(folder: Path) -> FolderError:
    """Return the error for a folder without a fine-tuned model; raise another for an unfinished training."""
    if has_manifest(folder):
        open_folder(folder)
    there = shipped.find(folder).is_dir()
    seen = "is not a fine-tuned model: it has no task.json" if there else "does not exist"
    base, out = map(shlex.quote, (str(folder), "DIR") if there else (shipped.DEFAULT, str(folder)))
    return FolderError(
        f"{folder} {seen}",
        expected="a folder that fine-tuning wrote",
        repair=f"Make one: headwater finetune --model {base} --task classify --train FILE --out {out}",
    )


def parse_part(kind: type[Content], described: Any, path: Path) -> Content:
    """Parse a part of a JSON file; raise FolderError, not the UsageError of an option, if it is invalid."""
    try:
        return kind.build(described, source=str(path))
    except (UsageError, AttributeError, TypeError, ValueError) as error:
        raise FolderError(f"{path} is damaged: {error}") from None
