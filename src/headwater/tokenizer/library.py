"""Tokenizers as the JSON of the `tokenizers` library: one builder for each kind, and `read_library` for any other.

BERT's encoding (Devlin et al. 2019, section 3) cleans a text, lower-cases it by default, splits it at spaces and
punctuation, and splits each word greedily from its start: the longest piece in the vocabulary, then the longest
that continues it (written with `##`). A word without such a split is one `[UNK]`. Kind gpt1 has BERT's rules for
splitting, as `transformers` writes it: the library cannot express GPT-1's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from headwater.errors import DataError
from headwater.tokenizer.vocabulary import UNKNOWN, WORD_END, AddedToken, Vocabulary

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
# What no tokenizer in use comes near: it would take the time or memory of the process.
_LONGEST_PATTERN = 2_000  # characters of a regular expression
_MOST_STEPS = 200  # of cleaning, splitting and decoding
_MOST_GROWTH = 256  # bytes that these make of one byte


def gpt2_json(vocab: Mapping[str, int], merges: Sequence[Any], *, prefix_space: bool = False) -> dict[str, Any]:
    """Return GPT-2's tokenizer; prefix_space: it adds a space before a text."""
    step = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": True}
    return _whole(None, step, step, _bpe(vocab, merges, None, "", ""))


def gpt1_json(vocab: Mapping[str, int], merges: Sequence[Any]) -> dict[str, Any]:
    """Return transformers' OpenAIGPTTokenizer."""
    decoder = {"type": "BPEDecoder", "suffix": WORD_END}
    return _whole(_bert_normalizer(RULES), _BERT_SPLIT, decoder, _bpe(vocab, merges, UNKNOWN, None, WORD_END))


def bert_json(
    vocab: Mapping[str, int], rules: Mapping[str, bool | None], unknown: str, frame: Sequence[str]
) -> dict[str, Any]:
    """Return BERT's tokenizer; frame: the tokens that transformers puts before and after a text."""
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
    return {**_whole(_bert_normalizer(rules), _BERT_SPLIT, decoder, model), "post_processor": template}


def characters_json(vocab: Mapping[str, int]) -> dict[str, Any]:
    """Return the tokenizer whose tokens are single characters."""
    return _whole(None, None, {"type": "Fuse"}, _bpe(vocab, [], None, None, None))


def _bert_normalizer(rules: Mapping[str, bool | None]) -> dict[str, Any]:
    cleaned = {key: rules[name] for name, key in NORMALIZER_KEYS.items()}
    return {"type": "BertNormalizer", "clean_text": True, **cleaned}


