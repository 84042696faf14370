import tempfile
from pathlib import Path

import tiktoken
from transformers import AutoTokenizer

from headwater.tokenizer import PATTERN, Tokenizer

tokenizer = Tokenizer.train(["The river bends; it's wide here.\n" * 50], vocab_size=300)
text = "It's the river, wide and 안녕."

folder = Path(tempfile.mkdtemp())
tokenizer.save(folder)
auto = AutoTokenizer.from_pretrained(folder)
assert auto(text).input_ids == tokenizer.encode(text)

encoding = tiktoken.Encoding(
    "rivers",
    pat_str=PATTERN,
    mergeable_ranks=tokenizer.ranks(),
    special_tokens=tokenizer.special_tokens,
)
assert encoding.encode(text) == tokenizer.encode(text)

assert Tokenizer.load(folder).identity == tokenizer.identity  # also one that transformers saved
