"""Read the files that people bring: text, JSON and tables; plain or compressed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
