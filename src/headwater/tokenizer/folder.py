"""A tokenizer's folder: Hugging Face's files, the two of OpenAI's releases, or nanoGPT's `meta.pkl`.

`read_folder` returns the tokenizer that transformers' AutoTokenizer runs for a folder. AutoTokenizer takes
`tokenizer.json` as it is for a general class, as `PreTrainedTokenizerFast`. For a class of its own it takes only
the vocabulary from there and makes the other steps itself: `GPT2Tokenizer` splits at bytes and adds a space before
a text if `tokenizer_config.json` says so, `OpenAIGPTTokenizer` and `BertTokenizer` clean text as BERT. Then come
the tokens that `tokenizer_config.json` adds. An inconsistency is an error that names its line.

`read_roles` returns the tokens that end, begin and pad a text: by the files of the folder, never by their names.
`generation_config.json` decides each role, else `config.json`, else the tokenizer's own files, as in transformers;
a text may have several ends. `<|endoftext|>` has both roles where no file names one.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError, FolderError, MismatchError
from headwater.reading import read_json, read_object, read_text
from headwater.storage import write_json, write_text
from headwater.tokenizer import library
from headwater.tokenizer.vocabulary import (
    BYTE_CHARACTERS,
    CHARACTER_BYTES,
    CLASSIFY,
    END_OF_TEXT,
    MASK,
    NEWLINE,
    PADDING,
    SEPARATOR,
    TASK_TOKENS,
    UNKNOWN,
    UNKNOWN_WORD,
    WORD_END,
    AddedToken,
    Vocabulary,
    assemble,
)

_TOKENIZER, _SETTINGS, _WORDS, _CHARACTERS = "tokenizer.json", "tokenizer_config.json", "vocab.txt", "meta.pkl"
_PAIRS = (
    ("vocab.json", "merges.txt"),
    ("encoder.json", "vocab.bpe"),
    ("encoder_bpe_40000.json", "vocab_40000.bpe"),
)
# The roles of BERT's tokens where no file names them.
BERT_ROLES = {
    "pad_token": PADDING,
    "unk_token": UNKNOWN_WORD,
    "cls_token": CLASSIFY,
    "sep_token": SEPARATOR,
    "mask_token": MASK,
}
# The class of a model's tokenizer where no file names one.
_CLASSES = {"gpt2": "GPT2Tokenizer", "openai-gpt": "OpenAIGPTTokenizer", "bert": "BertTokenizer"}
# The class names of transformers' tokenizers, by kind.
TOKENIZER_CLASSES = {
    "gpt2": "GPT2Tokenizer",
    "gpt1": "OpenAIGPTTokenizer",
    "foreign": "PreTrainedTokenizerFast",
}
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OTHERS = ("unk_token", "cls_token", "sep_token", "mask_token")


class TokenizerFiles:
    """The JSON files of a folder, each read once. Their content is shared: do not change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the object in a file; empty if the file does not exist."""
        if name not in self._read:
            self._read[name] = read_object(self.folder / name)
        return self._read[name]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """`tokenizer_config.json`, its tokens as texts, with what an older `special_tokens_map.json` adds."""
        content = self[_SETTINGS]
        # transformers reads the older file only where the newer one does not describe the added tokens.
        older = {} if "added_tokens_decoder" in content else self["special_tokens_map.json"]
        merged = {**(BERT_ROLES if self.is_bert else {}), **content, **older}
        for key, value in merged.items():
            if key.endswith("_token") and isinstance(value, dict):
                merged[key] = value.get("content")
        return merged

    @cached_property
    def named(self) -> set[str]:
        """The texts of the tokens with a role."""
        return {str(value) for key, value in self.settings.items() if key.endswith("_token")}

    @cached_property
    def tokenizer_class(self) -> str:
        """The class that AutoTokenizer opens the folder with, without "Fast"; empty if no file names one."""
        config = self["config.json"]
        named = self[_SETTINGS].get("tokenizer_class") or config.get("tokenizer_class")
        return str(named or _CLASSES.get(str(config.get("model_type")), "")).removesuffix("Fast")

    @cached_property
    def is_bert(self) -> bool:
        """Whether AutoTokenizer runs BERT's steps whatever `tokenizer.json` says."""
        has_words_alone = not self[_TOKENIZER] and (self.folder / _WORDS).is_file()
        return has_words_alone or self.tokenizer_class == "BertTokenizer"

    @cached_property
    def listed(self) -> list[tuple[AddedToken, int]]:
        """The added tokens of `tokenizer_config.json`, else of the older `added_tokens.json`, by id."""
        decoder = self[_SETTINGS].get("added_tokens_decoder")
        if isinstance(decoder, dict):
            # Files of old versions have only the text.
            entries = [
                (entry if isinstance(entry, dict) else {"content": entry, "special": True}, i)
                for i, entry in decoder.items()
            ]
            path = self.folder / _SETTINGS
        else:
            path = self.folder / "added_tokens.json"
            entries = [
                ({"content": content, "special": content in self.named}, i)
                for content, i in self["added_tokens.json"].items()
            ]
        tokens = [_added_token(entry, i, path) for entry, i in entries]
        return sorted(tokens, key=lambda item: item[1])

    @cached_property
    def added(self) -> dict[AddedToken, int]:
        """The added tokens of all files, and their ids.

        `tokenizer_config.json` decides how a token is found in a text, else `tokenizer.json`, as in transformers.
        """
        entries, path = self[_TOKENIZER].get("added_tokens") or [], self.folder / _TOKENIZER
        known = entries if isinstance(entries, list) else [entries]
        in_library = [_added_token(entry, None, path) for entry in known]
        newer_first = "added_tokens_decoder" in self[_SETTINGS]
        tokens: dict[str, tuple[AddedToken, int]] = {}
        for token, index in (*self.listed, *in_library) if newer_first else (*in_library, *self.listed):
            tokens.setdefault(token.content, (token, index))
        return dict(tokens.values())


