"""Pre-training: objectives, packed tokens, the run, and what it will cost before it is spent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
