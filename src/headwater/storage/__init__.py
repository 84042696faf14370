"""Files and folders on disk: atomic writes, locks, provenance and lineage, known resources, and progress."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
