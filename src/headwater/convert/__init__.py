"""Models from OpenAI's original releases and Hugging Face's folders, into Hugging Face's folders and GGUF."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
