from .conversion import convert
from .gguf import write_gguf

__all__ = ["convert", "write_gguf"]
