"""Training: one loop for pre-training and fine-tuning; it knows neither what is learned nor from which text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
