from .flow import Quickstart, quickstart
from .labels.labels import choose_tasks, make_labels
from .stages import build_corpus, evaluate, pretrain, train_tokenizer

__all__ = [
    "Quickstart",
    "build_corpus",
    "choose_tasks",
    "evaluate",
    "make_labels",
    "pretrain",
    "quickstart",
    "train_tokenizer",
]
