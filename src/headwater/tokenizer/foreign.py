"""Tokenizers of other kinds, run by the `tokenizers` library with the ids of transformers' AutoTokenizer.

AutoTokenizer takes `tokenizer.json` as it is for a general class, as `PreTrainedTokenizerFast`. For a class of its
own it takes only the vocabulary from there and makes the other steps itself: `GPT2Tokenizer` splits at bytes and
adds a space before a text if `tokenizer_config.json` says so, `OpenAIGPTTokenizer` and `BertTokenizer` clean text
as BERT. `described` returns what it would run. Then come the tokens that `tokenizer_config.json` adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from headwater.errors import DataError
from headwater.reading import read_text
from headwater.tokenizer import library
from headwater.tokenizer.folder import CLASSES, SETTINGS, TOKENIZER, TokenizerFiles
from headwater.tokenizer.vocabulary import (
    CLASSIFY,
    SEPARATOR,
    AddedToken,
    Encoded,
    Vocabulary,
    as_unicode,
    characters_to_bytes,
)

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
# What no tokenizer in use comes near: it would take the time or memory of the process.
_LONGEST_PATTERN = 2_000  # characters of a regular expression
_MOST_STEPS = 200  # of cleaning, splitting and decoding together
_MOST_GROWTH = 256  # bytes that these make of one byte
_CALL_TEXTS = 256
_FLAGS = {"lstrip", "rstrip", "single_word", "normalized", "special"}
VOCABULARY_FILE = "vocab.txt"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class LibraryCodec:
    """Text to ids and back with the `tokenizers` library, by a vocabulary's JSON of it."""

    def __init__(self, vocabulary: Vocabulary, content: dict[str, Any]) -> None:
        self.vocabulary, self._content = vocabulary, content
        self._by_allowed: dict[frozenset[str], Any] = {}
        model = content["model"]
        # A vocabulary of single characters drops any other one, without a trace in the ids.
        alone = model.get("type") == "BPE" and not model.get("merges") and not model.get("unk_token")
        self._characters = frozenset(model["vocab"]) if alone and not content.get("pre_tokenizer") else None

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes that each token adds to a text, after other tokens."""
        show, plain = _shown(self._content.get("decoder")), self.vocabulary.plain_ids
        return [show(token) if token in plain else token.encode() for token in self.vocabulary.tokens]

    def names(self, allowed: frozenset[str]) -> set[str]:
        """Return the added tokens that a text may have as such: ordinary ones, and the `allowed` special ones."""
        return {token.content for token in self.vocabulary.added if not token.special or token.content in allowed}

    def library(self, allowed: frozenset[str]) -> Any:
        """Return the library's tokenizer that reads the `allowed` special tokens as such, others as plain text."""
        from tokenizers import Tokenizer

        if allowed not in self._by_allowed:
            entries = [
                {**entry, "special": entry["special"] and entry["content"] not in allowed}
                for entry in self._content["added_tokens"]
            ]
            made = Tokenizer.from_str(json.dumps({**self._content, "added_tokens": entries}))
            made.encode_special_tokens = True
            self._by_allowed[allowed] = made
        return self._by_allowed[allowed]

    def cut(self, text: str) -> Iterable[str]:
        """Return the parts in which a text is encoded: all of it, as any step may look across a cut."""
        return [text]

    def encode_batch(self, texts: Sequence[str], allowed: frozenset[str]) -> list[list[int]]:
        """Return the ids of each text.

        Raises DataError for a lone surrogate, for a character that the vocabulary would lose, and for a text on
        which the library gives up, as its search with a regular expression does after many tries.
        """
        ids: list[list[int]] = [[] for _ in texts]
        for owner, part in self._encoded(texts, allowed):
            ids[owner] = ids[owner] + part if ids[owner] else part
        return ids

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        parts, counts = [np.zeros(0, np.uint32)], np.zeros(len(texts) + 1, np.int64)
        for owner, part in self._encoded(texts, allowed):
            parts.append(np.array(part, np.uint32))
            counts[owner + 1] += len(part)
        return np.concatenate(parts), np.cumsum(counts)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, with special tokens."""
        with _library_errors("the tokenizers library gives up on these ids"):
            return str(self.library(frozenset()).decode(list(ids), skip_special_tokens=False))

    def _encoded(self, texts: Sequence[str], allowed: frozenset[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the ids of each part of each text, with the number of the text."""
        clean = as_unicode(texts)
        if self._characters is not None:
            self._require_characters(clean, allowed)
        encoder = self.library(allowed)
        parts = [(owner, part) for owner, text in enumerate(clean) for part in self.cut(text)]
        repair = "Leave that text out, or use a tokenizer with a simpler pattern"
        for start in range(0, len(parts), _CALL_TEXTS):
            group = parts[start : start + _CALL_TEXTS]
            with _library_errors("the tokenizers library gives up on a text", repair):
                encoded = encoder.encode_batch_fast([part for _, part in group], add_special_tokens=False)
            for (owner, _), encoding in zip(group, encoded, strict=True):
                yield owner, encoding.ids

    def _require_characters(self, texts: Sequence[str], allowed: frozenset[str]) -> None:
        assert self._characters is not None
        names = allowed | {token.content for token in self.vocabulary.unusual}
        for text in texts:
            lost = set(text) - self._characters
            if lost and not any(name in text for name in names):
                raise DataError(
                    f"the tokenizer has no {min(lost)!r}: its {len(self._characters):,} tokens are characters",
                    expected="a text of these characters",
                )


