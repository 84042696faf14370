from .bpe_training import learn_vocabulary
from .codec import PATTERN
from .comparison import Comparison, compare
from .folder import TOKENIZER_CLASSES, missing_tokenizer, read_meta, tokenizer_json
from .losses import LostText, lost_text
from .reference import merge_word, split_gpt1
from .tokenizer import Tokenizer, train_tokenizer
from .vocabulary import (
    END_OF_TEXT,
    MASK,
    NEWLINE,
    TASK_TOKENS,
    WORD_END,
    Kind,
    TaskTokens,
    token_dtype,
)

__all__ = [
    "END_OF_TEXT",
    "MASK",
    "NEWLINE",
    "PATTERN",
    "TASK_TOKENS",
    "TOKENIZER_CLASSES",
    "WORD_END",
    "Comparison",
    "Kind",
    "LostText",
    "TaskTokens",
    "Tokenizer",
    "compare",
    "learn_vocabulary",
    "lost_text",
    "merge_word",
    "missing_tokenizer",
    "read_meta",
    "split_gpt1",
    "token_dtype",
    "tokenizer_json",
    "train_tokenizer",
]
