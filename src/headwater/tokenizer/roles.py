"""Which tokens end, begin and pad a text: those of the folder, never a rule by their names.

Each role is what `generation_config.json` says, else `config.json`, else the tokenizer's own files, as in
transformers; a text may have several ends. `<|endoftext|>` has both roles where no file names one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError
from headwater.tokenizer.folder import TokenizerFiles
from headwater.tokenizer.vocabulary import END_OF_TEXT, PADDING

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
    names = tuple((role, settings[role]) for role in _OTHERS if settings.get(role) in ids)
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
