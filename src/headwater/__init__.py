"""GPT-1 and GPT-2 from raw text to a served model. These are the public names; each is imported on first use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.errors import HeadwaterError
    from headwater.finetune.estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
    from headwater.language_model import LanguageModel, load
    from headwater.stages import build_corpus, evaluate, pretrain, train_tokenizer
    from headwater.tokenizer import Tokenizer

    __version__: str

_HOMES = {
    "Classifier": "headwater.finetune.estimators",
    "Entailment": "headwater.finetune.estimators",
    "HeadwaterError": "headwater.errors",
    "LanguageModel": "headwater.language_model",
    "MultipleChoice": "headwater.finetune.estimators",
    "Regressor": "headwater.finetune.estimators",
    "Similarity": "headwater.finetune.estimators",
    "Tokenizer": "headwater.tokenizer",
    "build_corpus": "headwater.stages",
    "evaluate": "headwater.stages",
    "load": "headwater.language_model",
    "pretrain": "headwater.stages",
    "train_tokenizer": "headwater.stages",
}

__all__ = [
    "Classifier",
    "Entailment",
    "HeadwaterError",
    "LanguageModel",
    "MultipleChoice",
    "Regressor",
    "Similarity",
    "Tokenizer",
    "__version__",
    "build_corpus",
    "evaluate",
    "load",
    "pretrain",
    "train_tokenizer",
]


class _Package(ModuleType):
    """Module type that keeps `evaluate` and `pretrain` the functions, not the subpackages of these names."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return __getattr__(name) if name in ("evaluate", "pretrain") and isinstance(value, ModuleType) else value


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headwater")
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
