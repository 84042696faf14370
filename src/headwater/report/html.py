"""Write `report.html`: runs, results, samples and their provenance on one page that needs no network.

The file contains its style sheet and drawings, fetches nothing and runs no script. The template escapes every text
from a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from headwater.errors import FolderError
from headwater.intervals import Z95
from headwater.report.content import Content, read_content
from headwater.report.plots import Series, line_chart
from headwater.report.scores import EXPONENT_FROM, Bar, ScoreRow, compare
from headwater.report.training_runs import ZERO_SHOT, RunSummary
from headwater.storage import INTERACTIVE, Progress, storage_errors, write_text

_TEMPLATE = "report.html.j2"
_FOOTER = b"<footer>\nMade by Headwater"
_SHARES = ("accuracy", "f1")  # metrics shown in per cent


@dataclass(frozen=True)
class Headline:
    """One number at the top of the page."""

    value: str
    unit: str
    about: str


def report(
    folders: Sequence[Path],
    out_file: Path,
    *,
    title: str = "Headwater report",
    section: str = "",
    progress: Progress = INTERACTIVE,
) -> Path:
    """Write one HTML file about `folders`, or about the Headwater folders inside them.

    section: HTML that comes first. Raises FolderError for a missing or damaged folder.
    """
    progress.start("report")
    _require_report(out_file)
    content = read_content(folders)
    with storage_errors(out_file):
        out_file.parent.mkdir(parents=True, exist_ok=True)
    page = render(content, title, section)
    write_text(out_file, page)
    progress.finish(f"{out_file}, {len(page.encode()) / 1e3:.0f} kB")
    if sentence := verdict(content):
        progress.note(sentence)
    return out_file


def _require_report(path: Path) -> None:
    """Raise FolderError if there is a file that is not a report of Headwater's."""
    if path.exists() and not path.is_dir():
        with path.open("rb") as handle:
            page = handle.read()
        if not page.lstrip().startswith(b"<!doctype html>") or _FOOTER not in page:
            raise FolderError(
                f"{path} exists, and is not a report that Headwater wrote",
                expected="a new file, or an earlier report",
                repair="Choose another --out",
            )


def render(content: Content, title: str, section: str = "") -> str:
    """Return the page as text."""
    # The papers' models in order of size, as each score lists its own.
    most_first = sorted((score.published for score in content.scores), key=len, reverse=True)
    return template(Path(__file__).with_name(_TEMPLATE)).render(
        title=title,
        content=content,
        headlines=headlines(content),
        verdict=verdict(content),
        comparisons=compare(content.scores),
        models=list(dict.fromkeys(score.model for score in content.scores)),
        commands=by_command(content.steps),
        charts=charts(content.runs),
        losses=loss_charts(content.runs),
        sizes=list(dict.fromkeys(chain.from_iterable(most_first))),
        section=Markup(section),
    )


