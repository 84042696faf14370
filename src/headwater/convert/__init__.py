"""Models from OpenAI's original releases and Hugging Face's folders, into Hugging Face's folders and GGUF."""

from headwater.convert.conversion import convert

__all__ = ["convert"]
