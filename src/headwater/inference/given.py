"""Check the texts that a caller gives, so that a wrong type is a named error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.errors import UsageError

_SHOWN = 40  # characters of a wrong value


def check_text(text: Any, what: str = "text") -> None:
    """Raise UsageError for anything but a string."""
    if not isinstance(text, str):
        raise UsageError(f"the {what} is {_shown(text)}", expected="a string")


def check_prompts(prompt: Any) -> list[Any]:
    """Return the prompts of `generate`: one, or those of a sequence, each a string or token ids."""
    if isinstance(prompt, str):
        return [prompt]
    wrong = [one for one in prompt if not _is_prompt(one)] if _is_sequence(prompt) else [prompt]
    if wrong:
        raise UsageError(f"the prompt is {_shown(wrong[0])}", expected="a string, or a list of strings")
    return list(prompt)


def check_pairs(pairs: Any) -> None:
    """Raise UsageError for anything but pairs of strings."""
    wrong = [pairs] if isinstance(pairs, str) or not _is_sequence(pairs) else []
    wrong += [pair for pair in pairs if not _is_pair(pair)] if not wrong else []
    if wrong:
        raise UsageError(
            f"the pairs have {_shown(wrong[0])}", expected='a list of two texts each: [("The river", " flows")]'
        )


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (_is_sequence(value) and all(_is_id(token) for token in value))


def _is_pair(pair: Any) -> bool:
    return _is_sequence(pair) and len(pair) == 2 and all(isinstance(text, str) for text in pair)


def _is_sequence(value: Any) -> bool:
    """Return whether a value is a sequence, or like one (an array, a column of a table), of several values."""
    return not isinstance(value, str | bytes | dict) and (isinstance(value, Sequence) or hasattr(value, "__len__"))


def _is_id(token: Any) -> bool:
    return isinstance(token, int) or hasattr(token, "__index__")


def _shown(value: Any) -> str:
    said = repr(value)
    return f"{said[:_SHOWN]}{'…' if len(said) > _SHOWN else ''} (a {type(value).__name__})"
