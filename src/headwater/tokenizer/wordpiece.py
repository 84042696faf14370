"""BERT's encoding: words, then their longest known pieces (Devlin et al. 2019, section 3).

Text is cleaned and optionally lower-cased, split at spaces and punctuation, and each word is split greedily from
its start: the longest piece in the vocabulary, then the longest that continues it (written with `##`). A word
without such a split is one `[UNK]`. `foreign` encodes, with the `tokenizers` library; this module has the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import DataError
from headwater.reading import read_text
from headwater.tokenizer.vocabulary import CLASSIFY, MASK, PADDING, SEPARATOR, Vocabulary

UNKNOWN_WORD = "[UNK]"
CONTINUES = "##"
VOCABULARY_FILE = "vocab.txt"
SPECIALS = (PADDING, UNKNOWN_WORD, CLASSIFY, SEPARATOR, MASK)
# BERT's settings by their names in `tokenizer_config.json`, with its defaults. Accents None: as `do_lower_case`.
RULES: dict[str, bool | None] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_LONGEST_WORD = 100  # characters; a longer word is `[UNK]`, as in BERT's own code
# The rules by their names in the normalizer of `tokenizer.json`.
_NORMALIZER_KEYS = {
    "tokenize_chinese_chars": "handle_chinese_chars",
    "strip_accents": "strip_accents",
    "do_lower_case": "lowercase",
}
# What the parts of BERT's `tokenizer.json` have, besides the rules and the vocabulary.
_PARTS: dict[str, dict[str, Any]] = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "unk_token": UNKNOWN_WORD,
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": _LONGEST_WORD,
    },
}


def piece_text(token: str) -> str:
    """Return a piece's text, with a space before a piece that begins a word."""
    return token.removeprefix(CONTINUES) if token.startswith(CONTINUES) and token != CONTINUES else f" {token}"


def read_vocabulary(folder: Path, content: Mapping[str, Any], added: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary of BERT's encoding in a folder, of which `is_bert` is true.

    content: the tokenizer as the JSON of the library. added: tokens besides those of its model, and their ids.
    Raises DataError for a token that occurs twice, and for an added one with another id.
    """
    normalizer = content["normalizer"]
    rules = {name: normalizer.get(key, RULES[name]) for name, key in _NORMALIZER_KEYS.items()}
    path = folder / "tokenizer.json"
    if path.is_file():  # what AutoTokenizer runs, whatever the older file says
        tokens = _tokens_by_id(content["model"]["vocab"], path)
    else:
        path = folder / VOCABULARY_FILE
        tokens = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    pieces = len(set(tokens))
    tokens += sorted(added.keys() - set(tokens), key=lambda name: added[name])
    seen: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if token in seen:
            raise DataError(f"{path} has {token!r} on lines {seen[token]} and {line}", expected="each token once")
        seen[token] = line
    for name, index in added.items():
        if index != seen[name] - 1:
            raise DataError(
                f"{folder} gives the added token {name!r} the id {index}", expected=str(seen[name] - 1)
            )
    names = sorted({*SPECIALS, *added}, key=seen.__getitem__)
    specials = {name: seen[name] - 1 for name in names}
    rules_by_name = tuple(sorted(rules.items()))
    return Vocabulary("wordpiece", tuple(tokens), (), specials, rules=rules_by_name, pieces=pieces)


def is_bert(content: Mapping[str, Any]) -> bool:
    """Return whether a `tokenizer.json` cleans, splits and continues words as BERT, with BERT's special tokens."""
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        return False
    for part, settings in _PARTS.items():
        step = content.get(part)
        if not isinstance(step, dict) or any(step.get(key) != value for key, value in settings.items()):
            return False
    return all(name in model["vocab"] for name in SPECIALS)


def check_rules(rules: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for a rule that is not true or false."""
    for name, value in rules.items():
        if not isinstance(value, bool) and value is not RULES[name]:  # a default may be None
            raise DataError(f"{path} has {name} = {str(value)[:40]!r}", expected="true or false")


def _tokens_by_id(ids: Mapping[str, Any], path: Path) -> list[str]:
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise DataError(
            f"{path} does not number its {len(ids):,} tokens", expected=f"ids 0 to {len(ids) - 1}, each once"
        )
    return sorted(ids, key=lambda token: int(ids[token]))


def tokenizer_json(vocabulary: Vocabulary, added: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the vocabulary as the JSON of the `tokenizers` library, with BERT's `[CLS] … [SEP]` template."""
    vocab = {token: index for index, token in enumerate(vocabulary.tokens[: vocabulary.pieces])}
    steps = {
        "normalizer": bert_normalizer(dict(vocabulary.rules)),
        "pre_tokenizer": _PARTS["pre_tokenizer"],
        "post_processor": {
            "type": "BertProcessing",
            "sep": [SEPARATOR, vocabulary.ids[SEPARATOR]],
            "cls": [CLASSIFY, vocabulary.ids[CLASSIFY]],
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": False},
        "model": {"type": "WordPiece", **_PARTS["model"], "vocab": vocab},
    }
    return library_json(added, steps)


def bert_normalizer(rules: Mapping[str, bool | None]) -> dict[str, Any]:
    """Return BERT's cleaning of text as a step of the `tokenizers` library."""
    return _PARTS["normalizer"] | {key: rules[name] for name, key in _NORMALIZER_KEYS.items()}


def library_json(added: Mapping[int, Mapping[str, Any]], steps: Mapping[str, Any]) -> str:
    """Return a tokenizer as the JSON of the `tokenizers` library, from its added tokens by id and its steps."""
    entries = [{"id": index, **entry} for index, entry in added.items()]
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": entries, **steps}
    return json.dumps(content, ensure_ascii=False) + "\n"