def _added_token(entry: Any, index: Any, path: Path) -> tuple[AddedToken, int]:
    """Return an added token of a file and its id: `index`, or the entry's own if that is None.

    Raises DataError for one without a text and an id.
    """
    try:
        text, number = entry["content"], int(entry["id"] if index is None else index)
        if isinstance(text, str):
            special = bool(entry.get("special"))
            flags = {key: bool(entry[key]) for key in AddedToken._fields[1:] if key in entry}
            return AddedToken(text, **{"normalized": not special, "special": special, **flags}), number
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise DataError(f"{path} names an added token without text and id: {str(entry)[:100]}")


def read_folder(files: TokenizerFiles) -> Vocabulary:
    """Return the vocabulary in a folder, of `tokenizer.json` if it has one, as AutoTokenizer.

    Raises FolderError if there is none, DataError if its files are inconsistent.
    """
    folder, sources = files.folder, (files.folder / _TOKENIZER,) * 2
    if files[_TOKENIZER]:
        content = _of_library(files)
    elif (folder / _WORDS).is_file():
        content = _bert(_read_words(folder / _WORDS), files)
    elif (pair := _pair(folder)) is not None:
        content, sources = _of_pair(*pair, files), pair
    elif (folder / _CHARACTERS).is_file():
        size, characters = read_meta(folder / _CHARACTERS)
        if characters is None:
            raise DataError(
                f"{folder / _CHARACTERS} names {size:,} tokens, but not which",
                expected="the tokenizer of these ids",
                repair="Give it: --tokenizer T",
            )
        content = library.characters_json(characters)
    elif (folder / "config.json").is_file():
        raise missing_tokenizer(folder)
    else:
        raise FolderError(
            f"{folder} has no tokenizer" if folder.exists() else f"{folder} does not exist",
            expected="a folder with tokenizer.json, vocab.json and merges.txt, or vocab.txt",
            repair="Check the path, or train one: headwater tokenizer train SOURCE --out DIR",
        )
    if _is_ours(content):
        model = content["model"]
        return assemble(model["vocab"], _pairs(model["merges"], sources[1]), files.added, *sources)
    # A class of its own takes the added tokens from the other files where these list them.
    if files.tokenizer_class in _CLASSES.values() and isinstance(
        files[_SETTINGS].get("added_tokens_decoder"), dict
    ):
        content = {**content, "added_tokens": []}
    settings = files.settings
    with library.library_errors(f"the tokenizer of {folder} cannot be read", "Get its files again"):
        more = files[_SETTINGS].get("extra_special_tokens") or settings.get("additional_special_tokens") or []
        names = [settings[role] for role in _NAMED if isinstance(settings.get(role), str)]
        for name in more if isinstance(more, list) else more.values():
            names.append(name["content"] if isinstance(name, dict) else str(name))
        return library.read_library(content, [token for token, _ in files.listed], names, folder)


