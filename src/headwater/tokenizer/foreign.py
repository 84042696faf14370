"""The tokenizer that transformers' AutoTokenizer runs for a folder, as the JSON of the `tokenizers` library.

AutoTokenizer takes `tokenizer.json` as it is for a general class, as `PreTrainedTokenizerFast`. For a class of its
own it takes only the vocabulary from there and makes the other steps itself: `GPT2Tokenizer` splits at bytes and
adds a space before a text if `tokenizer_config.json` says so, `OpenAIGPTTokenizer` and `BertTokenizer` clean text
as BERT. `described` returns what it would run. Then come the tokens that `tokenizer_config.json` adds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from headwater.errors import DataError
from headwater.reading import read_text
from headwater.tokenizer import library
from headwater.tokenizer.codec import library_errors
from headwater.tokenizer.folder import CLASSES, SETTINGS, TOKENIZER, WORDS, TokenizerFiles
from headwater.tokenizer.vocabulary import AddedToken, Vocabulary

# What no tokenizer in use comes near: it would take the time or memory of the process.
_LONGEST_PATTERN = 2_000  # characters of a regular expression
_MOST_STEPS = 200  # of cleaning, splitting and decoding together
_MOST_GROWTH = 256  # bytes that these make of one byte
_FLAGS = {"lstrip", "rstrip", "single_word", "normalized", "special"}
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def described(files: TokenizerFiles) -> dict[str, Any] | None:
    """Return the JSON of the tokenizer that AutoTokenizer runs, without the tokens that other files add.

    None for a folder that has no tokenizer.json and no vocab.txt.
    """
    folder, content, name, steps = files.folder, files[TOKENIZER], files.tokenizer_class, {}
    if not content:
        path = folder / WORDS
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
    elif files.is_bert:
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
    unknown, *frame = (str(files.settings[f"{role}_token"]) for role in ("unk", "cls", "sep"))
    return library.bert_steps(vocab, rules, unknown, (frame[0], frame[1]))


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
    plain = {**content, "model": model, "padding": None, "truncation": None}
    with library_errors(f"the tokenizer of {folder} cannot be read", "Get its files again"):
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
    """Return the most bytes that a step writes for one byte, each time that it runs."""
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
