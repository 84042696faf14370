from .flow import Quickstart, quickstart
from .labels import make_labels
from .stages import build_corpus, evaluate, pretrain, train_tokenizer

__all__ = [
    "Quickstart",
    "build_corpus",
    "evaluate",
    "make_labels",
    "pretrain",
    "quickstart",
    "train_tokenizer",
]
