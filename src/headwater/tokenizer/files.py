"""Vocabulary files: Hugging Face's four, and the two of OpenAI's releases.

A folder that `write_files` made, a Hugging Face folder with or without `vocab.json`, and a folder of an OpenAI
release can all be read as a `Vocabulary`. An inconsistency is an error that names its line.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError, FolderError, MismatchError
from headwater.reading import read_json, read_text
from headwater.storage import write_json, write_text
from headwater.tokenizer import foreign, library
from headwater.tokenizer.folder import SETTINGS, TOKENIZER, WORDS, Roles, TokenizerFiles, added_id
from headwater.tokenizer.vocabulary import (
    BYTE_CHARACTERS,
    CHARACTER_BYTES,
    END_OF_TEXT,
    NEWLINE,
    TASK_TOKENS,
    UNKNOWN,
    WORD_END,
    AddedToken,
    Vocabulary,
    assemble,
)

_PAIRS = (
    ("vocab.json", "merges.txt"),
    ("encoder.json", "vocab.bpe"),
    ("encoder_bpe_40000.json", "vocab_40000.bpe"),
)
# The class names of transformers' tokenizers, by kind.
TOKENIZER_CLASSES = {
    "gpt2": "GPT2Tokenizer",
    "gpt1": "OpenAIGPTTokenizer",
    "foreign": "PreTrainedTokenizerFast",
}


def read_folder(files: TokenizerFiles) -> Vocabulary:
    """Return the vocabulary in a folder, of `tokenizer.json` if it has one, as AutoTokenizer.

    Raises FolderError if there is none, DataError if its files are inconsistent.
    """
    folder, content, sources = files.folder, foreign.described(files), (files.folder / TOKENIZER,) * 2
    if content is None and (pair := _pair(folder)) is not None:
        content, sources = _content_of_pair(*pair, files), pair
    if content is None:
        if (folder / CHARACTERS).is_file():
            return _of_characters(folder / CHARACTERS)
        if (folder / "config.json").is_file():
            raise missing_tokenizer(folder)
        raise FolderError(
            f"{folder} has no tokenizer" if folder.exists() else f"{folder} does not exist",
            expected="a folder with tokenizer.json, vocab.json and merges.txt, or vocab.txt",
            repair="Check the path, or train one: headwater tokenizer train SOURCE --out DIR",
        )
    if not _is_ours(content):
        return foreign.read_foreign(content, files)
    added = _added_tokens(files)
    model, ids = content["model"], {token.content: index for token, index in added.items()}
    vocabulary = assemble(model["vocab"], _pairs(model["merges"], sources[1]), ids, *sources)
    # Nothing cleans the text of a byte-level tokenizer: a token is always found as it is.
    exact = vocabulary.kind == "gpt2"
    tokens = [token._replace(normalized=token.normalized and not exact) for token in added]
    unusual = (token for token in tokens if token != AddedToken(token.content))
    return replace(vocabulary, unusual=tuple(token for token in unusual if token.content in vocabulary.specials))


def _content_of_pair(vocabulary: Path, merges: Path, files: TokenizerFiles) -> dict[str, Any]:
    """Return the JSON of what AutoTokenizer runs for a token file and a merges file."""
    ids, pairs = _read_ids(vocabulary), _read_merges(merges)
    if NEWLINE in ids or files.tokenizer_class == "OpenAIGPTTokenizer":
        return library.whole(library.gpt1_steps(ids, pairs))
    added = {token.content for token in _added_tokens(files)} | files.named | {END_OF_TEXT, *TASK_TOKENS}
    for token in ids:
        if not CHARACTER_BYTES.keys() >= set(token) and token not in added:
            raise DataError(
                f"{vocabulary} is not byte-level: {token!r} has a character that does not encode a byte",
                expected="a vocabulary of GPT-2's or GPT-1's kind, or a tokenizer.json, which describes any kind",
                repair="Save it with the tokenizers library: tokenizer.save('tokenizer.json')",
            )
    prefix_space = bool(files.settings.get("add_prefix_space"))
    return library.whole(library.gpt2_steps(ids, pairs, prefix_space=prefix_space, decoder_space=True))


def holds_tokenizer(folder: Path) -> bool:
    """Return whether `read_folder` finds the files of a tokenizer in a folder."""
    alone = ("tokenizer.json", WORDS, CHARACTERS)
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


def _added_tokens(files: TokenizerFiles) -> dict[AddedToken, int]:
    """Return the added tokens in the files of a Hugging Face folder, and their ids.

    `tokenizer_config.json` decides how a token is found in a text, else `tokenizer.json`, as in transformers.
    """
    path = files.folder / TOKENIZER
    entries = files[TOKENIZER].get("added_tokens") or []
    known = [
        entry if isinstance(entry, dict) else {} for entry in (entries if isinstance(entries, list) else [entries])
    ]
    in_library = [(entry, added_id(entry, entry.get("id"), path)) for entry in known]
    newer_first = "added_tokens_decoder" in files[SETTINGS]
    tokens: dict[str, tuple[AddedToken, int]] = {}
    for entry, index in (*files.listed, *in_library) if newer_first else (*in_library, *files.listed):
        flags = {key: bool(entry[key]) for key in AddedToken._fields[1:] if key in entry}
        tokens.setdefault(entry["content"], (AddedToken(entry["content"], **({"special": False} | flags)), index))
    return dict(tokens.values())


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


CHARACTERS = "meta.pkl"


class _Plain(pickle.Unpickler):
    """Reads dictionaries, texts and numbers; whatever would call something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