class WordPieceCodec(LibraryCodec):
    """Text to ids and back for a vocabulary of kind "wordpiece"."""

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes of each token, with a space before a piece that begins a word."""
        return [library.piece_text(token).encode() for token in self.vocabulary.tokens]

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text; case, accents and the original spaces were lost in encoding."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8").removeprefix(" ")


def described(files: TokenizerFiles) -> dict[str, Any] | None:
    """Return the JSON of the tokenizer that AutoTokenizer runs, without the tokens that other files add.

    None for a folder that has no tokenizer.json and no vocab.txt.
    """
    folder, content, name, steps = files.folder, files[TOKENIZER], files.tokenizer_class, {}
    if not content:
        path = folder / VOCABULARY_FILE
        if not path.is_file():
            return None
        words: dict[str, int] = {}
        for number, line in enumerate(read_text(path).removesuffix("\n").split("\n")):
            if (first := words.setdefault(line.removesuffix("\r"), number)) != number:
                raise DataError(
                    f"{path} has {line!r} on lines {first + 1} and {number + 1}", expected="each token once"
                )
        return library.whole(_bert(words, files))
    model = content.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise DataError(
            f"{folder / 'tokenizer.json'} has no vocabulary", expected="a file of the tokenizers library"
        )
    if isinstance(model["vocab"], list):
        return content
    if name == "GPT2Tokenizer" and "merges" in model:
        prefix_space = bool(files.settings.get("add_prefix_space"))
        steps = library.gpt2_steps(model["vocab"], model["merges"], prefix_space=prefix_space, decoder_space=True)
    elif name == "OpenAIGPTTokenizer" and "merges" in model:
        steps = library.gpt1_steps(model["vocab"], model["merges"])
    elif name == "BertTokenizer":
        steps = _bert(model["vocab"], files)
    return {"added_tokens": [], **content, **steps}


def _bert(vocab: Mapping[str, int], files: TokenizerFiles) -> dict[str, Any]:
    """Return the steps of transformers' BertTokenizer; raise DataError for a rule that is not true or false."""
    rules = {name: files.settings.get(name, default) for name, default in library.RULES.items()}
    for name, value in rules.items():
        if not isinstance(value, bool) and value is not library.RULES[name]:  # a default may be None
            raise DataError(
                f"{files.folder / SETTINGS} has {name} = {str(value)[:40]!r}", expected="true or false"
            )
    return library.bert_steps(vocab, rules, unknown=files.settings.get("unk_token", library.UNKNOWN_WORD))


def read_bert(content: Mapping[str, Any], files: TokenizerFiles) -> Vocabulary:
    """Return the vocabulary of a tokenizer that `described` returned and that is BERT's.

    Raises DataError for ids with gaps, and for an added token with another id than its place.
    """
    made, vocab, normalizer = read_foreign(content, files), content["model"]["vocab"], content["normalizer"]
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise DataError(
            f"{files.folder} does not number its {len(vocab):,} tokens",
            expected=f"ids 0 to {len(vocab) - 1}, each once",
        )
    for entry, index in files.listed:
        own = made.ids.get(entry["content"])
        if own != index:
            raise DataError(
                f"{files.folder} gives the added token {entry['content']!r} the id {index}", expected=str(own)
            )
    rules = {name: normalizer.get(key, library.RULES[name]) for name, key in library.NORMALIZER_KEYS.items()}
    names = sorted({*library.SPECIALS, *made.specials}, key=made.ids.__getitem__)
    return replace(
        made,
        kind="wordpiece",
        library="",
        rules=tuple(sorted(rules.items())),
        pieces=len(vocab),
        specials={name: made.ids[name] for name in names},
    )


