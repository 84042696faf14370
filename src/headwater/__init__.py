"""GPT-1 and GPT-2 from raw text to a served model. These are the public names; each is imported on first use."""

from typing import Any

import lazy_loader

_lazy, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headwater")
    return _lazy(name)
