from .conversion import convert
from .gguf import write_gguf
from .token_files import convert_tokens, holds_tokens

__all__ = ["convert", "convert_tokens", "holds_tokens", "write_gguf"]