def written_bert_steps(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the steps of a vocabulary of kind wordpiece, with BERT's `[CLS] … [SEP]` template."""
    vocab = {token: index for index, token in enumerate(vocabulary.tokens[: vocabulary.pieces])}
    template = {
        "type": "BertProcessing",
        "sep": [SEPARATOR, vocabulary.ids[SEPARATOR]],
        "cls": [CLASSIFY, vocabulary.ids[CLASSIFY]],
    }
    return library.bert_steps(vocab, dict(vocabulary.rules), cleanup=False) | {"post_processor": template}


def read_foreign(content: Mapping[str, Any], files: TokenizerFiles) -> Vocabulary:
    """Return the vocabulary of a tokenizer that `described` returned, with the added tokens of all files.

    Raises DataError if the library refuses it, as for a merge of unknown tokens.
    """
    import tokenizers

    folder = files.folder
    _require_bounded(content, folder)
    settings, raw = files.settings, files[SETTINGS]
    own = files.tokenizer_class in CLASSES.values()
    # A class of its own takes the added tokens from the other files where these list them.
    replaced = own and isinstance(raw.get("added_tokens_decoder"), dict)
    model = {**content["model"], **({"dropout": None} if "dropout" in content["model"] else {})}  # for training
    plain = {**content, "model": model, "padding": None, "truncation": None, "post_processor": None}
    with _library_errors(f"the tokenizer of {folder} cannot be read", "Get its files again"):
        made = tokenizers.Tokenizer.from_str(json.dumps({**plain, "added_tokens": []} if replaced else plain))
        present = {repr(token) for token in made.get_added_tokens_decoder().values()}
        listed = [
            tokenizers.AddedToken(entry["content"], **{key: entry[key] for key in _FLAGS & entry.keys()})
            for entry, _ in files.listed
        ]
        tokens = [token for token in listed if repr(token) not in present]
        names = {token.content for token in made.get_added_tokens_decoder().values()} | {t.content for t in tokens}
        more = raw.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
        roles = [settings[role] for role in _NAMED if isinstance(settings.get(role), str)]
        for name in [*roles, *(more if isinstance(more, list) else more.values())]:
            text = name["content"] if isinstance(name, dict) else str(name)
            if text not in names:
                tokens.append(tokenizers.AddedToken(text, special=True))
                names.add(text)
        made.add_tokens(tokens)
        return _vocabulary(made)


@contextmanager
def _library_errors(what: str, repair: str = "") -> Iterator[None]:
    """Raise DataError for an error of the library: an Exception, or its PanicException, which is none."""
    try:
        yield
    except (MemoryError, DataError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{what}: {error}"[:300], repair=repair) from None


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
    for parts in (("normalizer", "pre_tokenizer"), ("decoder",)):
        rest, steps, growth = [content.get(part) for part in parts], 0, 1.0
        while rest:
            step = rest.pop()
            if isinstance(step, list):
                rest += step
            if not isinstance(step, dict):
                continue
            rest += [value for value in step.values() if isinstance(value, dict | list)]
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
    """Return at most how many bytes a step makes of one byte, each time that it runs."""
    if step.get("type") == "ByteLevel":
        return 2
    if step.get("type") != "Replace":
        return 1
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else ""
    replaced = len(text.encode(errors="replace")) if isinstance(text, str) else 1
    return max(1.0, len(str(step.get("content")).encode(errors="replace")) / max(1, replaced))


def _vocabulary(made: Any) -> Vocabulary:
    """Return a tokenizer of the library as a vocabulary."""
    saved = json.loads(made.to_str())
    ids = made.get_vocab(with_added_tokens=True)
    texts = [""] * (max(ids.values(), default=-1) + 1)
    for text, number in ids.items():
        if texts[number]:
            raise DataError(f"tokenizer.json gives {texts[number]!r} and {text!r} the same id {number}")
        texts[number] = text
    fields = AddedToken._fields
    entries = [AddedToken(**{key: entry[key] for key in fields}) for entry in saved["added_tokens"]]
    specials = {entry.content: ids[entry.content] for entry in entries}
    unusual = tuple(entry for entry in entries if entry != AddedToken(entry.content))
    written = json.dumps(saved, ensure_ascii=False)
    return Vocabulary("foreign", tuple(texts), (), specials, unusual=unusual, library=written)


def of_characters(characters: Mapping[str, int]) -> Vocabulary:
    """Return the tokenizer whose tokens are these characters, as nanoGPT's `meta.pkl` has them."""
    from tokenizers import Tokenizer, decoders, models

    made = Tokenizer(models.BPE(vocab=dict(characters), merges=[]))
    made.decoder = decoders.Fuse()
    return _vocabulary(made)


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
