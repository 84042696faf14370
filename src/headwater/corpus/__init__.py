"""Corpora: gather documents, clean them, remove duplicates, read and split the folder, compare it with tests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