def _of_library(files: TokenizerFiles) -> dict[str, Any]:
    """Return what AutoTokenizer runs for a `tokenizer.json`, without the tokens that other files add."""
    content, name = files[_TOKENIZER], files.tokenizer_class
    model = content.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise DataError(
            f"{files.folder / _TOKENIZER} has no vocabulary", expected="a file of the tokenizers library"
        )
    vocab, steps = model["vocab"], content
    if isinstance(vocab, dict):
        if name == "GPT2Tokenizer" and "merges" in model:
            prefix_space = bool(files.settings.get("add_prefix_space"))
            steps = library.gpt2_json(vocab, model["merges"], prefix_space=prefix_space)
        elif name == "OpenAIGPTTokenizer" and "merges" in model:
            steps = library.gpt1_json(vocab, model["merges"])
        elif files.is_bert:
            steps = _bert(vocab, files)
    return {**steps, "added_tokens": content.get("added_tokens", [])}


def _read_words(path: Path) -> dict[str, int]:
    words: dict[str, int] = {}
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n")):
        if (first := words.setdefault(line.removesuffix("\r"), number)) != number:
            raise DataError(
                f"{path} has {line!r} on lines {first + 1} and {number + 1}", expected="each token once"
            )
    return words


def _bert(vocab: Mapping[str, int], files: TokenizerFiles) -> dict[str, Any]:
    """Return transformers' BertTokenizer; raise DataError for a rule that is not true or false."""
    rules = {name: files.settings.get(name, default) for name, default in library.RULES.items()}
    for name, value in rules.items():
        if not isinstance(value, bool) and value is not library.RULES[name]:  # a default may be None
            raise DataError(
                f"{files.folder / _SETTINGS} has {name} = {str(value)[:40]!r}", expected="true or false"
            )
    unknown, *frame = (str(files.settings[f"{role}_token"]) for role in ("unk", "cls", "sep"))
    return library.bert_json(vocab, rules, unknown, frame)


def _of_pair(vocabulary: Path, merges: Path, files: TokenizerFiles) -> dict[str, Any]:
    """Return what AutoTokenizer runs for a token file and a merges file."""
    ids, pairs = _read_ids(vocabulary), _read_merges(merges)
    if NEWLINE in ids or files.tokenizer_class == "OpenAIGPTTokenizer":
        return library.gpt1_json(ids, pairs)
    added = {token.content for token in files.added} | files.named | {END_OF_TEXT, *TASK_TOKENS}
    for token in ids:
        if not CHARACTER_BYTES.keys() >= set(token) and token not in added:
            raise DataError(
                f"{vocabulary} is not byte-level: {token!r} has a character that does not encode a byte",
                expected="a vocabulary of GPT-2's or GPT-1's kind, or a tokenizer.json, which describes any kind",
                repair="Save it with the tokenizers library: tokenizer.save('tokenizer.json')",
            )
    return library.gpt2_json(ids, pairs, prefix_space=bool(files.settings.get("add_prefix_space")))


def holds_tokenizer(folder: Path) -> bool:
    """Return whether `read_folder` finds the files of a tokenizer in a folder."""
    alone = (_TOKENIZER, _WORDS, _CHARACTERS)
    return any((folder / name).is_file() for name in alone) or _pair(folder) is not None


