"""What an experiment is, and what it finds: rows of numbers with their intervals, and a verdict on each claim.

`Experiment.run` asks the laboratory for models and scores and returns the findings. It writes nothing: the
laboratory stores what is made, and `page` writes the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater import shipped
from headwater.config import Config
from headwater_papers.claims import Finding
from headwater_papers.figures import Draw
from headwater_papers.statistics import Estimate, Measured, over_seeds

if TYPE_CHECKING:
    from headwater_papers.laboratory import Laboratory
    from headwater_papers.scale import Scale


@dataclass(frozen=True)
class Row:
    """One number: what was measured in which setting, one value a seed, and the paper's value if it prints one.

    examples: how many examples each value is a mean over; the values then carry the error over them. note: how the
    measurement differs from the paper's protocol.
    """

    setting: str
    measure: str
    values: Sequence[float]
    published: float | None = None
    examples: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.examples is not None and not isinstance(self.values, Measured):
            raise TypeError(f"{self.setting}, {self.measure}: an interval over examples needs their error")

    @property
    def estimate(self) -> Estimate:
        """Mean, and interval over seeds and items."""
        return over_seeds(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of results.json."""
        value, low, high = self.estimate
        plain = {"setting": self.setting, "measure": self.measure, "value": value, "low": low, "high": high}
        return plain | {
            "values": list(self.values),
            "item_error": self.values.item_error if isinstance(self.values, Measured) else None,
            "seeds": len(self.values),
            "published": self.published,
            "examples": self.examples,
            "note": self.note,
        }


@dataclass(frozen=True)
class Findings:
    """Everything an experiment found. setup: what was done here, as (name, value); figures: by file name."""

    rows: Sequence[Row]
    findings: Sequence[Finding]
    setup: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    figures: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """One experiment. section: of the paper; claim: the paper's statement, in one sentence.

    models: the models of the scale that it uses, by name or by a prefix that ends in a dash (`gpt2-`); their texts
    must exist. pieces: returns the work as (kind, name), to estimate the remaining time; work that two experiments
    share has one name. any_base: whether its models may be existing ones, without a recipe. settings: the class of
    its table in the scale. arranged: returns the scale with the models that its settings choose; `pieces` and
    `run` get this scale. lacks: returns what else it needs and the scale or the data folder does not have, each as
    `SNLI (finetune/snli)`. paper_tables: the papers' tables that its page shows, by their names in
    `paper_tables`.
    """

    name: str
    title: str
    paper: str
    section: str
    claim: str
    models: Sequence[str]
    pieces: Callable[[Scale], set[tuple[str, str]]]
    run: Callable[[Laboratory], Findings]
    any_base: bool = False
    settings: type[Config] = Config
    arranged: Callable[[Scale], Scale] = lambda scale: scale
    lacks: Callable[[Scale, Path], list[str]] = lambda scale, data: []
    paper_tables: Sequence[str] = ()

    def identity(self, scale: Scale) -> str:
        """Return a hash of the part of a scale that its results depend on, without its own table."""
        scale = self.arranged(scale)
        return scale.identity({name for trained in self._named(scale).values() for name in trained})

    def _named(self, scale: Scale) -> dict[str, list[str]]:
        """Return the models of the scale by the names and prefixes of `models`."""
        return {asked: [name for name in scale.models if _is_named(asked, name)] for asked in self.models}

    def missing(self, scale: Scale, data: Path) -> list[str]:
        """Return the models and texts that are missing; if none is, return what `lacks` returns."""
        scale = self.arranged(scale)
        named = self._named(scale)
        missing = [f"a model {asked!r} in the scale" for asked, models in named.items() if not models]
        plans = {name: scale.models[name] for models in named.values() for name in models}
        for name, plan in plans.items():
            if plan.model and not self.any_base:
                missing.append(f"a recipe to pre-train {name}, which is {plan.model} in the scale")
            elif plan.model:
                shipped.resolve(plan.model)  # raises FolderError if it does not exist
        texts = {plan.text: scale.texts.get(plan.text) for plan in plans.values() if not plan.model}
        missing += [f"a text {text!r} in the scale" for text, plan in texts.items() if plan is None]
        for text, sources in self.missing_texts(scale, data).items():
            missing += [f"the text {text} ({source})" for source in sources]
        return missing or self.lacks(scale, data)

    def missing_texts(self, scale: Scale, data: Path) -> dict[str, list[str]]:
        """Return the sources of training texts that are not in the folder, by the names of the texts."""
        scale = self.arranged(scale)
        trained = [scale.models[name] for models in self._named(scale).values() for name in models]
        texts = {plan.text for plan in trained if not plan.model} & scale.texts.keys()
        missing = {
            text: [source for source in scale.texts[text].sources if not (data / source).exists()]
            for text in sorted(texts)
        }
        return {text: sources for text, sources in missing.items() if sources}


def _is_named(asked: str, name: str) -> bool:
    return name.startswith(asked) if asked.endswith("-") else name == asked


def files_missing(files: Mapping[str, str], data: Path) -> list[str]:
    """Return the files that are not in `data`, each as `WSC273 (wsc/wsc273.txt)`; `files` has paths by title."""
    return [f"{name} ({path})" for name, path in files.items() if not (data / path).exists()]
