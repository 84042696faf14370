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
from headwater.finetuning.features import FrozenTaskModel
from headwater.finetuning.fine_tuned import FineTuned
from headwater.model import save_model
from headwater.reading import read_json
from headwater.storage import Stage, write_json
from headwater.tokenizer import PADDING, TASK_TOKENS, TaskTokens

_CLASSES = {
    "gpt2": "GPT2ForSequenceClassification",
    "openai-gpt": "OpenAIGPTForSequenceClassification",
    "bert": "BertForSequenceClassification",
}
_EPSILON = 2.0**-12  # a power of two: no rounding


def export_classifier(source: Path, destination: Path) -> dict[str, Any]:
    """Write the fine-tuned model in `source` as a new folder; return what was written.

    Raises UsageError, with the reason, for a model without an equivalent class in transformers.
    """
    fine_tuned = FineTuned.load(source)
    kind = _class_of(fine_tuned, source)
    stage = Stage(destination, kind="model", config={"class": _CLASSES[kind]}, inputs={"fine-tuned": source})
    if not stage.is_complete():
        with stage.write() as work:
            _write(fine_tuned, kind, work)
    return {
        "source": "fine-tuned",
        "destination": str(destination),
        "parameters": sum(parameter.numel() for parameter in fine_tuned.model.parameters()),
        "class": _CLASSES[kind],
        "tokenizer": fine_tuned.tokenizer.kind,
    }


def _class_of(fine_tuned: FineTuned, source: Path) -> str:
    kind = fine_tuned.model.model.config.model_type
    reasons = {
        isinstance(fine_tuned.model, FrozenTaskModel): "its head reads a mixture of layers (--freeze)",
        fine_tuned.task == "similarity": "it adds the outputs of both orders of the two texts",
        fine_tuned.task == "choice": "it compares one sequence for each answer",
        kind not in _CLASSES: f"transformers has no architecture for it ({kind})",
    }
    if True in reasons:
        raise UsageError(
            f"{source} cannot be written for AutoModelForSequenceClassification: {reasons[True]}",
            expected="a GPT-1, GPT-2 or BERT, fine-tuned whole with --task classify, entail or regress",
            repair="Predict with it here: headwater predict",
        )
    return kind


def _write(fine_tuned: FineTuned, kind: str, work: Path) -> None:
    head, tokenizer = fine_tuned.model.head, fine_tuned.tokenizer
    weight, bias = head.weight.detach().float(), head.bias.detach().float()
    model: Any = copy.deepcopy(fine_tuned.model.model)
    if kind == "bert":
        width = model.config.width
        tensors = {
            "bert.pooler.dense.weight": torch.eye(width) * _EPSILON,
            "bert.pooler.dense.bias": torch.zeros(width),
            "classifier.weight": weight / _EPSILON,
            "classifier.bias": bias,
        }
    else:
        norm = model.final_norm if model.config.final_norm else model.blocks[-1].norm_2
        with torch.no_grad():
            norm.bias += _folded(weight, bias)
        tensors = {"score.weight": weight}
    specials = tokenizer.special_tokens
    padding = PADDING if PADDING in specials else TASK_TOKENS[0]  # the start token is never a sequence's last
    names = fine_tuned.labels.output_names
    keys = {
        "architectures": [_CLASSES[kind]],
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": "single_label_classification",
        "pad_token_id": specials[padding],
        "classifier_dropout": fine_tuned.model.dropout,
    }
    save_model(model, work, tokenizer=tokenizer, head=tensors, keys=keys)
    if kind != "bert" or tokenizer.kind != "wordpiece":
        _frame_texts(tokenizer.task_tokens, padding, work)


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


def _frame_texts(tokens: TaskTokens, padding: str, work: Path) -> None:
    """Make transformers' tokenizer add start, delimiter and extract tokens as fine-tuning did."""
    ids = dict(zip(TASK_TOKENS, tokens, strict=True))
    start, delimiter, extract = ({"SpecialToken": {"id": name, "type_id": 0}} for name in TASK_TOKENS)
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    last = {"SpecialToken": {"id": TASK_TOKENS[2], "type_id": 1}}
    content = read_json(work / "tokenizer.json")
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, first, extract],
        "pair": [start, first, delimiter, second, last],
        "special_tokens": {name: {"id": name, "ids": [id_], "tokens": [name]} for name, id_ in ids.items()},
    }
    write_json(work / "tokenizer.json", content)
    # The general class uses tokenizer.json unchanged.
    settings = read_json(work / "tokenizer_config.json")
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": padding, "padding_side": "right"}
    write_json(work / "tokenizer_config.json", settings)
