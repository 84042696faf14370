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

_NAMES = {
    "headwater.errors": ("HeadwaterError",),
    "headwater.finetune.estimators": ("Classifier", "Entailment", "MultipleChoice", "Regressor", "Similarity"),
    "headwater.language_model": ("LanguageModel", "load"),
    "headwater.stages": ("build_corpus", "evaluate", "pretrain", "train_tokenizer"),
    "headwater.tokenizer": ("Tokenizer",),
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
    for module, names in _NAMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
