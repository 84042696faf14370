"""`TokenizerFiles`: the JSON files of a tokenizer's folder, each read once; all kinds are made from it.

`read_roles` returns the tokens that end, begin and pad a text: by the files of the folder, never by their names.
`generation_config.json` decides each role, else `config.json`, else the tokenizer's own files, as in transformers;
a text may have several ends. `<|endoftext|>` has both roles where no file names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError
from headwater.reading import read_object
from headwater.tokenizer.vocabulary import CLASSIFY, END_OF_TEXT, MASK, PADDING, SEPARATOR, UNKNOWN_WORD

TOKENIZER, SETTINGS, WORDS = "tokenizer.json", "tokenizer_config.json", "vocab.txt"
# The roles of BERT's tokens where no file names them.
BERT_ROLES = {
    "pad_token": PADDING,
    "unk_token": UNKNOWN_WORD,
    "cls_token": CLASSIFY,
    "sep_token": SEPARATOR,
    "mask_token": MASK,
}
# The class of a model's tokenizer where no file names one.
CLASSES = {"gpt2": "GPT2Tokenizer", "openai-gpt": "OpenAIGPTTokenizer", "bert": "BertTokenizer"}


class TokenizerFiles:
    """A folder as read. Its content is shared: do not change it."""

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
        content = self[SETTINGS]
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
        named = self[SETTINGS].get("tokenizer_class") or config.get("tokenizer_class")
        return str(named or CLASSES.get(str(config.get("model_type")), "")).removesuffix("Fast")

    @cached_property
    def is_bert(self) -> bool:
        """Whether AutoTokenizer runs BERT's steps whatever `tokenizer.json` says."""
        has_words_alone = not self[TOKENIZER] and (self.folder / WORDS).is_file()
        return has_words_alone or self.tokenizer_class == "BertTokenizer"

    @cached_property
    def listed(self) -> list[tuple[dict[str, Any], int]]:
        """The added tokens of `tokenizer_config.json`, else of the older `added_tokens.json`, by id."""
        decoder = self[SETTINGS].get("added_tokens_decoder")
        if isinstance(decoder, dict):
            # Files of old versions have only the text.
            entries = {
                i: entry if isinstance(entry, dict) else {"content": entry, "special": True}
                for i, entry in decoder.items()
            }
            known = [(entry, added_id(entry, i, self.folder / SETTINGS)) for i, entry in entries.items()]
        else:
            known = []
            for content, i in self["added_tokens.json"].items():
                special = content in self.named
                entry = {"content": content, "special": special, "normalized": not special}
                known.append((entry, added_id(entry, i, self.folder / "added_tokens.json")))
        return sorted(known, key=lambda item: item[1])


def added_id(entry: Mapping[str, Any], index: Any, path: Path) -> int:
    """Return the id of an added token; raise DataError for one without a text and an id."""
    try:
        if isinstance(entry.get("content"), str):
            return int(index)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError(f"{path} names an added token without text and id: {str(entry)[:100]}")


_OTHERS = ("unk_token", "cls_token", "sep_token", "mask_token")


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
    default = default_roles(ids)
    settings = files.settings
    models = [(files.folder / name, files[name]) for name in ("generation_config.json", "config.json")]

    def of(role: str, fallback: tuple[int, ...]) -> tuple[int, ...]:
        for path, content in models:
            tokens = [token for token in _tokens(content.get(f"{role}_token_id"), role, path) if token < rows]
            if tokens:
                return tuple(tokens)
        name = str(settings.get(f"{role}_token"))
        return (ids[name],) if name in ids else fallback

    ends = of("eos", default.ends)
    start = of("bos", ends[:1])
    padding = of("pad", tuple(ids[name] for name in (PADDING,) if name in ids))
    others = ((role, settings.get(role)) for role in _OTHERS)
    names = tuple((role, name) for role, name in others if isinstance(name, str) and name in ids)
    return Roles(start[0] if start else None, ends, padding[0] if padding else None, names)


def _tokens(value: Any, role: str, path: Path) -> list[int]:
    """Return the ids in the value of a role: one, several or none."""
    tokens = value if isinstance(value, list) else [] if value is None else [value]
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int):
            raise DataError(
                f"{path} has {role}_token_id = {str(value)[:60]!r}", expected="an id, or a list of ids"
            )
    return [token for token in tokens if token >= 0]
