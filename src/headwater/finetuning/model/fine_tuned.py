"""A fine-tuned model: language model, head and what its outputs mean; its folder, and its predictions.

The folder is a Hugging Face model folder (the language model with its three more rows, and the tokenizer) with
`head.safetensors` and `task.json`.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ConfigDict

from headwater import shipped
from headwater.config import Config
from headwater.errors import FolderError, UsageError
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded, encode
from headwater.finetuning.model.pooled import Pooled, PooledModel, text_template
from headwater.finetuning.model.sequence import SequenceModel, class_of, other_head, read_classifier
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import POOLING, Raw, Seen, TaskName
from headwater.model import load_model, read_tensors, save_model
from headwater.reading import read_json
from headwater.storage import has_manifest, open_folder, write_json
from headwater.tokenizer import Template, Tokenizer

if TYPE_CHECKING:
    from headwater.model import Model

Content = TypeVar("Content", bound=Config)

# The files that a fine-tuned model has in addition to its base.
TASK_FILE, HEAD_FILE = "task.json", "head.safetensors"
# Rows that are tokenized, sorted by length and predicted together: memory stays the same for any number of rows.
_WINDOW = 2_048


class TaskDescription(Config):
    """The content of `task.json`; folders of earlier versions lack the keys that have a default."""

    model_config = ConfigDict(extra="ignore")

    task: TaskName
    labels: Labels
    columns: Columns
    classifier_dropout: float
    frozen: bool = False
    task_model: str = POOLING
    compose: bool = False
    templates: tuple[Template, Template] | None = None
    padding: int | None = None
    pooled: Pooled | None = None
    lexical: bool = False

    @classmethod
    def read(cls, folder: Path) -> TaskDescription:
        """Return what a folder's file says; raise FolderError if it is damaged."""
        path = folder / TASK_FILE
        described = parse_part(cls, read_json(path), path)
        if not described.labels.outputs:
            raise FolderError(f"{path} names no {described.labels.target}", expected="what the outputs mean")
        return described

    def build_model(self, base: Model, tokenizer: Tokenizer) -> TaskModel:
        """Return the base with a head for the weights of the folder."""
        outputs, dropout = self.labels.outputs, self.classifier_dropout
        if self.templates is not None:
            return SequenceModel(base, outputs, self.templates, self.padding, dropout=dropout)
        model = build_task_model(
            base,
            tokenizer,
            self.task,
            outputs,
            dropout=dropout,
            frozen=self.task_model if self.frozen else None,
            pooled=self.pooled is not None,
            lexical=self.lexical,
        )
        if isinstance(model, PooledModel):
            model.pooled = self.pooled or model.pooled
        return model


@dataclass
class Prediction:
    """The label that a fine-tuned model gives one row.

    label: class name, list of labels, score, or number of the right answer, counted as in training; None for a row
    without text, which has no prediction. probabilities: by class name, level or answer; empty for a linear score.
    cut: tokens of the row that did not fit the context; tokens: those that were read, of all its sequences.
    """

    row: int
    label: str | int | float | list[str] | None
    probabilities: dict[str, float]
    cut: int = 0
    tokens: int = 0

    @property
    def output(self) -> int:
        """The index of the most probable output; 0 for a linear score."""
        values = list(self.probabilities.values())
        return values.index(max(values)) if values else 0


