"""Corpora: build a folder of documents from sources, split it, and make labelled data from it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
