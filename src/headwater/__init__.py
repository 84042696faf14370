"""GPT-1 and GPT-2 from raw text to a served model. These are the public names; each is imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.errors import HeadwaterError
    from headwater.finetune.estimator import Classifier, Entailment, MultipleChoice, Similarity
    from headwater.language_model import LanguageModel, load
    from headwater.tokenizer import Tokenizer

_HOMES = {
    "Classifier": "headwater.finetune.estimator",
    "Entailment": "headwater.finetune.estimator",
    "HeadwaterError": "headwater.errors",
    "LanguageModel": "headwater.language_model",
    "MultipleChoice": "headwater.finetune.estimator",
    "Similarity": "headwater.finetune.estimator",
    "Tokenizer": "headwater.tokenizer",
    "load": "headwater.language_model",
}

__all__ = [
    "Classifier",
    "Entailment",
    "HeadwaterError",
    "LanguageModel",
    "MultipleChoice",
    "Similarity",
    "Tokenizer",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
