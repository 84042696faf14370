"""Classifiers of transformers: `GPT2ForSequenceClassification`, `OpenAIGPTForSequenceClassification`, BERT's.

GPT's classes read the last token that is not padding through one linear layer without a bias, BERT's the first one
through the pooler, tanh and a linear layer. The classes are named by `id2label`; `num_labels` 1 is a regression,
whose output is the score itself. AutoTokenizer's template stands around the texts (`tokenizer.Template`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwater.errors import DataError
from headwater.finetuning.model.batches import Batch
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.rows.labels import Labels
from headwater.model import load_model, read_tensors
from headwater.reading import read_object
from headwater.tokenizer import Template, Tokenizer, read_templates

if TYPE_CHECKING:
    from headwater.model import Model

CLASSES = {
    "gpt2": "GPT2ForSequenceClassification",
    "openai-gpt": "OpenAIGPTForSequenceClassification",
    "bert": "BertForSequenceClassification",
}
# Our names of the head's tensors by the file's.
_GPT = {"score.weight": "weight"}
_BERT = {f"classifier.{part}": part for part in ("weight", "bias")}
_BERT |= {f"bert.pooler.dense.{part}": f"pooler.{part}" for part in ("weight", "bias")}
_OTHER_HEAD = re.compile("For(?!MaskedLM|PreTraining|CausalLM)|DoubleHeads")


class SequenceHead(nn.Linear):
    """The linear layer, and BERT's pooler in front of it."""

    def __init__(self, width: int, outputs: int, pooled: bool) -> None:
        super().__init__(width, outputs)
        self.pooler = nn.utils.skip_init(nn.Linear, width, width) if pooled else None

    def reset_parameters(self) -> None:
        """Do nothing: the weights are those of a folder."""


class SequenceModel(TaskModel):
    """A language model and the head of transformers' classes. padding: the id that GPT's do not read, or None."""

    head: SequenceHead

    def __init__(
        self,
        model: Model,
        outputs: int,
        templates: tuple[Template, Template],
        padding: int | None,
        *,
        dropout: float = 0.1,
    ) -> None:
        config, pair = model.config, templates[1]
        if config.is_causal and pair.typed:
            raise DataError(
                "the tokenizer gives a GPT token_type_ids, which transformers adds to its embeddings as tokens",
                expected="model_input_names without token_type_ids in tokenizer_config.json",
            )
        head = SequenceHead(config.output_width, outputs, pooled=config.is_masked)
        delimiter = pair.between[0] if pair.second else None
        super().__init__(model, "classify", outputs, dropout=dropout, head=head, delimiter=delimiter)
        self.templates, self.padding = templates, padding

    def file_tensors(self) -> dict[str, Tensor]:
        """Return the head by transformers' names."""
        state = self.head.state_dict()
        return {name: state[ours].detach().float() for name, ours in _names(self.model).items()}

    def summary(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the vector that the linear layer reads: (sequences, time, width) -> (sequences, width)."""
        if self.head.pooler is not None:
            return torch.tanh(self.head.pooler(hidden[:, 0].to(self.head.pooler.weight.dtype)).float())
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        read = positions <= batch.extract[:, None]
        if self.padding is not None:
            read &= batch.ids != self.padding
        return hidden[torch.arange(len(hidden), device=hidden.device), (positions * read).argmax(dim=1)]


def _names(model: Model) -> dict[str, str]:
    return _BERT if model.config.is_masked else _GPT


def class_of(folder: Path) -> str | None:
    """Return the class of a classifier of transformers in a folder, which Headwater has; else None.

    A folder that names no class is one if it has the tensors of the head.
    """
    if named := _architectures(folder):
        return next((name for name in named if name in CLASSES.values()), None)
    kind = str(read_object(folder / "config.json").get("model_type"))
    names = _BERT if kind == "bert" else _GPT
    return CLASSES[kind] if kind in CLASSES and read_tensors(folder, names).keys() == names.keys() else None


def other_head(folder: Path) -> str | None:
    """Return the class of a model of transformers in a folder with the head for another task; else None."""
    return next((name for name in _architectures(folder) if _OTHER_HEAD.search(name)), None)


def _architectures(folder: Path) -> list[str]:
    named = read_object(folder / "config.json").get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def read_classifier(folder: Path, device: torch.device | str) -> tuple[SequenceModel, Tokenizer, Labels]:
    """Open a classifier of transformers, in float32: the model, its tokenizer, and what the outputs mean.

    Raises DataError for a head that does not fit `config.json`, and for a kind of labels that Headwater does not
    have.
    """
    content = read_object(folder / "config.json")
    labels = _labels(content, folder)
    model = load_model(folder, device=device)
    tokenizer = Tokenizer.load(folder)
    tokenizer.require_rows(model.config.vocabulary)
    padding = content.get("pad_token_id")
    dropout = content.get("classifier_dropout")
    task_model = SequenceModel(
        model,
        labels.outputs,
        read_templates(folder, tokenizer),
        padding if isinstance(padding, int) and model.config.is_causal else None,
        dropout=model.config.dropout if dropout is None else float(dropout),
    )
    state = task_model.head.state_dict()
    names = _names(model)
    found = read_tensors(folder, names)
    for name, ours in names.items():
        if name not in found or found[name].shape != state[ours].shape:
            seen = f"has {name} of shape {tuple(found[name].shape)}" if name in found else f"lacks {name}"
            raise DataError(
                f"the head in {folder} {seen}", expected=f"shape {tuple(state[ours].shape)}, as config.json says"
            )
        state[ours] = found[name]
    state["bias"] = state["bias"] if model.config.is_masked else torch.zeros(labels.outputs)
    task_model.head.load_state_dict(state)
    task_model.head.to(device)
    return task_model.eval(), tokenizer, labels


def _labels(content: Mapping[str, Any], folder: Path) -> Labels:
    """Return what the outputs mean, by `id2label`, `num_labels` and `problem_type`."""
    path = folder / "config.json"
    named = content.get("id2label")
    if named is None:
        count = content.get("num_labels", content.get("_num_labels", 2))
        if not isinstance(count, int) or count < 1:
            raise DataError(f"{path} has num_labels = {count!r}", expected="a number of classes")
        named = {str(number): f"LABEL_{number}" for number in range(count)}
    try:
        names = [str(name) for _, name in sorted((int(key), name) for key, name in named.items())]
        in_order = sorted(map(int, named)) == list(range(len(names)))
    except (AttributeError, TypeError, ValueError):
        in_order = False
    if not in_order or len(set(names)) < len(names):
        raise DataError(f"{path} has id2label = {str(named)[:100]}", expected="a name for each number from 0")
    problem = content.get("problem_type") or ("regression" if len(names) == 1 else "single_label_classification")
    if problem == "regression" and len(names) == 1:
        return Labels(target="score", linear=True)
    if problem == "multi_label_classification":
        return Labels(target="labels", names=names)
    if problem != "single_label_classification" or len(names) < 2:
        raise DataError(
            f"{path} has problem_type = {problem!r} for {len(names)} outputs, which Headwater does not have",
            expected="single_label_classification, multi_label_classification, or regression for one output",
        )
    return Labels(target="class", names=names)
