"""GPT-1 and GPT-2 from raw text to a served model. These are the public names; each is imported on first use."""

from __future__ import annotations

import gc
import importlib
import sys
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
    value = getattr(_imported(_HOMES[name]), name)
    globals()[name] = value
    return value


def _imported(module: str) -> Any:
    """The module. If torch comes with it, garbage is not looked for among what imports leave behind for good.

    Looking takes a sixth of that time and finds nothing, again at every large allocation afterwards.
    """
    if "torch" in sys.modules or not gc.isenabled():
        return importlib.import_module(module)
    gc.collect()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def __dir__() -> list[str]:
    return __all__
