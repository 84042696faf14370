"""Text to token ids and back: the encodings of GPT-2 and GPT-1, exact, and trainable in any language."""

from headwater.tokenizer.compare import Comparison, compare
from headwater.tokenizer.gpt2 import PATTERN
from headwater.tokenizer.tokenizer import Tokenizer, train_tokenizer
from headwater.tokenizer.vocabulary import END_OF_TEXT, TASK_TOKENS, Kind

__all__ = [
    "END_OF_TEXT",
    "PATTERN",
    "TASK_TOKENS",
    "Comparison",
    "Kind",
    "Tokenizer",
    "compare",
    "train_tokenizer",
]
