"""Training: one loop for pre-training and fine-tuning, independent of the objective and the text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
