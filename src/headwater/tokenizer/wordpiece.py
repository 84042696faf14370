"""BERT's encoding: words, then their longest known pieces (Devlin et al. 2019, section 3).

Text is cleaned and optionally lower-cased, split at spaces and punctuation, and each word is split greedily from
its start: the longest piece in the vocabulary, then the longest that continues it (written with `##`). A word
without such a split is one `[UNK]`. The `tokenizers` library encodes; this module reads and writes BERT's files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.reading import read_json, read_object, read_text
from headwater.tokenizer.vocabulary import CLASSIFY, MASK, PADDING, SEPARATOR, Vocabulary, join_surrogates

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


class WordPieceCodec:
    """Text to ids and back for a vocabulary of kind "wordpiece"; special tokens are plain text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from tokenizers import Tokenizer

        self.vocabulary = vocabulary
        # Without entries in `added_tokens`, special tokens in a text are plain text.
        self._library = Tokenizer.from_str(tokenizer_json(vocabulary, {}))
        self.token_bytes: list[bytes] = [_text(token).encode() for token in vocabulary.tokens]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        clean = [
            text if text.isascii() else join_surrogates(text).encode("utf-8", errors="replace").decode("utf-8")
            for text in texts
        ]
        encodings = self._library.encode_batch_fast(clean, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_array(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        parts = self.encode_batch(texts)
        ids = np.array(list(chain.from_iterable(parts)), np.uint32)
        return ids, np.cumsum([0, *map(len, parts)], dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text; case, accents and the original spaces were lost in encoding."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8").removeprefix(" ")


def _text(token: str) -> str:
    """Return a piece's text, with a space before a piece that begins a word."""
    return token.removeprefix(CONTINUES) if token.startswith(CONTINUES) and token != CONTINUES else f" {token}"


def read_vocabulary(folder: Path, added: Mapping[str, int]) -> Vocabulary:
    """Read `vocab.txt`, or the WordPiece model in `tokenizer.json`; `added` has more special tokens and their ids.

    A rule is that of `tokenizer_config.json`, else that of the normalizer in `tokenizer.json`, else BERT's.
    Raises DataError for a token that occurs twice, for an added one with another id, for a vocabulary without
    BERT's special tokens, and for a `tokenizer.json` that does not encode as BERT.
    """
    library_path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    library, config = read_object(library_path), read_object(config_path)
    rules = dict(RULES)
    if library:
        _check_parts(library, library_path)
        rules |= _rules(library["normalizer"], _NORMALIZER_KEYS, library_path)
    rules |= _rules(config, {name: name for name in RULES}, config_path)
    path = folder / VOCABULARY_FILE
    if path.is_file():
        tokens = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    else:
        path = library_path
        tokens = _tokens_by_id(library["model"]["vocab"], path)
    tokens += sorted(added.keys() - set(tokens), key=lambda name: added[name])
    seen: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if token in seen:
            raise DataError(f"{path} has {token!r} on lines {seen[token]} and {line}", expected="each token once")
        seen[token] = line
    missing = [name for name in SPECIALS if name not in seen]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)}", expected=f"BERT's special tokens {', '.join(SPECIALS)}"
        )
    for name, index in added.items():
        if index != seen[name] - 1:
            raise DataError(
                f"{folder} gives the added token {name!r} the id {index}", expected=str(seen[name] - 1)
            )
    names = sorted({*SPECIALS, *added}, key=seen.__getitem__)
    specials = {name: seen[name] - 1 for name in names}
    return Vocabulary("wordpiece", tuple(tokens), (), specials, rules=tuple(sorted(rules.items())))


def is_bert(content: Mapping[str, Any]) -> bool:
    """Return whether a `tokenizer.json` cleans, splits and continues words as BERT, with BERT's special tokens."""
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        return False
    try:
        _check_parts(content, Path())
        _rules(content["normalizer"], _NORMALIZER_KEYS, Path())
    except DataError:
        return False
    return all(name in model["vocab"] for name in SPECIALS)


def _check_parts(library: Mapping[str, Any], path: Path) -> None:
    """Raise DataError if a `tokenizer.json` cleans text, splits it or continues words otherwise than BERT."""
    for part, settings in _PARTS.items():
        found = library.get(part)
        for key, value in settings.items():
            seen = found.get(key) if isinstance(found, dict) else found
            if seen != value:
                raise DataError(
                    f"{path} has {part}.{key} = {str(seen)[:40]!r}", expected=f"{value!r}, as BERT has"
                )


def _rules(settings: Mapping[str, Any], keys: Mapping[str, str], path: Path) -> dict[str, bool | None]:
    """Return the rules that `settings` has under `keys`; raise DataError for one that is not true or false."""
    rules = {name: settings[key] for name, key in keys.items() if key in settings}
    for name, value in rules.items():
        if not isinstance(value, bool) and value is not RULES[name]:  # a default may be None
            raise DataError(f"{path} has {keys[name]} = {str(value)[:40]!r}", expected="true or false")
    return rules


def is_wordpiece(folder: Path) -> bool:
    """Return whether the folder's tokenizer is WordPiece."""
    if (folder / VOCABULARY_FILE).is_file():
        return True
    path = folder / "tokenizer.json"
    content = read_json(path) if path.is_file() else None
    model = content.get("model") if isinstance(content, dict) else None
    return isinstance(model, dict) and model.get("type") == "WordPiece" and isinstance(model.get("vocab"), dict)


def _tokens_by_id(ids: Mapping[str, Any], path: Path) -> list[str]:
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise DataError(
            f"{path} does not number its {len(ids):,} tokens", expected=f"ids 0 to {len(ids) - 1}, each once"
        )
    return sorted(ids, key=lambda token: int(ids[token]))


def tokenizer_json(vocabulary: Vocabulary, added: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the vocabulary as the JSON of the `tokenizers` library, with BERT's `[CLS] … [SEP]` template."""
    steps = {
        "normalizer": bert_normalizer(dict(vocabulary.rules)),
        "pre_tokenizer": _PARTS["pre_tokenizer"],
        "post_processor": {
            "type": "BertProcessing",
            "sep": [SEPARATOR, vocabulary.ids[SEPARATOR]],
            "cls": [CLASSIFY, vocabulary.ids[CLASSIFY]],
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": False},
        "model": {"type": "WordPiece", **_PARTS["model"], "vocab": vocabulary.ids},
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
