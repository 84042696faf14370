"""What a trained model does with text: score it (`scorer`) or continue it (`engine`, `sampling`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
