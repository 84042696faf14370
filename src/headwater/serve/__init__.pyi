from .config import ServeConfig
from .server import serve

__all__ = ["ServeConfig", "serve"]
