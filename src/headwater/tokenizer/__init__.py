"""Text to token ids and back: the encodings of GPT-2 and GPT-1, exact, and trainable in any language."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
