"""Models over HTTP: an OpenAI-compatible API, and a page that looks inside the model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