def _bpe(
    vocab: Mapping[str, int], merges: Sequence[Any], unknown: str | None, prefix: str | None, suffix: str | None
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


def _whole(normalizer: Any, pre_tokenizer: Any, decoder: Any, model: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def library_json(vocabulary: Vocabulary, *, specials: bool = True) -> dict[str, Any]:
    """Return a vocabulary as the JSON of the library; `specials` False: special tokens are plain text.

    Kind gpt1 is written as by `transformers`, with BERT's rules for splitting: the library cannot express GPT-1's,
    so its ids differ from ours where the rules do.
    """
    if vocabulary.kind == "foreign":
        return vocabulary.library
    make = gpt2_json if vocabulary.kind == "gpt2" else gpt1_json
    merges = [list(pair) for pair in vocabulary.merges]
    if not specials:
        return make(vocabulary.plain_ids, merges)
    added = [{"id": index, **entry} for index, entry in added_entries(vocabulary).items()]
    return {**make(vocabulary.ids, merges), "added_tokens": added}


def added_entries(vocabulary: Vocabulary) -> dict[int, dict[str, Any]]:
    """Return each added token as the library describes it, by its id."""
    tokens = (*([AddedToken(UNKNOWN)] if vocabulary.kind == "gpt1" else []), *vocabulary.added)
    return {vocabulary.ids[token.content]: token._asdict() for token in tokens}


def read_library(
    content: Mapping[str, Any], listed: Iterable[AddedToken], names: Iterable[str], folder: Path
) -> Vocabulary:
    """Return the vocabulary of a tokenizer in JSON, with the listed tokens and the special tokens of these names.

    Raises DataError for one that would take more time or memory than any in use, and the library's error for one
    that it refuses, as for a merge of unknown tokens.
    """
    import tokenizers

    _require_bounded(content, folder)
    model = {**content["model"], **({"dropout": None} if "dropout" in content["model"] else {})}  # for training
    plain = {**content, "model": model, "padding": None, "truncation": None}
    made = tokenizers.Tokenizer.from_str(json.dumps(plain))
    present = made.get_added_tokens_decoder().values()
    tokens = [tokenizers.AddedToken(**token._asdict()) for token in listed]
    known, texts = {repr(token) for token in present}, {token.content for token in (*present, *tokens)}
    made.add_tokens([token for token in tokens if repr(token) not in known])
    made.add_special_tokens([name for name in names if name not in texts])
    saved, ids = json.loads(made.to_str()), made.get_vocab(with_added_tokens=True)
    by_id = [""] * (max(ids.values(), default=-1) + 1)
    for text, number in ids.items():
        if by_id[number]:
            raise DataError(f"tokenizer.json gives {by_id[number]!r} and {text!r} the same id {number}")
        by_id[number] = text
    added = tuple(AddedToken(**{key: entry[key] for key in AddedToken._fields}) for entry in saved["added_tokens"])
    return Vocabulary("foreign", tuple(by_id), (), added, saved)


def _require_bounded(content: Mapping[str, Any], folder: Path) -> None:
    """Raise DataError for a tokenizer that would take more time or memory than any in use."""

    def refuse(seen: str, most: int) -> NoReturn:
        raise DataError(
            f"tokenizer.json of {folder} {seen}", expected=f"at most {most:,}", repair="Get its files again"
        )

    added = content.get("added_tokens")
    listed = [entry.get("id") for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    vocab = content["model"]["vocab"]
    ids = [
        number for number in (*listed, *(vocab.values() if isinstance(vocab, dict) else ())) if type(number) is int
    ]
    most = 2 * (len(vocab) + len(listed)) + (1 << 16)  # some have gaps
    if ids and not 0 <= max(ids) <= most:
        refuse(f"has the token id {f'{max(ids):,}'[:40]} and {len(vocab) + len(listed):,} tokens", most)
    rest: list[Any] = [content.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
    steps, growth = 0, 1.0
    while rest:
        step = rest.pop()
        if isinstance(step, list):
            rest += step
        if not isinstance(step, dict):
            continue
        rest += step.values()
        steps += "type" in step
        growth *= _growth(step)
        pattern = step.get("Regex")
        if isinstance(pattern, str) and len(pattern) > _LONGEST_PATTERN:
            refuse(f"has a pattern of {len(pattern):,} characters", _LONGEST_PATTERN)
        if steps > _MOST_STEPS:
            refuse(f"has more than {_MOST_STEPS} steps", _MOST_STEPS)
        if growth > _MOST_GROWTH:
            refuse(f"makes more than {_MOST_GROWTH} bytes of one", _MOST_GROWTH)


def _growth(step: Mapping[str, Any]) -> float:
    """Return the most bytes that a step writes for one byte, each time that it runs."""
    if step.get("type") == "ByteLevel":
        return 2
    if step.get("type") != "Replace":
        return 1
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else ""
    replaced = len(text.encode(errors="replace")) if isinstance(text, str) else 1
    return max(1.0, len(str(step.get("content")).encode(errors="replace")) / max(1, replaced))


@contextmanager
def library_errors(failure: str, repair: str = "") -> Iterator[None]:
    """Raise DataError for an error of the library: an Exception, or its PanicException, which is not one."""
    try:
        yield
    except (MemoryError, DataError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{failure}: {error}"[:300], repair=repair) from None
