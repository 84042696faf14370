from .errors import HeadwaterError
from .finetuning.estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .inference.language_model import LanguageModel, load
from .tokenizer.tokenizer import Tokenizer

__version__: str
__all__ = [
    "Classifier",
    "Entailment",
    "HeadwaterError",
    "LanguageModel",
    "MultipleChoice",
    "Regressor",
    "Similarity",
    "Tokenizer",
    "load",
]
