"""Everything in C: the sources, the build's variants by CPU feature, and the choice among them."""

from headwater.native.dispatch import available, chosen, extension

__all__ = ["available", "chosen", "extension"]
