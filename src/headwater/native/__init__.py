"""Everything in C: the sources, the choice of a variant by CPU feature, and the torch twin of each kernel.

`kernels(variant=None)` returns an immutable handle on the kernels of one variant, or None if none were compiled.
Its methods check lengths, dtypes, strides and ids before memory reaches C. No call changes anything global.
"""

from typing import TYPE_CHECKING, Any

from headwater.native.dispatch import available, check, chosen, extension

if TYPE_CHECKING:
    from headwater.native.elementwise import Kernels, kernels

__all__ = ["Kernels", "available", "check", "chosen", "extension", "kernels"]


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use: the corpus and the tokenizer use the portable functions without it."""
    if name in ("Kernels", "kernels"):
        from headwater.native import elementwise

        return getattr(elementwise, name)
    raise AttributeError(name)