def _pair(folder: Path) -> tuple[Path, Path] | None:
    pairs = ((folder / vocabulary, folder / merges) for vocabulary, merges in _PAIRS)
    return next((pair for pair in pairs if all(path.is_file() for path in pair)), None)


def missing_tokenizer(model: Path | str) -> MismatchError:
    """Return the error for a trained model without a tokenizer; a new tokenizer would have other ids."""
    return MismatchError(
        f"{model} has no tokenizer",
        expected="tokenizer.json, or vocab.json with merges.txt, next to the weights",
        repair="Add the one that the model was trained with: "
        "headwater convert MODEL NEW --tokenizer DIR (in Python: tokenizer=DIR)",
    )


def read_pair(vocabulary: Path, merges: Path) -> Vocabulary:
    """Return the vocabulary of a token file (JSON, token to id) and a merges file (one pair a line)."""
    return assemble(_read_ids(vocabulary), _read_merges(merges), {}, vocabulary, merges)


def _read_ids(vocabulary: Path) -> dict[str, int]:
    ids = read_json(vocabulary)
    if not isinstance(ids, dict):
        raise DataError(f"{vocabulary} is a JSON {type(ids).__name__}", expected="an object, token to id")
    return ids


def _read_merges(path: Path) -> list[tuple[str, str]]:
    *lines, last = read_text(path).split("\n")
    lines = [line.removesuffix("\r") for line in (*lines, *([last] if last else []))]
    return _pairs(lines[1:] if lines and lines[0].startswith("#version") else lines, path)


def _pairs(merges: Any, path: Path) -> list[tuple[str, str]]:
    """Return merges as pairs, each of which may be a text with one space; raise DataError for anything else."""
    pairs: list[tuple[str, str]] = []
    for number, merge in enumerate(merges if isinstance(merges, list) else [merges], 1):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        parts = pair if isinstance(pair, list | tuple) else ()
        if len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
            raise DataError(
                f"merge {number} of {path} is {str(merge)[:100]!r}",
                expected="two tokens, as a text with one space between them",
                repair="The file is truncated or damaged: get it again",
            )
        pairs.append((parts[0], parts[1]))
    return pairs


