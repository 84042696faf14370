"""Text to token ids and back: GPT-2's byte-level encoding and GPT-1's, exact, and trainable in any language."""

from headwater.tokenizer.tokenizer import Tokenizer
from headwater.tokenizer.train import train_tokenizer
from headwater.tokenizer.vocabulary import END_OF_TEXT, TASK_TOKENS, Kind

__all__ = ["END_OF_TEXT", "TASK_TOKENS", "Kind", "Tokenizer", "train_tokenizer"]
