"""Write files and folders that survive a crash, with provenance and lineage; locks, known resources, progress."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
