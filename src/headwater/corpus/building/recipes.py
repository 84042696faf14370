"""The recipes of `headwater corpus build`: which rules make a corpus.

| recipe | for | steps |
|---|---|---|
| plain | text that somebody chose | only exact copies are removed |
| webtext | GPT-2 (section 2.1): pages of links | main text, no Wikipedia, English, clean, no near duplicates |
| books | GPT-1 (section 4.1): long contiguous texts | no Gutenberg frame, only long texts, no near duplicates |

A recipe is a starting point: each key of `BuildConfig` can be set in a TOML file or by `--set`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from headwater.config import Config, Layer, read_toml
from headwater.corpus.dedup.near import SIMILARITY
from headwater.corpus.filters import Step
from headwater.corpus.filters.clean import Clean
from headwater.corpus.filters.gutenberg import Gutenberg
from headwater.corpus.filters.language import LANGUAGES, MINIMUM_SCORE, Language
from headwater.corpus.filters.length import Long
from headwater.corpus.filters.wikipedia import Wikipedia
from headwater.errors import UsageError, nearest, suggest
from headwater.plugins import CORPUS_STEPS, plugins
from headwater.reading import text_encoding

RecipeName = Literal["plain", "webtext", "books"]
# Keys without effect unless another key turns their step on.
_NEEDED = {
    "languages": "language",
    "minimum_score": "language",
    "similarity": "near_duplicates",
}


class BuildConfig(Config):
    """The configuration of a build."""

    recipe: RecipeName = "plain"
    """The rules to start from."""
    text_field: str = Field(default="text", min_length=1)
    """Field or column of JSON, CSV and Parquet that has the text."""
    compose: bool = True
    """Bring the text into Unicode's composed form, NFC: Hangul as syllables, é as one character."""
    encoding: str = ""
    """Encoding of all text files and tables, as cp949; by default that of each is detected."""
    gutenberg: bool = False
    """Remove Project Gutenberg's header and licence."""
    minimum_characters: int = Field(default=0, ge=0)
    """Remove shorter documents."""
    wikipedia: bool = False
    """Remove pages of Wikipedia and copies of them."""
    language: bool = False
    """Remove documents of other languages."""
    languages: tuple[str, ...] = LANGUAGES
    """The languages to keep."""
    minimum_score: float = Field(default=MINIMUM_SCORE, ge=0, le=1)
    """Minimum score of a language, from 0 to 1."""
    clean: bool = False
    """Remove what is not prose: lists, menus, repeated lines."""
    steps: tuple[str, ...] = ()
    """Further steps, after these: names of entry points in the group headwater.corpus_steps."""
    near_duplicates: bool = False
    """Remove near duplicates (MinHash)."""
    similarity: float = Field(default=SIMILARITY, gt=0, le=1)
    """Minimum Jaccard similarity of near duplicates."""
    python_docs_bytes: int | None = Field(default=None, ge=1)
    """Limit the source python-docs to a sample of about this many bytes."""

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return text_encoding(value) if value else ""


RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "webtext": {
        "gutenberg": True,
        "wikipedia": True,
        "language": True,
        "clean": True,
        "near_duplicates": True,
    },
    # 20,000 characters are about 5,000 tokens, ten windows of GPT-1. The paper gives no figure; this one is ours.
    "books": {"gutenberg": True, "minimum_characters": 20_000, "near_duplicates": True},
}


def load_recipe(name_or_file: str, overrides: Mapping[str, Any] | None = None) -> BuildConfig:
    """Return the configuration of a recipe or of a TOML file, changed by `overrides`.

    The key `recipe` names the recipe to start from; in `overrides` it takes precedence. Raises UsageError for a
    key whose step is off; a key of the file is allowed if `overrides` turn its step off.
    """
    overrides = overrides or {}
    layer: Mapping[str, Any] = {"recipe": name_or_file}
    if name_or_file not in RECIPES:
        path = Path(name_or_file)
        if not path.is_file():
            raise UsageError(
                f"{name_or_file!r} is not a recipe",
                expected=f"{', '.join(RECIPES)}, or a TOML file",
                repair=nearest(name_or_file, RECIPES),
            )
        layer = Layer(read_toml(path), name_or_file)
    base = RECIPES.get(str({"recipe": "plain", **layer, **overrides}["recipe"]), {})
    config = BuildConfig.build(base, layer, overrides, source="--set")
    for key, needed in _NEEDED.items():
        off = not getattr(config, needed) and getattr(config, key) != BuildConfig.model_fields[key].default
        if off and (key in overrides or needed not in overrides):
            raise UsageError(
                f"{'--set' if key in overrides else name_or_file} has {key}, which has no effect without {needed}",
                repair=f"Set {needed} too, or leave {key} out",
            )
    return config


def make_steps(config: BuildConfig) -> list[Step]:
    """Return the steps of a configuration in the order in which they are applied."""
    steps: list[Step] = []
    if config.gutenberg:
        steps.append(Gutenberg())
    if config.minimum_characters:
        steps.append(Long(config.minimum_characters))
    if config.wikipedia:
        steps.append(Wikipedia())
    if config.language:
        steps.append(Language(config.languages, config.minimum_score))
    if config.clean:
        steps.append(Clean())
    own = plugins(CORPUS_STEPS)
    for name in config.steps:
        if name not in own:
            raise UsageError(f"there is no step {name!r}", **suggest(name, sorted(own)))
        steps.append(own[name].load()())
    return steps
