"""`kernels`: a handle on the compiled kernels of one variant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from headwater.native.dispatch import chosen, extension
from headwater.native.elementwise import Elementwise


@dataclass(frozen=True)
class Kernels(Elementwise):
    """The kernels of one variant: those of `Elementwise`, and those that `transformer` takes from `library`."""

    variant: str

    def give_way(self) -> None:
        """Give other threads' calls priority over those of the calling thread, even while one of these runs."""
        self.library.headwater_give_way(1)


@cache
def kernels(variant: str | None = None) -> Kernels | None:
    """Return the kernels of `variant`, by default the best for this processor; None if none were compiled.

    HEADWATER_CPU names another default. A variant that cannot run here gives one warning and the next lower one.
    """
    name = chosen(variant)
    library = extension(name) if name else None
    return Kernels(library, name) if library is not None and name is not None else None
