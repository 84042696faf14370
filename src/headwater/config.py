"""Typed, frozen configuration: declared next to each component, loaded from TOML, merged, saved resolved.

Later layers override earlier ones: defaults, then the recipe file, then `--set key=value` and a command's own
options. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from headwater.errors import HeadwaterError, UsageError, nearest
from headwater.plugins import OPTIONAL_ARCHITECTURES, RECIPES, not_installed, plugins
from headwater.reading import read_text
from headwater.storage import write_text

# Wrong syntax, numbers of thousands of digits (both ValueErrors), tables nested thousands deep.
_NOT_TOML = (ValueError, RecursionError)
_SHOWN = 200  # characters of a wrong value
MOST_ROWS = 1 << 53  # the largest `limit`: more than any file has; numbers beyond 63 bits overflow later


class Layer(dict[str, Any]):
    """Configuration keys with their source (`--set`, a file), which error messages name."""

    def __init__(self, keys: Mapping[str, Any], source: str) -> None:
        super().__init__(keys)
        self.source = source


class Config(BaseModel):
    """Base of every configuration: frozen, typed, finite, no unknown keys. The string below a key describes it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, use_attribute_docstrings=True
    )
    # Keys whose value is a dict with some keys of another configuration.
    tables: ClassVar[Mapping[str, type[Config]]] = {}

    @field_validator("*")
    @classmethod
    def _reject_non_finite(cls, value: Any) -> Any:
        """Apply `allow_inf_nan` to numbers written as text, such as "Infinity", as pydantic 2.14 does."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("Input should be a finite number")
        return value

    @classmethod
    def build(cls, *layers: Mapping[str, Any], source: str = "configuration") -> Self:
        """Merge the layers, later ones overriding earlier ones, and validate the result.

        Raises UsageError naming the source of the key (a Layer's source, else `source`), the key, its value and,
        for an unknown key, the nearest known one.
        """
        merged: dict[str, Any] = {}
        for layer in layers:
            merged = merge(merged, layer)
        try:
            return cls.model_validate(merged)
        except ValidationError as error:
            for detail in error.errors():
                cause = detail.get("ctx", {}).get("error")
                if isinstance(cause, HeadwaterError):  # names the value and the repair itself
                    raise cause from None
            errors: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
            written = _written_key(merged, errors[0]["loc"])
            named = [layer for layer in layers if isinstance(layer, Layer) and written]
            sources = [layer.source for layer in named if _written_key(layer, written) == written]
            raise _usage_error(cls, written, errors, [source, *sources][-1]) from None

    @classmethod
    def load(cls, path: Path, *overrides: Mapping[str, Any]) -> Self:
        """Read a TOML file and merge `overrides` over it."""
        return cls.build(read_toml(path), *overrides, source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, nested as in TOML, without keys that are None, since TOML has no null."""
        return self.model_dump(mode="json", exclude_none=True)

    def save(self, path: Path) -> None:
        """Write the resolved configuration as TOML."""
        import tomli_w

        write_text(path, tomli_w.dumps(self.to_dict()))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `over`: tables are merged key by key, other values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise UsageError naming the line if it is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except _NOT_TOML as error:
        raise UsageError(f"{path} is not valid TOML: {error}", repair="Correct that line") from None


def recipe_files() -> dict[str, Path]:
    """Return the pre-training recipes by name: those in the package, and those of other distributions."""
    folders = [Path(__file__).parent / "recipes", *(plugin.load() for plugin in plugins(RECIPES).values())]
    return {recipe.stem: recipe for folder in folders for recipe in sorted(folder.glob("*.toml"))}


def read_recipe(name_or_file: str | Path) -> Layer:
    """Read a pre-training recipe: a TOML file, or the name of one in Headwater, such as `gpt2-nano`.

    Raises UsageError if it is neither, ResourceError for one of headwater-papers if that is not installed.
    """
    path = Path(name_or_file)
    if path.is_file():
        keys = read_toml(path)
        if not keys:
            raise UsageError(
                f"the recipe {path} has no keys",
                repair='Set at least its preset, for example: preset = "gpt2-nano"',
            )
        return Layer(keys, str(path))
    shipped = recipe_files()
    if str(name_or_file) not in shipped:
        if str(name_or_file).partition("-")[0] in OPTIONAL_ARCHITECTURES:
            raise not_installed(f"the recipe {name_or_file}")
        raise UsageError(
            f"there is no recipe {str(name_or_file)!r}",
            expected=f"{', '.join(shipped)}, or a TOML file",
            repair=nearest(path.stem, shipped),
        )
    return Layer(read_toml(shipped[str(name_or_file)]), f"the recipe {name_or_file}")


def parse_settings(settings: Iterable[str]) -> Layer:
    """Parse `["steps=100", "model.layers=4"]` to nested tables; a value that is not TOML is a string."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, separator, raw = setting.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set {setting[:_SHOWN]!r} has no key or no '='", expected="--set key=value")
        try:
            value: Any = tomllib.loads(f"value = {raw}")["value"]
        except _NOT_TOML:
            value = raw
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        parsed = merge(parsed, value)
    return Layer(parsed, "--set")


def option_name(key: str) -> str:
    """Return the spelling of a configuration key as an option of the command line."""
    return f"--{key.replace('_', '-')}"


def option_layers(options: Mapping[str, Any]) -> list[Layer]:
    """Return a Layer for each option that is not None."""
    return [Layer({key: value}, option_name(key)) for key, value in options.items() if value is not None]


def tables_of(cls: type[Config]) -> dict[str, type[Config]]:
    """Return the classes of the keys that are tables."""
    return {k: f.annotation for k, f in cls.model_fields.items() if _is_config(f.annotation)} | dict(cls.tables)


def _is_config(annotation: Any) -> TypeGuard[type[Config]]:
    return isinstance(annotation, type) and issubclass(annotation, Config)


def _names(cls: type[Config]) -> Iterator[str]:
    """Yield every key as `--set` spells it, those of tables as `model.layers`."""
    tables = tables_of(cls)
    for key in cls.model_fields:
        yield from (f"{key}.{inner}" for inner in _names(tables[key])) if key in tables else [key]


def _suggest_key(cls: type[Config], location: tuple[str, ...]) -> dict[str, str]:
    """Return the rest of the error about an unknown key: the nearest key, or all keys of its table."""
    *parents, key = location
    level = cls
    for parent in parents:
        field = level.model_fields.get(parent)  # None: the name of an entry of a dict of tables
        inside = filter(_is_config, [tables_of(level).get(parent), *(get_args(field.annotation) if field else ())])
        level = next(inside, level)
    full_names = {name.rpartition(".")[2]: name for name in _names(cls)}
    full_names |= {name: ".".join([*parents, name]) for name in level.model_fields}
    near = difflib.get_close_matches(key, full_names, n=1, cutoff=0.5)
    if not near:
        return {"expected": ", ".join(level.model_fields)}
    return {"repair": f"Did you mean {full_names[near[0]]!r}?"}


def _written_key(keys: Mapping[str, Any], location: Iterable[int | str]) -> tuple[int | str, ...]:
    """Return the parts of an error's location that the keys have.

    The rest are types of a union that pydantic tried: `learning_rate.float`, `compiled.literal['auto']`.
    """
    value: Any = keys
    written = []
    for part in location:
        with suppress(LookupError, TypeError):
            value = value[part]
            written.append(part)
    return tuple(written)


def _usage_error(
    cls: type[Config], written: tuple[int | str, ...], errors: Sequence[Mapping[str, Any]], source: str
) -> UsageError:
    first = errors[0]
    location = tuple(str(part) for part in first["loc"])
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        return UsageError(f"{source} has the unknown key {key!r}", **_suggest_key(cls, location))
    if first["type"] == "missing":
        return UsageError(f"{source} lacks the key {key!r}", repair=f"Set it, for example with --set {key}=VALUE")
    reason = first["msg"].removeprefix("Value error, ")
    if not location:  # keys that exclude each other: the reason names them
        return UsageError(f"{source}: {reason}", repair="Correct one of them")
    key = ".".join(map(str, written))
    tried = [e for e in errors if e["loc"][: len(written)] == written]
    reason = ", or: ".join(dict.fromkeys(e["msg"].removeprefix("Value error, ") for e in tried))
    reason = reason.replace("a valid tuple", 'a list, as ["a", "b"]')  # TOML has no tuples
    value = repr(first["input"])
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    if source == option_name(key):
        return UsageError(f"{source} is {shown}: {reason}", repair=f"Correct {source}")
    return UsageError(f"{source} has {key} = {shown}: {reason}", repair=f"Correct {key}")
