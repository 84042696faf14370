"""Write a fine-tuned model for transformers: `AutoModelForSequenceClassification` returns equal logits.

GPT-1 and GPT-2: transformers reads the last token that is not padding, which is the extract token, and its linear
layer has no bias. Ours has one, c. The last LayerNorm's bias is added to the layer's input and to nothing else, so
it takes the shortest δ with W δ = c.

BERT: transformers reads the first token, as we do, but through a dense layer and tanh. A dense layer ε · 1 and a
linear layer W/ε compute the same up to a relative error of (ε h)²/3, because tanh x = x − x³/3 + … .
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwater.errors import UsageError
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.pooled import PooledModel
from headwater.finetuning.model.sequence import CLASSES, SequenceModel
from headwater.model import save_model
from headwater.reading import read_json
from headwater.storage import Stage, write_json
from headwater.tokenizer import PADDING, TASK_TOKENS, Template, Tokenizer

_EPSILON = 2.0**-12  # a power of two: no rounding


def export_classifier(source: Path, destination: Path) -> dict[str, Any]:
    """Write the fine-tuned model in `source` as a new folder; return what was written.

    Raises UsageError, with the reason, for a model without an equivalent class in transformers.
    """
    fine_tuned = FineTuned.load(source)
    kind = _class_of(fine_tuned, source)
    stage = Stage(destination, kind="model", config={"class": CLASSES[kind]}, inputs={"fine-tuned": source})
    if not stage.is_complete():
        with stage.write() as work:
            _write(fine_tuned, kind, work)
    return {
        "source": "fine-tuned",
        "destination": str(destination),
        "parameters": sum(parameter.numel() for parameter in fine_tuned.model.parameters()),
        "class": CLASSES[kind],
        "tokenizer": fine_tuned.tokenizer.kind,
    }


def _class_of(fine_tuned: FineTuned, source: Path) -> str:
    kind, model = fine_tuned.model.model.config.model_type, fine_tuned.model
    repair = "Predict with it here: headwater predict"
    if isinstance(model, PooledModel):
        reason = "its head reads one vector of each text (a probe or LP-FT)"
        repair = f"Train it with --set recipe=gpt1 for that. {repair}"
    elif isinstance(model, FrozenTaskModel):
        reason = "its head reads a mixture of layers (--freeze)"
    elif kind not in CLASSES:
        reason = f"transformers has no architecture for it ({kind})"
    elif fine_tuned.task == "similarity":
        reason = "it adds the outputs of both orders of the two texts"
    elif fine_tuned.task == "choice":
        reason = "it compares one sequence for each answer"
    else:
        return kind
    raise UsageError(
        f"{source} cannot be written for AutoModelForSequenceClassification: {reason}",
        expected="a GPT-1, GPT-2 or BERT, fine-tuned whole with --task classify, entail or regress",
        repair=repair,
    )


def _write(fine_tuned: FineTuned, kind: str, work: Path) -> None:
    task_model, tokenizer, labels = fine_tuned.model, fine_tuned.tokenizer, fine_tuned.labels
    model: Any = copy.deepcopy(task_model.model)
    if isinstance(task_model, SequenceModel):
        tensors, padding = task_model.file_tensors(), task_model.padding
        one, two = task_model.templates
    else:
        tensors = _head_tensors(task_model, kind, model)
        specials, tokens = tokenizer.special_tokens, tokenizer.task_tokens
        # The start token is never a sequence's last.
        padding = specials[PADDING if PADDING in specials else TASK_TOKENS[0]]
        second = kind == "bert" and model.config.segments > 1
        one = Template((tokens.start,), (), (tokens.extract,), second)
        two = Template((tokens.start,), (tokens.delimiter,), (tokens.extract,), second, second)
    names = labels.output_names or ["LABEL_0"]
    problems = {"labels": "multi_label_classification"}
    keys = {
        "architectures": [CLASSES[kind]],
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": "regression"
        if labels.linear
        else problems.get(labels.target, "single_label_classification"),
        "classifier_dropout": task_model.dropout,
    }
    keys |= {} if padding is None else {"pad_token_id": padding}
    save_model(model, work, tokenizer=tokenizer, head=tensors, keys=keys)
    if kind != "bert" or tokenizer.kind != "wordpiece":
        _frame_texts(one, two, padding, tokenizer, work)


def _head_tensors(task_model: TaskModel, kind: str, model: Any) -> dict[str, Tensor]:
    """Return the head by transformers' names; the last LayerNorm of a GPT takes its bias."""
    head = task_model.head
    weight, bias = head.weight.detach().float(), head.bias.detach().float()
    if kind == "bert":
        width = model.config.width
        return {
            "bert.pooler.dense.weight": torch.eye(width) * _EPSILON,
            "bert.pooler.dense.bias": torch.zeros(width),
            "classifier.weight": weight / _EPSILON,
            "classifier.bias": bias,
        }
    norm = model.final_norm if model.config.final_norm else model.blocks[-1].norm_2
    with torch.no_grad():
        norm.bias += _folded(weight, bias)
    return {"score.weight": weight}


def _folded(weight: Tensor, bias: Tensor) -> Tensor:
    """Return the shortest δ with `weight` δ = `bias`: (outputs, width), (outputs,) -> (width,)."""
    solution = torch.linalg.pinv(weight.double()) @ bias.double()
    if not torch.allclose(weight.double() @ solution, bias.double(), atol=1e-5):
        raise UsageError(
            "the head's bias cannot be folded into the model: its outputs are not independent of each other",
            expected="fewer classes than the model is wide",
            repair="Predict with it here: headwater predict",
        )
    return solution.float()


def _frame_texts(one: Template, two: Template, padding: int | None, tokenizer: Tokenizer, work: Path) -> None:
    """Make transformers' tokenizer put the templates' tokens around texts, as here."""
    names = tokenizer.vocabulary.tokens

    def part(ids: tuple[int, ...], segment: int = 0) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": names[number], "type_id": segment}} for number in ids]

    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": int(two.second)}}
    between = [*part(two.between[:1]), *part(two.between[1:], int(two.second))]
    ids = {*one.before, *one.after, *two.before, *two.between, *two.after}
    template = {
        "type": "TemplateProcessing",
        "single": [*part(one.before), first, *part(one.after)],
        "pair": [*part(two.before), first, *between, second, *part(two.after, int(two.second))],
        "special_tokens": {
            names[number]: {"id": names[number], "ids": [number], "tokens": [names[number]]}
            for number in sorted(ids)
        },
    }
    write_json(work / "tokenizer.json", read_json(work / "tokenizer.json") | {"post_processor": template})
    # The general class uses tokenizer.json unchanged.
    settings = read_json(work / "tokenizer_config.json")
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": "right"}
    settings |= {} if padding is None else {"pad_token": names[padding]}
    settings |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]} if two.typed else {}
    write_json(work / "tokenizer_config.json", settings)
