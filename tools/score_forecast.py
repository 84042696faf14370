"""Forecast the scores of a model after more pre-training, from those of its versions.

python tools/score_forecast.py VERSION… --data DIR --work DIR --tokens 7.7e8 --tokens 3e10

Each VERSION is the folder of a model with its `about.json`. All have one shape; they read different numbers of
tokens. Each is fine-tuned on each set as for its card (`tools/ship.py`). Finished fine-tunings in --work are kept.
A line through the scores, over the logarithm of the tokens, gives the forecasts. Their 95 % intervals come from
the deviation over the seeds alone: they assume that the scores rise in a line.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import labelled

Z95 = statistics.NormalDist().inv_cdf(0.975)


class Line:
    """A least-squares line of scores over log2 of the tokens. error: the standard error of each score."""

    def __init__(self, tokens: Sequence[int], scores: Sequence[float], error: float) -> None:
        places = [math.log2(count) for count in tokens]
        self.slope, self.intercept = statistics.linear_regression(places, scores)
        self.middle, self.count, self.error = statistics.fmean(places), len(places), error
        self.spread = sum((place - self.middle) ** 2 for place in places)

    def slope_error(self) -> float:
        """Return half the width of the slope's 95 % interval."""
        return Z95 * self.error / math.sqrt(self.spread)

    def forecast(self, tokens: float) -> tuple[float, float, float]:
        """Return a score and its 95 % interval: (score, low, high)."""
        place = math.log2(tokens)
        score = self.intercept + self.slope * place
        half = Z95 * self.error * math.sqrt(1 / self.count + (place - self.middle) ** 2 / self.spread)
        return score, score - half, score + half


def main() -> int:
    """Fine-tune what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder of the sets; repeatable")
    parser.add_argument("--work", type=Path, required=True, help="folder of the fine-tuned models")
    parser.add_argument("--sets", default="sst2,snli", help="separated by commas; default: sst2,snli")
    parser.add_argument("--tokens", type=float, action="append", default=[], help="tokens to forecast for")
    given = parser.parse_args()
    if len({path.name for path in given.versions}) < len(given.versions):
        parser.error("two versions have the same folder name, and so would their fine-tuned models in --work")
    about = [json.loads((path / "about.json").read_text(encoding="utf-8")) for path in given.versions]
    language = about[-1]["text"]["language"]
    entries = {
        name: [
            labelled.fine_tune(path, path.name, language, given.data, given.work, None, [name])[0]
            for path in given.versions
        ]
        for name in given.sets.split(",")
    }
    print(table([one["run"]["tokens"] for one in about], entries, given.tokens))
    return 0


def table(
    tokens: Sequence[int], entries: Mapping[str, Sequence[Mapping[str, Any]]], forecasts: Sequence[float]
) -> str:
    """Return Markdown with a column for each set: the scores of each version, then the forecasts.

    entries: by set, those of a card, in the order of `tokens`.
    """
    columns = []
    for found in entries.values():
        error = math.sqrt(statistics.fmean(one["deviation"] ** 2 / one["seeds"] for one in found))
        line = Line(tokens, [one["value"] for one in found], error)
        cells = [f"{one['value']:.3f} ± {one['deviation']:.3f}" for one in found]
        cells += ["{:.3f} ({:.3f} to {:.3f})".format(*line.forecast(count)) for count in forecasts]
        cells += [f"{line.slope:+.3f} ± {line.slope_error():.3f}"]
        columns.append([*cells, f"{statistics.fmean(one['baseline'] for one in found):.3f}"])
    names = [f"{count / 1e6:,.0f} million tokens" for count in tokens]
    names += [f"forecast for {count / 1e6:,.0f} million" for count in forecasts]
    rows = zip([*names, "twice the tokens", "the baseline"], *columns, strict=True)
    header = [f"| after | {' | '.join(entries)} |", "|---|" + "---:|" * len(entries)]
    return "\n".join([*header, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    sys.exit(main())