class Meta(NamedTuple):
    """nanoGPT's `meta.pkl`: the size of a vocabulary, and its characters if these are its tokens."""

    size: int
    characters: dict[str, int] | None


def read_meta(path: Path) -> Meta:
    """Return the content of a `meta.pkl`, without executing what a pickle may name; DataError for another file."""
    try:
        with path.open("rb") as handle:
            content = _Plain(handle).load()
        size, ids = content["vocab_size"], content.get("stoi")
        if type(size) is not int or size < 1:
            raise ValueError(f"its vocab_size is {size!r}")
        if ids is None:
            return Meta(size, None)
        if any(not isinstance(c, str) or len(c) != 1 or type(i) is not int for c, i in ids.items()):
            raise ValueError("a token of its stoi is not a character with an id")
        if sorted(ids.values()) != list(range(size)):
            raise ValueError(f"its {len(ids):,} characters do not have the ids 0 to {size - 1:,}")
    except Exception as error:  # a damaged pickle raises errors of any class
        raise DataError(
            f"{path} is not nanoGPT's description of a vocabulary: {error}",
            expected="vocab_size, stoi and itos, as prepare.py writes them",
        ) from None
    return Meta(size, dict(ids))


def _of_characters(path: Path) -> Vocabulary:
    meta = read_meta(path)
    if meta.characters is None:
        raise DataError(
            f"{path} names {meta.size:,} tokens, but not which",
            expected="the tokenizer of these ids",
            repair="Give it: --tokenizer T",
        )
    return foreign.of_characters(meta.characters)


def write_files(vocabulary: Vocabulary, folder: Path, roles: Roles, *, context: int | None = None) -> None:
    """Write Hugging Face's files into an existing folder: four, or two for kind foreign."""
    write_text(folder / "tokenizer.json", tokenizer_json(vocabulary, specials=True))
    limit = {} if context is None else {"model_max_length": context}
    write_json(folder / "tokenizer_config.json", _tokenizer_config(vocabulary, roles) | limit)
    if vocabulary.kind == "foreign":
        return
    write_json(folder / "vocab.json", vocabulary.ids)
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in vocabulary.merges), ""]
    write_text(folder / "merges.txt", "\n".join(lines))


def tokenizer_json(vocabulary: Vocabulary, *, specials: bool) -> str:
    """Return the vocabulary as the JSON of the `tokenizers` library; `specials` False: they are plain text.

    Kind gpt1 is written as by `transformers`, with BERT's rules for splitting: the library cannot express GPT-1's,
    so its ids differ from ours where the rules do.
    """
    return json.dumps(library_content(vocabulary, specials=specials), ensure_ascii=False) + "\n"


def library_content(vocabulary: Vocabulary, *, specials: bool = True) -> dict[str, Any]:
    """Return what `tokenizer_json` writes."""
    if vocabulary.kind == "foreign":
        content: dict[str, Any] = json.loads(vocabulary.library)
        return content
    added = _added_entries(vocabulary) if specials else {}
    ids, merges = vocabulary.ids if specials else vocabulary.plain_ids, [list(pair) for pair in vocabulary.merges]
    make_steps = library.gpt2_steps if vocabulary.kind == "gpt2" else library.gpt1_steps
    return library.whole(make_steps(ids, merges), [{"id": index, **entry} for index, entry in added.items()])


def _added_entries(vocabulary: Vocabulary) -> dict[int, dict[str, Any]]:
    tokens = [*([AddedToken(UNKNOWN)] if vocabulary.kind == "gpt1" else []), *vocabulary.added]
    keys = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {vocabulary.ids[token.content]: {key: getattr(token, key) for key in keys} for token in tokens}


def _tokenizer_config(vocabulary: Vocabulary, roles: Roles) -> dict[str, Any]:
    end = vocabulary.tokens[roles.ends[0]] if roles.ends else None
    named = {"bos_token": None if roles.start is None else vocabulary.tokens[roles.start], "eos_token": end}
    by_kind: dict[str, dict[str, Any]] = {
        "gpt2": {"add_prefix_space": False, **named, "unk_token": end},
        "gpt1": {"unk_token": UNKNOWN, "do_lower_case": True, **named},
        "foreign": {**named, **dict(roles.names)},
    }
    config: dict[str, Any] = {
        "tokenizer_class": TOKENIZER_CLASSES[vocabulary.kind],
        "added_tokens_decoder": {str(index): entry for index, entry in _added_entries(vocabulary).items()},
        "clean_up_tokenization_spaces": False,
        **by_kind[vocabulary.kind],
    }
    if roles.padding is not None:
        config["pad_token"] = vocabulary.tokens[roles.padding]
    control = {value for value in config.values() if isinstance(value, str)}
    others = [token.content for token in vocabulary.added if token.special and token.content not in control]
    return config | ({"additional_special_tokens": others} if others else {})
