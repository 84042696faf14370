"""Learn from few labels, and compare with scikit-learn on TF-IDF and on a sentence encoder, and with SetFit.

    python benchmarks/few_labels.py --data $HEADWATER_DATA --sets sst2 korean --rows 8 64 --seeds 1 2 3
    python benchmarks/few_labels.py --data $HEADWATER_DATA --sets sst2 --setfit /path/of/its/environment/bin/python

Every side learns from the same rows, drawn by the seed, and is measured on the same test rows: accuracy, or
Pearson's correlation for STS-B. The encoder is minilm, for Korean gpt2-mini-ko, or `--base`. `default` is
Headwater's mixture, and `lp-ft` and `gpt1` are its recipes; `probe` is scikit-learn's logistic regression (ridge
regression for STS-B) on `lm.embed`, its strength chosen by cross-validation; `tfidf` the same on TF-IDF of words
and character n-grams. Tickets (six teams, German and English, rare ones too) and stars (reviews, one to five)
are tables as offices have them, made here, with 5 % wrong labels in their training rows. Sources, the packages
of python-docs, are the labels of a quick start (`--labels quickstart/labels/source`). SetFit runs at its defaults
in an environment of its own (`pip install setfit 'transformers<5'`), for one text only.

Results are kept in `--out`, where those that it has already are not measured again, so the table can be made in
parts. The last lines are the table of all results in it; `--rows` without a number prints nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headwater as hw

SETS = ("sst2", "clinc150", "snli", "stsb", "korean", "tickets", "stars", "sources")
METHODS = ("tfidf", "probe", "default", "setfit", "lp-ft", "gpt1")
LEVELS = 6  # STS-B's scores, in place of classes
Rows = list[tuple[tuple[str, ...], Any]]
# SNLI's labels in the two files.
_SNLI_TRAIN, _SNLI_TEST = (
    {"3": "entails", "1": "neutral", "2": "denies"},
    {"0": "entails", "1": "neutral", "2": "denies"},
)
_SETFIT = """
import json, sys
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
content = json.load(open(sys.argv[1]))
names = sorted(set(content["labels"]))
model = SetFitModel.from_pretrained(content["encoder"])
rows = Dataset.from_dict({"text": content["texts"], "label": [names.index(label) for label in content["labels"]]})
Trainer(model=model, args=TrainingArguments(report_to="none", seed=content["seed"]), train_dataset=rows).train()
json.dump([names[int(label)] for label in model.predict(content["test"])], open(sys.argv[2], "w"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--labels", type=Path, help="labels folder of a quick start, for the set sources")
    parser.add_argument("--out", type=Path, default=Path("few_labels.json"), help="results, kept and extended")
    parser.add_argument("--sets", nargs="+", choices=SETS, help="default: all, without --labels all but sources")
    parser.add_argument("--rows", nargs="*", type=int, default=[8, 64, 500], help="of a class; none: the table")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS[:3])
    parser.add_argument("--test", type=int, default=1_000, help="test rows")
    parser.add_argument("--base", help="in place of the sets' own")
    parser.add_argument("--setfit", help="python of an environment with setfit, which is measured too")
    parser.add_argument("--most-seconds", type=float, default=3_600.0, help="after which SetFit is stopped")
    options = parser.parse_args()
    sets = options.sets or [name for name in SETS if options.labels or name != "sources"]
    if "sources" in sets and options.labels is None:
        parser.error("the set sources needs --labels FOLDER")
    methods = [name for name in METHODS if name in options.methods or (name == "setfit" and options.setfit)]
    results = Results(options.out)
    for name, per_class, seed in itertools.product(sets, options.rows, options.seeds):
        train, test = read(name, options.labels if name == "sources" else options.data)
        rows = sample(train, per_class, seed, is_score=name == "stsb")
        measured = [test[n] for n in np.random.default_rng(0).permutation(len(test))[: options.test]]
        for method in methods:
            key = {"set": name, "per_class": per_class, "seed": seed, "test": len(measured), "method": method}
            key |= {"base": options.base} if options.base else {}
            if results.has(key) or (method == "setfit" and len(rows[0][0]) > 1):
                continue
            started = time.perf_counter()
            values = measure(method, name, rows, measured, seed, options)
            results.add({**key, "rows": len(rows), **values, "seconds": round(time.perf_counter() - started, 1)})
    print(results.table())


class Results:
    """The results in a JSON file: {"results": [{"set", "per_class", "seed", "method", "value", "seconds", …}]}."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"results": []}
        self.all: list[dict[str, Any]] = known["results"]

    def has(self, key: dict[str, Any]) -> bool:
        """Return whether there is a result with these values."""
        return any(key.items() <= result.items() for result in self.all)

    def add(self, result: dict[str, Any]) -> None:
        """Print a result and write it; a run that is ended keeps what it has."""
        print(json.dumps(result, ensure_ascii=False), flush=True)
        self.all.append(result)
        lines = ",\n".join(json.dumps(result, ensure_ascii=False) for result in self.all)
        self.path.write_text(f'{{"results": [\n{lines}\n]}}\n', encoding="utf-8")

    def table(self) -> str:
        """Return the means over the seeds, and the median seconds, as a table in Markdown."""
        cells: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for result in self.all:
            cells[result["set"], result["per_class"]][result["method"]].append(result)
        methods = [method for method in METHODS if any(method in cell for cell in cells.values())]
        lines = [f"| set | a class | {' | '.join(methods)} |", f"|---|---|{'---|' * len(methods)}"]
        for (name, per_class), by_method in sorted(
            cells.items(), key=lambda cell: (SETS.index(cell[0][0]), cell[0][1])
        ):
            lines.append(
                f"| {name} | {per_class} | {' | '.join(_cell(by_method[method]) for method in methods)} |"
            )
        return "\n".join(lines)


def _cell(results: list[dict[str, Any]]) -> str:
    values = [result["value"] for result in results if result["value"] is not None]
    seconds = statistics.median(result["seconds"] for result in results) if results else 0.0
    if not values:
        return f"– (over {seconds:.0f} s)" if results else "–"
    return f"{statistics.mean(values):.3f} ({seconds:.0f} s)"


def read(name: str, data: Path) -> tuple[Rows, Rows]:
    """Return the training and the test rows of a set; data: of sources its labels folder."""
    folder = data / "finetune"
    if name == "sst2":
        files = [folder / "sst2" / "sentences" / f"{part}.tsv" for part in ("train", "test")]
        train, test = ([((text,), label) for text, label in _cells(file)] for file in files)
    elif name == "clinc150":
        content = json.loads((folder / "clinc150" / "data_small.json").read_text(encoding="utf-8"))
        train, test = ([((text,), label) for text, label in content[part]] for part in ("train", "test"))
    elif name == "snli":
        cells = _cells(folder / "snli" / "train_subset.csv")
        train = [((row[2], row[3]), _SNLI_TRAIN[row[0]]) for row in cells]
        test = [((row[0], row[1]), _SNLI_TEST[row[2]]) for row in _cells(folder / "snli" / "test.tsv")[1:]]
    elif name == "stsb":
        files = [folder / "stsb" / "original" / f"sts-{part}.tsv" for part in ("train", "test")]
        train, test = ([((row[5], row[6]), float(row[4])) for row in _cells(file)] for file in files)
    elif name == "tickets":
        train, test = _tickets()
    elif name == "stars":
        train, test = _stars()
    elif name == "sources":
        lines = ((data / f"{part}.jsonl").read_text(encoding="utf-8") for part in ("train", "validation"))
        parsed = (map(json.loads, text.splitlines()) for text in lines)
        train, test = ([((row["text"],), row["label"]) for row in rows] for rows in parsed)
    else:
        train, test = _korean(data / "train-text" / "korean" / "nsmc_reviews.txt")
    return train, test


def _cells(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]


def _korean(path: Path) -> tuple[Rows, Rows]:
    """Label reviews by words that are then removed, as docs/tutorials/korean.md does."""
    good, bad = "최고|감동|강추", "최악|쓰레기|노잼"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 12]
    labelled = {
        re.sub(f"{good}|{bad}", "", line): bool(re.search(good, line))
        for line in lines
        if re.search(f"{good}|{bad}", line)
    }
    rows: Rows = [((text,), "good" if label else "bad") for text, label in labelled.items()]
    rows = [rows[n] for n in np.random.default_rng(0).permutation(len(rows))]
    sides = [[row for row in rows if row[1] == label] for label in ("good", "bad")]
    return [row for side in sides for row in side[500:]], [row for side in sides for row in side[:500]]


# Of each team: how many of a hundred tickets, and words of its subjects in English and German.
_TEAMS = {
    "billing": (38, "invoice charge refund card payment price", "Rechnung Betrag Erstattung Karte Zahlung Preis"),
    "login": (24, "password account code mail locked sign", "Passwort Konto Code Mail gesperrt anmelden"),
    "delivery": (18, "parcel courier late address tracking box", "Paket Kurier verspätet Adresse Sendung Karton"),
    "returns": (
        12,
        "return label size exchange damaged broken",
        "Rücksendung Etikett Größe Umtausch defekt kaputt",
    ),
    "legal": (5, "contract notice data privacy terms cancel", "Vertrag Frist Daten Datenschutz AGB kündigen"),
    "press": (3, "interview article logo photo editor quote", "Interview Artikel Logo Foto Redaktion Zitat"),
}
_ENGLISH = ["hello", "my {} is wrong again", "the {} and the {}", "please look at the {}", "since monday no {}"]
_GERMAN = ["guten Tag", "{} stimmt wieder nicht", "{} und {}", "bitte prüfen Sie {}", "seit Montag kein {}"]
_STARS = (
    "awful broken waste refund terrible never",
    "weak poor slow disappointing cheap loose",
    "okay average fine usable plain decent",
    "good solid nice quick happy useful",
    "perfect great love excellent best recommend",
)
_ASPECTS = ["battery", "screen", "cable", "box", "charger", "manual", "strap", "button", "app", "case"]


def _tickets() -> tuple[Rows, Rows]:
    """Make tickets: the words of a team, sometimes also of another one, in one of two languages."""
    random = np.random.default_rng(7)
    teams, shares = [*_TEAMS], np.array([share for share, *_ in _TEAMS.values()]) / 100

    def ticket() -> tuple[tuple[str, ...], str]:
        team, german = str(random.choice(teams, p=shares)), bool(random.integers(2))
        other = str(random.choice(teams)) if random.random() < 0.35 else team
        parts = []
        for _ in range(random.integers(1, 4)):
            words = _TEAMS[team if random.random() < 0.7 else other][1 + german].split()
            pattern = str(random.choice((_GERMAN if german else _ENGLISH)[1:]))
            parts.append(pattern.format(*random.choice(words, 2)))
        opening = [(_GERMAN if german else _ENGLISH)[0]] if random.random() < 0.5 else []
        return (", ".join([*opening, *parts]),), team

    return _wrong([ticket() for _ in range(760)], random), [ticket() for _ in range(600)]


def _stars() -> tuple[Rows, Rows]:
    """Make reviews: words of the stars and of their neighbours."""
    random = np.random.default_rng(8)

    def review() -> tuple[tuple[str, ...], str]:
        stars = int(random.choice(5, p=[0.15, 0.1, 0.15, 0.25, 0.35]))
        parts = []
        for _ in range(random.integers(1, 5)):
            near = int(np.clip(round(random.normal(stars, 0.9)), 0, 4))
            parts.append(f"the {random.choice(_ASPECTS)} is {random.choice(_STARS[near].split())}")
        return (". ".join(parts),), str(stars + 1)

    return _wrong([review() for _ in range(299)], random), [review() for _ in range(600)]


def _wrong(rows: Rows, random: np.random.Generator) -> Rows:
    """Give one row of twenty another row's label."""
    return [
        (texts, rows[int(random.integers(len(rows)))][1] if random.random() < 0.05 else label)
        for texts, label in rows
    ]


def sample(rows: Rows, per_class: int, seed: int, *, is_score: bool) -> Rows:
    """Draw rows of each class; of scores as many as six classes would have."""
    order = [rows[n] for n in np.random.default_rng(seed).permutation(len(rows))]
    if is_score:
        return order[: LEVELS * per_class]
    counts: dict[Any, int] = defaultdict(int)
    chosen = []
    for row in order:
        counts[row[1]] += 1
        if counts[row[1]] <= per_class:
            chosen.append(row)
    return chosen


def measure(method: str, name: str, rows: Rows, test: Rows, seed: int, options: Any) -> dict[str, Any]:
    """Return the accuracy, or the correlation, of a method on the test rows, and the weights that it chose."""
    base = options.base or ("gpt2-mini-ko" if name == "korean" else "minilm")
    labels, truth = [label for _, label in rows], [label for _, label in test]
    if method in ("default", "lp-ft", "gpt1"):
        kind: Any = hw.Similarity if name == "stsb" else hw.Entailment if name == "snli" else hw.Classifier
        recipe = {} if method == "default" else {"recipe": method}
        model = kind(base=base, seed=seed, **recipe).fit(_texts(rows), labels)
        return {"value": float(model.score(_texts(test), truth)), "weights": model.weights_}
    if method == "setfit":
        decided = _setfit(rows, test, seed, options.setfit, options.most_seconds, base)
        right = [label == true for label, true in zip(decided, truth, strict=True)] if decided else []
        return {"value": float(np.mean(right)) if right else None}
    train_features, test_features = (_tfidf if method == "tfidf" else _embedded(base))(rows, test)
    return {"value": _linear(train_features, labels, test_features, truth, is_score=name == "stsb")}


def _texts(rows: Rows) -> list[Any]:
    return [texts[0] if len(texts) == 1 else texts for texts, _ in rows]


def _tfidf(rows: Rows, test: Rows) -> tuple[Any, Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    vectors = make_union(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
    )
    train_features = vectors.fit_transform([" ".join(texts) for texts, _ in rows])
    return train_features, vectors.transform([" ".join(texts) for texts, _ in test])


def _embedded(base: str) -> Callable[[Rows, Rows], tuple[Any, Any]]:
    def features(rows: Rows) -> Any:
        lm = hw.load(base)
        vectors = [lm.embed([texts[side] for texts, _ in rows], normalize=True) for side in range(len(rows[0][0]))]
        if len(vectors) == 1:
            return vectors[0]
        u, v = vectors
        return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)

    return lambda rows, test: (features(rows), features(test))


def _linear(features: Any, labels: list[Any], test: Any, truth: list[Any], *, is_score: bool) -> float:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV

    strengths = (0.1, 1.0, 10.0, 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_score:
            model = GridSearchCV(Ridge(), {"alpha": [1 / strength for strength in strengths]}, cv=3)
            return float(np.corrcoef(model.fit(features, labels).predict(test), truth)[0, 1])
        model = GridSearchCV(LogisticRegression(max_iter=500), {"C": strengths}, cv=3).fit(features, labels)
    return float(model.score(test, truth))


def _setfit(rows: Rows, test: Rows, seed: int, python: str, most_seconds: float, base: str) -> list[str]:
    """Return SetFit's classes of the test rows; none if it takes longer."""
    from headwater import shipped

    with tempfile.TemporaryDirectory() as folder:
        rows_file, out = Path(folder, "rows.json"), Path(folder, "out.json")
        content = {"texts": _texts(rows), "labels": [label for _, label in rows], "test": _texts(test)}
        rows_file.write_text(
            json.dumps({**content, "seed": seed, "encoder": str(shipped.resolve(base))}), encoding="utf-8"
        )
        command = [python, "-c", _SETFIT, str(rows_file), str(out)]
        try:
            # Its packages alone: PYTHONPATH may name those of this process.
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            subprocess.run(
                command, check=True, capture_output=True, timeout=most_seconds, env=environment, cwd=folder
            )
        except subprocess.TimeoutExpired:
            return []
        decided: list[str] = json.loads(out.read_text(encoding="utf-8"))
        return decided


if __name__ == "__main__":
    main()
