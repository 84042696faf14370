"""Tokenizers as the JSON of the `tokenizers` library: one builder for each kind, for reading and for writing.

BERT's encoding (Devlin et al. 2019, section 3) cleans a text, lower-cases it by default, splits it at spaces and
punctuation, and splits each word greedily from its start: the longest piece in the vocabulary, then the longest
that continues it (written with `##`). A word without such a split is one `[UNK]`. Kind gpt1 has BERT's rules for
splitting, as `transformers` writes it: the library cannot express GPT-1's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.tokenizer.vocabulary import UNKNOWN, WORD_END

CONTINUES = "##"
# BERT's settings by their names in `tokenizer_config.json`, with its defaults. Accents None: as `do_lower_case`.
RULES: dict[str, bool | None] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_LONGEST_WORD = 100  # characters; a longer word is `[UNK]`, as in BERT's own code
# The rules by their names in the normalizer of `tokenizer.json`.
NORMALIZER_KEYS = {
    "tokenize_chinese_chars": "handle_chinese_chars",
    "strip_accents": "strip_accents",
    "do_lower_case": "lowercase",
}
_BERT_SPLIT = {"type": "BertPreTokenizer"}


def whole(steps: Mapping[str, Any], added: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the JSON of a tokenizer from its steps and its added tokens."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), **steps}


def gpt2_steps(
    vocab: Mapping[str, int], merges: Sequence[Any], *, prefix_space: bool = False, decoder_space: bool = False
) -> dict[str, Any]:
    """Return the steps of GPT-2's tokenizer; prefix_space: it adds a space before a text."""
    split, decoder = (
        {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": True}
        for space in (prefix_space, decoder_space)
    )
    return _steps(None, split, decoder, _bpe(vocab, merges, None, "", ""))


def gpt1_steps(vocab: Mapping[str, int], merges: Sequence[Any]) -> dict[str, Any]:
    """Return the steps of transformers' OpenAIGPTTokenizer."""
    decoder = {"type": "BPEDecoder", "suffix": WORD_END}
    return _steps(_bert_normalizer(RULES), _BERT_SPLIT, decoder, _bpe(vocab, merges, UNKNOWN, None, WORD_END))


def bert_steps(
    vocab: Mapping[str, int], rules: Mapping[str, bool | None], unknown: str, frame: tuple[str, str]
) -> dict[str, Any]:
    """Return the steps of BERT's tokenizer; frame: the tokens that transformers puts before and after a text."""
    model = {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": _LONGEST_WORD,
        "vocab": vocab,
    }
    decoder = {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True}
    template = None
    if all(token in vocab for token in frame):
        first, last = ([token, vocab[token]] for token in frame)
        template = {"type": "BertProcessing", "cls": first, "sep": last}
    return {**_steps(_bert_normalizer(rules), _BERT_SPLIT, decoder, model), "post_processor": template}


def _bert_normalizer(rules: Mapping[str, bool | None]) -> dict[str, Any]:
    cleaned = {key: rules[name] for name, key in NORMALIZER_KEYS.items()}
    return {"type": "BertNormalizer", "clean_text": True, **cleaned}


def _bpe(
    vocab: Mapping[str, int], merges: Sequence[Any], unknown: str | None, prefix: str | None, suffix: str
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
    }


def _steps(normalizer: Any, pre_tokenizer: Any, decoder: Any, model: Any) -> dict[str, Any]:
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
