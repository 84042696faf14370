"""Everything in C: the sources, the choice of a variant by CPU feature, and the checks of what reaches it.

`kernels(variant=None)` returns an immutable handle on the kernels of one variant, or None if none were compiled.
Its methods check lengths, dtypes, strides and ids before memory reaches C. No call changes anything global.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