def template(path: Path) -> jinja2.Template:
    """Return the template in a file, which can include this package's style; it escapes what is not `Markup`."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FileSystemLoader([path.parent, Path(__file__).parent]),
    )
    # The link target of a name on the page.
    environment.filters |= {"number": number, "anchor": partial(re.sub, r"[^A-Za-z0-9]+", "-")}
    return environment.get_template(path.name)


def headlines(content: Content) -> list[Headline]:
    """Return bits per byte, the best zero-shot accuracy, and the best score of each fine-tuning table.

    Each names its model. A score that is not above chance and its baseline is in its table only.
    """
    headlines = []
    if (model := _best_model(content)) is not None:
        headlines.append(Headline(f"{model.value:.3f}", "bits per byte", f"{model.name}, on held-out text"))
    guessed = [score for score in content.scores if score.metric == "accuracy" and _is_above(score, score.chance)]
    if guessed:
        best = max(guessed, key=lambda score: score.value - (score.chance or 0))
        about = f"{best.model}: {best.name}; chance {best.chance:.0%}"
        about += f"; {best.examples}" if " of " in best.examples else ""
        headlines.append(Headline(f"{best.value:.0%}", "right without training for it", about))
    for name, scores in content.fine_tuned:
        baselines = [score for score in scores if score.is_baseline]
        tuned = [score for score in scores if not (score.is_scratch or score.is_baseline)]
        tuned = [s for s in tuned if s.chance is None or _is_above(s, s.chance)]
        tuned = [s for s in tuned if all(s.value > other.value for other in baselines)]
        if not tuned:
            continue
        best = max(tuned, key=lambda score: score.value)
        about = f"{best.model}: {name}" + (f"; chance {best.chance:.0%}" if best.chance is not None else "")
        if baselines:
            about += f"; baseline {_rounded(baselines[0])}"
        headlines.append(Headline(_rounded(best), f"{best.metric} after fine-tuning", about))
    return headlines


def verdict(content: Content) -> str:
    """Return the sentence about the model with the fewest bits per byte of its text; "" without yardsticks.

    A yardstick counts the same text exactly: the difference has the interval of the model's score over documents.
    """
    model = _best_model(content)
    yardsticks = [bar for bar in content.bars if not bar.is_model and model and bar.text == model.text]
    if model is None or not yardsticks:
        return ""
    best = min(yardsticks, key=lambda bar: bar.value)
    reach, gain = Z95 * (model.stderr or 0.0), best.value - model.value
    judged = "better than" if gain > reach else "worse than" if -gain > reach else "not distinguishable from"
    sure, interval = (", with 95 % confidence", f" ± {reach:.3f}") if model.stderr is not None else ("", "")
    return (
        f"{model.name} is {judged} the best yardstick, {best.name}{sure}: {model.value:.3f} bits for a byte of "
        f"held-out text against {best.value:.3f} (difference {abs(gain):.3f}{interval})."
    )


def _best_model(content: Content) -> Bar | None:
    """Return the model with the fewest bits per byte."""
    return min((bar for bar in content.bars if bar.is_model), key=lambda bar: bar.value, default=None)


def _is_above(score: ScoreRow, bound: float | None) -> bool:
    """Return whether the score's interval is above `bound`; False if there is no bound."""
    return bound is not None and (score.value if score.low is None else score.low) > bound


def by_command(steps: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Group folders by the commands that wrote them, in the order of the first one of each."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for step in steps:
        groups.setdefault("\n".join(step["commands"]) or step["name"], []).append(step)
    return [("\n".join(entries[0]["commands"]), entries) for entries in groups.values()]


def _rounded(score: ScoreRow) -> str:
    return f"{score.value:.0%}" if score.metric in _SHARES else number(score.value)


def charts(runs: Sequence[RunSummary]) -> dict[str, tuple[list[Series], Markup]]:
    """Return lines and drawing of each plot over the tokens read that has lines, but of the losses.

    Of the zero-shot scores those that are accuracies or correlations.
    """
    scores = {key for run in runs for key, points in run.curves.items() if all(-1 <= y <= 1 for _, y in points)}
    plots = {
        "learning rate": {"learning_rate": ""},
        "gradient norm": {"gradient_norm": ""},
        "score": {key: key.removeprefix(ZERO_SHOT) for key in sorted(scores) if key.startswith(ZERO_SHOT)},
    }
    drawn = {label: _chart(runs, names, label, len(runs)) for label, names in plots.items()}
    return {label: chart for label, chart in drawn.items() if chart[1]}


def loss_charts(runs: Sequence[RunSummary]) -> list[tuple[list[Series], Markup]]:
    """Return a plot of the losses for each tokenizer: those of different ones, a token, are not comparable."""
    names = {"loss": "training", "validation_loss": "held out"}
    groups: dict[object, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(run.tokenizer, []).append(run)
    charts = [_chart(group, names, "loss, nats per token", len(runs)) for group in groups.values()]
    return [chart for chart in charts if chart[1]]


def _chart(
    runs: Sequence[RunSummary], names: Mapping[str, str], label: str, of_all: int
) -> tuple[list[Series], Markup]:
    """Return lines and drawing of curves, by key and name; a line names its run if there are several `of_all`."""
    series = [
        Series(
            ": ".join(filter(None, (run.name if of_all > 1 or not name else "", name))),
            points,
            marked=key.startswith(("validation", ZERO_SHOT)),
        )
        for run in runs
        for key, name in names.items()
        if (points := run.curves.get(key))
    ]
    return series, Markup(line_chart(series, "tokens read", label))


def number(value: float | None) -> str:
    """Format a number with three decimals, fewer if it is large, and with an exponent from EXPONENT_FROM."""
    if value is None:
        return "–"
    formats = ((10, ".3f"), (1_000, ",.2f"), (EXPONENT_FROM, ",.0f"))
    return format(value, next((shown for bound, shown in formats if abs(value) < bound), ".3g"))
