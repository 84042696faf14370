"""Models that ship inside the package, and what the name of a model means.

Each is a model folder next to this file, made by `tools/ship.py` from a run: Hugging Face's files in bf16, the
curve and the scores that its card is written from, and the card. They need no other file and no network.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
