from .flow import Quickstart, quickstart
from .labels import make_labels

__all__ = [
    "Quickstart",
    "make_labels",
    "quickstart",
]
