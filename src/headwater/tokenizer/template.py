"""What AutoTokenizer puts around a text, or around two: `[CLS]` and `[SEP]`, an end of text, or nothing.

BertTokenizer has its own template. Other classes run the `post_processor` of `tokenizer.json`, and follow
`add_bos_token` and `add_eos_token` of `tokenizer_config.json` in a folder without that file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import DataError
from headwater.tokenizer.folder import TOKENIZER, TokenizerFiles
from headwater.tokenizer.library import whole

if TYPE_CHECKING:
    from headwater.tokenizer.tokenizer import Tokenizer

_FIRST, _SECOND = (1 << 31) - 2, (1 << 31) - 1  # ids of two texts that no template has
_TYPES = "token_type_ids"


class Template(NamedTuple):
    """Ids before, between and after texts.

    typed: whether each token has a segment number. second: whether those after the first one of `between` have
    segment 1; else all have 0.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    typed: bool = False
    second: bool = False


def read_templates(folder: Path, tokenizer: Tokenizer) -> tuple[Template, Template]:
    """Return what AutoTokenizer puts around one text and around two; raise DataError for another kind."""
    files = TokenizerFiles(folder)
    settings, name = files.settings, files.tokenizer_class
    inputs = settings.get("model_input_names")
    typed = _TYPES in inputs if isinstance(inputs, list) else name == "BertTokenizer"
    ids, processor = tokenizer.vocabulary.ids, files[TOKENIZER].get("post_processor")

    def named(role: str, default: str | None) -> tuple[int, ...]:
        token = settings.get(role, default)
        if token in ids:
            return (ids[token],)
        raise DataError(f"the tokenizer of {folder} has no {role}", expected="the token that it puts around texts")

    if name == "BertTokenizer":
        start, end = named("cls_token", "[CLS]"), named("sep_token", "[SEP]")
        return Template(start, (), end, typed), Template(start, end, end, typed, typed)
    if not (folder / "tokenizer.json").is_file():
        default = "<|endoftext|>" if name in ("GPT2Tokenizer", "OpenAIGPTTokenizer") else None
        start = named("bos_token", default) if settings.get("add_bos_token") else ()
        end = named("eos_token", default) if settings.get("add_eos_token") else ()
        return Template(start, (), end, typed), Template(start, end + start, end, typed, typed)
    return _run(processor, folder, typed)


def _run(processor: Any, folder: Path, typed: bool) -> tuple[Template, Template]:
    """Return the templates of a `post_processor`, which the library runs on two texts of one token each."""
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"a": _FIRST, "b": _SECOND}, "unk_token": "a"}
    try:
        library = Tokenizer.from_str(json.dumps(whole({"post_processor": processor, "model": model})))
        one, two = library.encode("a"), library.encode("a", "b")
        at, first, second = one.ids.index(_FIRST), two.ids.index(_FIRST), two.ids.index(_SECOND)
        if (one.ids + two.ids).count(_FIRST) != 2 or two.ids.count(_SECOND) != 1 or first > second:
            raise ValueError("it does not have the texts in their order, once each")
        usual = [0] * (first + 2) + [1] * (len(two.ids) - first - 2) if second > first + 1 else []
        if typed and (any(one.type_ids) or (any(two.type_ids) and two.type_ids != usual)):
            raise ValueError(f"it gives the segments {two.type_ids}")
    except Exception as error:  # the library's own class
        raise DataError(
            f"{folder / 'tokenizer.json'} has a post_processor that Headwater cannot run: {error}"[:300],
            expected="fixed tokens before, between and after the texts",
        ) from None
    before, between, after = two.ids[:first], two.ids[first + 1 : second], two.ids[second + 1 :]
    return (
        Template(tuple(one.ids[:at]), (), tuple(one.ids[at + 1 :]), typed),
        Template(tuple(before), tuple(between), tuple(after), typed, typed and any(two.type_ids)),
    )
