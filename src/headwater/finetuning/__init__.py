"""Fine-tuning: GPT-1's method, for the paper's tasks and for users' own tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
