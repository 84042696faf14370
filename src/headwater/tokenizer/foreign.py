"""Tokenizers of other kinds, run by the `tokenizers` library with the ids of transformers' AutoTokenizer.

AutoTokenizer takes `tokenizer.json` as it is for a general class, as `PreTrainedTokenizerFast`. For a class of its
own it takes only the vocabulary from there and makes the other steps itself: `GPT2Tokenizer` splits at bytes and
adds a space before a text if `tokenizer_config.json` says so, `OpenAIGPTTokenizer` and `BertTokenizer` clean text
as BERT. `described` returns what it would run. Then come the tokens that `tokenizer_config.json` adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.reading import read_object
from headwater.tokenizer.roles import tokenizer_settings
from headwater.tokenizer.vocabulary import AddedToken, Vocabulary, characters_to_bytes, join_surrogates

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
# The class of a model's tokenizer where no file names one.
_CLASSES = {"gpt2": "GPT2Tokenizer", "openai-gpt": "OpenAIGPTTokenizer", "bert": "BertTokenizer"}
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ForeignCodec:
    """Text to ids and back with the `tokenizers` library; special tokens are plain text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._by_allowed: dict[frozenset[str], Any] = {}
        self._library = self.library(frozenset())
        content = json.loads(vocabulary.library)
        show = _shown(content.get("decoder"))
        self.token_bytes = [
            token.encode() if token in vocabulary.specials else show(token) for token in vocabulary.tokens
        ]
        model = content["model"]
        # A vocabulary of single characters drops any other one, without a trace in the ids.
        alone = model.get("type") == "BPE" and not model.get("merges") and not model.get("unk_token")
        self._characters = frozenset(model["vocab"]) if alone and not content.get("pre_tokenizer") else None

    def library(self, allowed: frozenset[str]) -> Any:
        """Return the library's tokenizer that reads the `allowed` special tokens as such, others as plain text."""
        from tokenizers import Tokenizer

        if allowed not in self._by_allowed:
            content = json.loads(self.vocabulary.library)
            for entry in content["added_tokens"]:
                entry["special"] = entry["special"] and entry["content"] not in allowed
            made = Tokenizer.from_str(json.dumps(content))
            made.encode_special_tokens = True
            self._by_allowed[allowed] = made
        return self._by_allowed[allowed]

    def encode_batch(self, texts: Sequence[str], allowed: frozenset[str] = frozenset()) -> list[list[int]]:
        """Return the ids of each text. Raises DataError for a character that the vocabulary would lose."""
        clean = [
            text if text.isascii() else join_surrogates(text).encode("utf-8", "replace").decode() for text in texts
        ]
        if self._characters is not None:
            names = allowed | {token.content for token in self.vocabulary.unusual}
            for text in clean:
                lost = set(text) - self._characters
                if lost and not any(name in text for name in names):
                    raise DataError(
                        f"the tokenizer has no {min(lost)!r}: its {len(self._characters):,} tokens are characters",
                        expected="a text of these characters",
                    )
        return [e.ids for e in self.library(allowed).encode_batch_fast(clean, add_special_tokens=False)]

    def encode_array(
        self, texts: Sequence[str], allowed: frozenset[str] = frozenset()
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        parts = self.encode_batch(texts, allowed)
        ids = np.array(list(chain.from_iterable(parts)), np.uint32)
        return ids, np.cumsum([0, *map(len, parts)], dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, with special tokens."""
        return str(self._library.decode(list(ids), skip_special_tokens=False))


def described(folder: Path) -> dict[str, Any] | None:
    """Return the JSON of the tokenizer that AutoTokenizer runs, without the tokens that other files add.

    None for a folder of vocabulary files only, unless they need a step that ours do not have.
    """
    content, settings = read_object(folder / "tokenizer.json"), read_object(folder / "tokenizer_config.json")
    name = tokenizer_class(folder)
    if not content:
        return None
    model = content.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise DataError(
            f"{folder / 'tokenizer.json'} has no vocabulary", expected="a file of the tokenizers library"
        )
    if name == "GPT2Tokenizer" and isinstance(model["vocab"], dict) and "merges" in model:
        return gpt2_content(model["vocab"], model["merges"], bool(settings.get("add_prefix_space")), content)
    bert = {"type": "BertPreTokenizer"}
    if name == "OpenAIGPTTokenizer" and isinstance(model["vocab"], dict) and "merges" in model:
        cleaning = _bert_cleaning({})
        own = {"unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": "</w>"}
        made = _bpe(model["vocab"], model["merges"], own)
        return (
            content
            | {"normalizer": cleaning, "pre_tokenizer": bert, "model": made}
            | _decoder("BPEDecoder", "</w>")
        )
    if name == "BertTokenizer" and isinstance(model["vocab"], dict):
        pieces = {"unk_token": settings.get("unk_token", "[UNK]"), "continuing_subword_prefix": "##"}
        made = {"type": "WordPiece", **pieces, "max_input_chars_per_word": 100, "vocab": model["vocab"]}
        cleaning = _bert_cleaning(settings)
        steps = {"normalizer": cleaning, "pre_tokenizer": bert, "model": made}
        return content | steps | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    return content


def gpt2_content(
    vocab: Mapping[str, int], merges: Sequence[Any], prefix_space: bool, content: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON of transformers' GPT2Tokenizer for a vocabulary and its merges."""
    split = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": True}
    own = {"unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    steps = {"normalizer": None, "pre_tokenizer": split, "decoder": {**split, "add_prefix_space": True}}
    return {"version": "1.0", "added_tokens": [], **(content or {}), **steps, "model": _bpe(vocab, merges, own)}


def _bpe(vocab: Mapping[str, int], merges: Sequence[Any], own: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"dropout": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **own, **rest, "vocab": vocab, "merges": merges}


def _decoder(kind: str, suffix: str) -> dict[str, Any]:
    return {"decoder": {"type": kind, "suffix": suffix}}


def _bert_cleaning(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    }


def tokenizer_class(folder: Path) -> str:
    """Return the class that AutoTokenizer opens a folder with, without "Fast"; empty if no file names one."""
    config = read_object(folder / "config.json")
    named = read_object(folder / "tokenizer_config.json").get("tokenizer_class") or config.get("tokenizer_class")
    return str(named or _CLASSES.get(str(config.get("model_type")), "")).removesuffix("Fast")


def read_foreign(content: Mapping[str, Any], folder: Path) -> Vocabulary:
    """Return the vocabulary of a tokenizer that `described` returned, with the added tokens of all files.

    Raises DataError if the library refuses it, as for a merge of unknown tokens.
    """
    import tokenizers

    path = folder / "tokenizer.json"
    settings = tokenizer_settings(folder)
    raw = read_object(folder / "tokenizer_config.json")
    own = tokenizer_class(folder) in _CLASSES.values()
    # A class of its own takes the added tokens from the other files where these list them.
    replaced = own and isinstance(raw.get("added_tokens_decoder"), dict)
    plain = {**content, "padding": None, "truncation": None, "post_processor": None}
    try:
        made = tokenizers.Tokenizer.from_str(json.dumps({**plain, "added_tokens": []} if replaced else plain))
        present = {repr(token) for token in made.get_added_tokens_decoder().values()}
        tokens = [token for token in _listed(raw, folder) if repr(token) not in present]
        names = {token.content for token in made.get_added_tokens_decoder().values()} | {t.content for t in tokens}
        more = raw.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
        roles = [settings[role] for role in _NAMED if isinstance(settings.get(role), str)]
        for name in [*roles, *(more if isinstance(more, list) else more.values())]:
            text = name["content"] if isinstance(name, dict) else str(name)
            if text not in names:
                tokens.append(tokenizers.AddedToken(text, special=True))
                names.add(text)
        made.add_tokens(tokens)
    except Exception as error:  # the library's own class
        raise DataError(f"{path} cannot be read: {error}"[:300], repair="Get the file again") from None
    saved = json.loads(made.to_str())
    ids = made.get_vocab(with_added_tokens=True)
    texts = [""] * (max(ids.values(), default=-1) + 1)
    for text, number in ids.items():
        texts[number] = text
    fields = AddedToken._fields
    entries = [AddedToken(**{key: entry[key] for key in fields}) for entry in saved["added_tokens"]]
    specials = {entry.content: ids[entry.content] for entry in entries}
    unusual = tuple(entry for entry in entries if entry != AddedToken(entry.content))
    library = json.dumps(saved, ensure_ascii=False)
    return Vocabulary("foreign", tuple(texts), (), specials, unusual=unusual, library=library)


def _listed(settings: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the tokens in `added_tokens_decoder`, or in the older `added_tokens.json`, in the order of ids."""
    import tokenizers

    listed = settings.get("added_tokens_decoder")
    if isinstance(listed, dict):
        known = {"lstrip", "rstrip", "single_word", "normalized", "special"}
        return [
            tokenizers.AddedToken(entry["content"], **{key: entry[key] for key in known & entry.keys()})
            for _, entry in sorted(listed.items(), key=lambda item: int(item[0]))
        ]
    special = {str(settings.get(role)) for role in _NAMED}
    older = read_object(folder / "added_tokens.json")
    return [
        tokenizers.AddedToken(text, normalized=text not in special, special=text in special)
        for text, _ in sorted(older.items(), key=lambda item: item[1])
    ]


def of_characters(characters: Mapping[str, int]) -> Vocabulary:
    """Return the tokenizer whose tokens are these characters, as nanoGPT's `meta.pkl` has them."""
    own = {"unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    steps = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"}}
    model = _bpe(dict(characters), [], own)
    content: dict[str, Any] = {"version": "1.0", "added_tokens": [], **steps, "model": model}
    tokens = sorted(characters, key=characters.__getitem__)
    return Vocabulary("foreign", tuple(tokens), (), {}, library=json.dumps(content, ensure_ascii=False))


def _shown(decoder: Mapping[str, Any] | None) -> Any:
    """Return the function from a token to the bytes that it adds to a text, after other tokens."""
    steps = decoder.get("decoders", [decoder]) if decoder else []
    by_type = {step["type"]: step for step in steps}
    fallback = "ByteFallback" in by_type

    def show(token: str) -> bytes:
        if fallback and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        if "ByteLevel" in by_type:
            try:
                return characters_to_bytes(token)
            except KeyError:  # a token that was added as text
                return token.encode()
        if "WordPiece" in by_type:
            prefix = by_type["WordPiece"].get("prefix", "##")
            return token.removeprefix(prefix).encode() if token.startswith(prefix) else f" {token}".encode()
        if "BPEDecoder" in by_type:
            return token.replace(by_type["BPEDecoder"].get("suffix", "</w>"), " ").encode()
        if "Metaspace" in by_type:
            return token.replace(by_type["Metaspace"].get("replacement", "\u2581"), " ").encode()
        for step in steps:
            if step["type"] == "Replace" and "String" in step.get("pattern", {}):
                token = token.replace(step["pattern"]["String"], step["content"])
        return token.encode() if steps else f" {token}".encode()

    return show