@dataclass
class FineTuned:
    """A language model with a head for one task."""

    model: TaskModel = field(repr=False)
    tokenizer: Tokenizer
    task: TaskName
    labels: Labels
    columns: Columns = field(default_factory=Columns)  # of the training rows
    compose: bool = False  # whether rows are brought into Unicode's composed form, as those of the training were
    seen: Seen | None = field(default=None, repr=False)  # rows of the training; None if a folder has no record

    @property
    def templates(self) -> tuple[Template, Template] | None:
        """What stands around one text and around two, of a classifier of transformers; else None."""
        return self.model.templates if isinstance(self.model, SequenceModel) else None

    def as_read(self, rows: Iterable[Raw]) -> Iterable[Raw]:
        """Return rows in the Unicode form of the training."""
        return map(Raw.composed, rows) if self.compose else rows

    def encode(self, rows: Iterable[Raw], labels: Labels | None = None, name: str = "") -> Encoded:
        """Encode rows for this model, with their targets if `labels` are given; see `inputs.encode`."""
        model, rows = self.model, list(self.as_read(rows))
        reading: dict[str, Any] = {"targets": labels and labels.targets(rows, name), "name": name}
        if isinstance(model, PooledModel):
            reading |= {"template": model.template, "apart": True, "ngrams": model.lexical}
        elif self.templates is not None:
            reading["template"] = self.templates[self.task != "classify"]
        return encode(rows, self.task, self.tokenizer, model.model.config.context, **reading)

    def for_task(self, task: TaskName) -> FineTuned:
        """Return this for one text or for two, whose order counts: a classifier of transformers reads either.

        A model that Headwater fine-tuned is returned unchanged, for its own task.
        """
        if self.templates is None or task == "choice":
            return self
        return replace(self, task="classify" if task == "classify" else "entail")

    def probabilities(self, encoded: Encoded) -> npt.NDArray[np.float32]:
        """Return P(y | x), (examples, outputs or most answers); 0 for an answer that an example does not have."""
        return self.model.predict(encoded, self.labels)[0]

    def predict(self, rows: Iterable[Raw]) -> Iterator[Prediction]:
        """Yield the rows' predictions in order, in constant memory."""
        iterator = iter(rows)
        while window := list(islice(iterator, _WINDOW)):
            encoded = self.encode(window)
            counts = np.diff(encoded.first)
            tokens = np.diff(encoded.starts[encoded.first]).tolist()
            found = zip(window, counts, self.probabilities(encoded), encoded.cut.tolist(), tokens, strict=True)
            for row, count, share, cut, read in found:
                prediction = self.prediction(row.row, share[:count] if self.task == "choice" else share)
                empty = row.is_empty(self.task)
                yield Prediction(row.row, None, {}) if empty else replace(prediction, cut=cut, tokens=read)

    def decide(self, probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return (examples,): the index of the most probable output, or the expected score.

        Of several labels (examples, outputs): 1 for each with a probability of at least one half, else 0.
        """
        if self.labels.target == "labels":
            return (probabilities >= 0.5).astype(np.float64)
        if self.labels.linear:
            return probabilities[:, 0].astype(np.float64)
        if self.labels.target == "score":
            levels = np.array(self.labels.levels)
            return np.clip(
                probabilities.astype(np.float64) @ levels, levels[0], levels[-1]
            )  # float32 sums to 1 nearly
        return probabilities.argmax(axis=1).astype(np.float64)

    def prediction(self, number: int, share: npt.NDArray[np.float32]) -> Prediction:
        """Return one row's prediction from its probabilities, (outputs or answers,)."""
        names, first, decision = self.labels.output_names, self.labels.first_answer, self.decide(share[None])[0]
        if self.labels.target == "labels":
            chosen = [name for name, has in zip(names, decision, strict=True) if has]
            return Prediction(number, chosen, {n: round(float(p), 6) for n, p in zip(names, share, strict=True)})
        decided = float(decision)
        label: str | int | float = round(decided, 6)
        if self.labels.linear:
            return Prediction(number, label, {})
        if self.labels.target == "class":
            label = names[int(decided)]
        elif self.labels.target == "answer":
            names, label = [str(first + index) for index in range(len(share))], first + int(decided)
        return Prediction(number, label, {n: round(float(p), 6) for n, p in zip(names, share, strict=True)})

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder."""
        from safetensors.torch import save_file

        save_model(self.model.model, folder, tokenizer=self.tokenizer)
        head = {k: v.detach().float().cpu().contiguous() for k, v in self.model.head.state_dict().items()}
        save_file(head, folder / HEAD_FILE)
        write_json(folder / TASK_FILE, self.describe())
        if self.seen is not None:
            self.seen.save(folder)

    def describe(self) -> dict[str, Any]:
        """Return the content of `task.json`: what the outputs and the columns mean."""
        return {
            "task": self.task,
            # Without keys at their defaults, which earlier versions do not know.
            "labels": {k: v for k, v in asdict(self.labels).items() if k not in ("answer_texts", "linear") or v},
            "columns": self.columns.to_dict(),
            "classifier_dropout": self.model.dropout,
            "frozen": isinstance(self.model, FrozenTaskModel),
            "compose": self.compose,
        } | (
            {"task_model": self.model.reader}
            if isinstance(self.model, FrozenTaskModel)
            else {"templates": self.templates, "padding": self.model.padding}
            if isinstance(self.model, SequenceModel)
            else {"pooled": self.model.pooled} | ({"lexical": True} if self.model.lexical else {})
            if isinstance(self.model, PooledModel)
            else {}
        )

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a folder has a fine-tuned model, Headwater's or a classifier of transformers."""
        return (folder / TASK_FILE).is_file() or class_of(folder) is not None

    @staticmethod
    def columns_of(folder: Path) -> Columns | None:
        """Return the columns of the rows that the model in a folder was trained on, without loading it."""
        return TaskDescription.read(folder).columns if (folder / TASK_FILE).is_file() else None

    @classmethod
    def keys_of(cls, folder: Path) -> dict[str, Any]:
        """Return the keys that a training with the head of a folder takes from it, without loading the model.

        Raises FolderError for a folder that is not a fine-tuned model, UsageError for a head of transformers.
        """
        if not (folder / TASK_FILE).is_file():
            if class_of(folder) is None:
                raise _not_fine_tuned(folder)
            raise no_head(folder, "it is one of transformers")
        described = TaskDescription.read(folder)
        if described.templates is not None or described.lexical:
            raise no_head(folder, "it reads TF-IDF" if described.lexical else "it is one of transformers")
        keys: dict[str, Any] = {"task": described.task, "target": described.labels.target, "keep_head": True}
        keys |= {"compose": described.compose}
        keys |= {"recipe": "lp-ft"} if described.pooled else {}
        return keys | ({"freeze": True, "task_model": described.task_model} if described.frozen else {})

    @classmethod
    def load(
        cls, folder: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> FineTuned:
        """Open a folder that `save` or `headwater finetune` wrote, or a classifier of transformers in float32.

        Raises FolderError for any other.
        """
        if not (folder / TASK_FILE).is_file():
            if class_of(folder) is None:
                raise _not_fine_tuned(folder)
            classifier, tokenizer, labels = read_classifier(folder, device)
            return cls(classifier, tokenizer, "classify", labels)
        described = TaskDescription.read(folder)
        # One of transformers gives its probabilities, in float32. Loading compares the folder with its manifest.
        base = load_model(folder, dtype=dtype if described.templates is None else torch.float32, device=device)
        tokenizer = Tokenizer.load(folder)
        model = described.build_model(base, tokenizer)
        try:
            model.head.load_state_dict(read_tensors(folder / HEAD_FILE))
        except (OSError, RuntimeError) as error:
            raise FolderError(f"{folder / HEAD_FILE} is missing or damaged: {error}") from None
        model.head.to(device)
        return cls(
            model.eval(),
            tokenizer,
            described.task,
            described.labels,
            described.columns,
            described.compose,
            Seen.load(folder),
        )


def _not_fine_tuned(folder: Path) -> FolderError:
    """Return the error of a folder without a fine-tuned model; raise that of an unfinished training."""
    if has_manifest(folder):
        open_folder(folder)
    there = shipped.find(folder).is_dir()
    seen = "is not a fine-tuned model: it has no task.json" if there else "does not exist"
    if head := other_head(folder):
        seen = f"is a {head}, whose head Headwater does not have"
    base, out = map(shlex.quote, (str(folder), "DIR") if there else (shipped.DEFAULT, str(folder)))
    return FolderError(
        f"{folder} {seen}",
        expected="a folder that fine-tuning wrote",
        repair=f"Make one: headwater finetune --model {base} --task classify --train FILE --out {out}",
    )


def build_task_model(
    base: Model,
    tokenizer: Tokenizer,
    task: TaskName,
    outputs: int,
    *,
    dropout: float,
    frozen: str | None = None,
    pooled: bool = False,
    lexical: bool = False,
    seed: int = 0,
) -> TaskModel:
    """Return the base with an untrained head.

    frozen: the task model over an unchanged base. pooled: whether the head reads one vector a text; lexical: and
    its n-grams.
    """
    if pooled:
        template = text_template(tokenizer, base.config)
        return PooledModel(base, task, outputs, template, dropout=dropout, seed=seed, lexical=lexical)
    delimiter = tokenizer.task_tokens.delimiter
    if frozen is None:
        return TaskModel(base, task, outputs, dropout=dropout, seed=seed, delimiter=delimiter)
    return FrozenTaskModel(base, task, outputs, delimiter=delimiter, reader=frozen, dropout=dropout, seed=seed)


def no_head(folder: Path | str, reason: str) -> UsageError:
    """Return the error of a training that would keep a head which it cannot train."""
    return UsageError(
        f"the head of {folder} cannot be kept: {reason}",
        repair="Start from it with a new head: --model in place of --from",
    )


def parse_part(kind: type[Content], described: Any, path: Path) -> Content:
    """Parse a part of a JSON file; raise FolderError, not the UsageError of an option, if it is invalid."""
    try:
        return kind.build(described, source=str(path))
    except (UsageError, AttributeError, TypeError, ValueError) as error:
        raise FolderError(f"{path} is damaged: {error}") from None


def fingerprint(model: torch.nn.Module) -> str:
    """Return a hash of a model's weights: of a matrix, of the sums of its rows and columns as integers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in model.named_parameters():
        values = parameter.detach().contiguous()
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        if values.dim() == 2 and values.shape[1] * values.element_size() % 8 == 0:
            words = values.view(torch.int64)
            parts = [words.sum(dim=0), words.sum(dim=1)]
        else:
            parts = [values.flatten().view(torch.uint8)]
        for part in parts:
            digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()
