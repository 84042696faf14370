"""Write runs and results to one self-contained HTML page with tables and plots."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