def _is_ours(content: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer is GPT-1's or GPT-2's byte-level encoding, with any vocabulary."""
    model = content["model"]
    vocab = model["vocab"]
    if not isinstance(vocab, dict) or "merges" not in model or model.get("type", "BPE") != "BPE":
        return False
    if NEWLINE in vocab and model.get("end_of_word_suffix") == WORD_END:
        return True
    step = content.get("pre_tokenizer")
    unusual = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    return (
        isinstance(step, dict)
        and step.get("type") == "ByteLevel"
        and not step.get("add_prefix_space", True)
        and step.get("use_regex", True) is True
        and not content.get("normalizer")
        and not any(model.get(key) for key in unusual)
        and all(character in vocab for character in BYTE_CHARACTERS)
    )


class _Plain(pickle.Unpickler):
    """Reads dictionaries, texts and numbers; whatever would call something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_meta(path: Path) -> tuple[int, dict[str, int] | None]:
    """Return the size of the vocabulary of nanoGPT's `meta.pkl`, and its characters if these are its tokens.

    Nothing that the pickle names is executed. Raises DataError for another file.
    """
    try:
        with path.open("rb") as handle:
            content = _Plain(handle).load()
        size, ids = content["vocab_size"], content.get("stoi")
        if type(size) is not int or size < 1:
            raise ValueError(f"its vocab_size is {size!r}")
        if ids is None:
            return size, None
        if any(not isinstance(c, str) or len(c) != 1 or type(i) is not int for c, i in ids.items()):
            raise ValueError("a token of its stoi is not a character with an id")
        if sorted(ids.values()) != list(range(size)):
            raise ValueError(f"its {len(ids):,} characters do not have the ids 0 to {size - 1:,}")
    except Exception as error:  # a damaged pickle raises errors of any class
        raise DataError(
            f"{path} is not nanoGPT's description of a vocabulary: {error}",
            expected="vocab_size, stoi and itos, as prepare.py writes them",
        ) from None
    return size, dict(ids)


class Roles(NamedTuple):
    """Ids of the tokens that begin, end and pad a text; names of further roles as in `tokenizer_config.json`."""

    start: int | None = None
    ends: tuple[int, ...] = ()
    padding: int | None = None
    names: tuple[tuple[str, str], ...] = ()


def default_roles(ids: Mapping[str, int]) -> Roles:
    """Return the roles of a vocabulary without files: `<|endoftext|>` begins and ends a text, if it is there."""
    end = ids.get(END_OF_TEXT)
    return Roles(end, () if end is None else (end,))


def read_roles(files: TokenizerFiles, ids: Mapping[str, int], rows: int) -> Roles:
    """Return the roles that the files of a folder give; ids of `rows` or more, which no token has, are ignored.

    ids: of the special tokens by their texts. Raises DataError for a role that is not an id or a token.
    """
    settings, default = files.settings, default_roles(ids)

    def of(role: str, fallback: tuple[int, ...]) -> tuple[int, ...]:
        key = f"{role}_token_id"
        for name in ("generation_config.json", "config.json"):
            value = files[name].get(key)
            tokens = value if isinstance(value, list) else [] if value is None else [value]
            if any(type(token) is not int for token in tokens):
                raise DataError(
                    f"{files.folder / name} has {key} = {str(value)[:60]!r}", expected="an id, or a list of ids"
                )
            if tokens := [token for token in tokens if 0 <= token < rows]:
                return tuple(tokens)
        text = str(settings.get(f"{role}_token"))
        return (ids[text],) if text in ids else fallback

    ends = of("eos", default.ends)
    start = of("bos", ends[:1])
    padding = of("pad", tuple(ids[name] for name in (PADDING,) if name in ids))
    others = ((role, settings.get(role)) for role in _OTHERS)
    names = tuple((role, name) for role, name in others if isinstance(name, str) and name in ids)
    return Roles(start[0] if start else None, ends, padding[0] if padding else None, names)


def write_files(vocabulary: Vocabulary, folder: Path, roles: Roles, *, context: int | None = None) -> None:
    """Write Hugging Face's files into an existing folder: four, or two for kind foreign."""
    write_text(folder / _TOKENIZER, tokenizer_json(vocabulary, specials=True))
    limit = {} if context is None else {"model_max_length": context}
    write_json(folder / _SETTINGS, _settings(vocabulary, roles) | limit)
    if vocabulary.kind == "foreign":
        return
    write_json(folder / "vocab.json", vocabulary.ids)
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in vocabulary.merges), ""]
    write_text(folder / "merges.txt", "\n".join(lines))


def tokenizer_json(vocabulary: Vocabulary, *, specials: bool) -> str:
    """Return the text of `tokenizer.json`; `specials` False: special tokens are plain text."""
    return json.dumps(library.library_json(vocabulary, specials=specials), ensure_ascii=False) + "\n"


def _settings(vocabulary: Vocabulary, roles: Roles) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`."""
    end = vocabulary.tokens[roles.ends[0]] if roles.ends else None
    named = {"bos_token": None if roles.start is None else vocabulary.tokens[roles.start], "eos_token": end}
    by_kind: dict[str, dict[str, Any]] = {
        "gpt2": {"add_prefix_space": False, **named, "unk_token": end},
        "gpt1": {"unk_token": UNKNOWN, "do_lower_case": True, **named},
        "foreign": {**named, **dict(roles.names)},
    }
    config: dict[str, Any] = {
        "tokenizer_class": TOKENIZER_CLASSES[vocabulary.kind],
        "added_tokens_decoder": {str(i): entry for i, entry in library.added_entries(vocabulary).items()},
        "clean_up_tokenization_spaces": False,
        **by_kind[vocabulary.kind],
    }
    if roles.padding is not None:
        config["pad_token"] = vocabulary.tokens[roles.padding]
    control = {value for value in config.values() if isinstance(value, str)}
    others = [token.content for token in vocabulary.added if token.special and token.content not in control]
    return config | ({"additional_special_tokens": others} if others else {})
