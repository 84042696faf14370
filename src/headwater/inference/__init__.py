"""Inference: score text with a trained model (`scorer`), or continue it (`engine`, `sampling`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
