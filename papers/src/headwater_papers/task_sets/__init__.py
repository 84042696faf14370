"""GPT-1's task sets: where their files are, their rows, and fine-tuning on each of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
