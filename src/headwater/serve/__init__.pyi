from .limits import Limits
from .server import serve

__all__ = ["Limits", "serve"]
