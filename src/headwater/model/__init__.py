"""Models: their configuration (`config`), their computation (`transformer`), and their folders."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
