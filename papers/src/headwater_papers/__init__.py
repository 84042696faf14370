"""Run the papers' experiments again: a module and a page for each experiment, a TOML file for each scale."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
