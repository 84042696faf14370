"""Read the content of a report from folders: corpora, runs, results, samples, fine-tuned models, and lineage.

The kind in `headwater.json` selects the reader, which returns plain rows and numbers for the template.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headwater import shipped
from headwater.errors import FolderError
from headwater.reading import intact_json_lines, read_json
from headwater.report.scores import Bar, ScoreRow, order_bars, read_fine_tuned, read_scores
from headwater.report.training_runs import RunSummary, read_run
from headwater.shipped import hub_name
from headwater.storage import Manifest, has_manifest, lineage, open_folder, read_manifest

SHOWN = ("run", "results", "samples", "model")  # kinds that a report shows
_NEWEST_SAMPLES = 3
_FUNNEL_FILE = "funnel.json"  # what was read for a corpus, what each rule removed, and what is left


@dataclass(frozen=True)
class Token:
    """One token of a sample: its text and its probability, None if it was not kept."""

    text: str
    probability: float | None

    @property
    def step(self) -> int:
        """Rarity from 0 to 4: probability at least 1/2, 1/5, 1/20, 1/100, less."""
        return sum(self.probability is not None and self.probability < bound for bound in (0.5, 0.2, 0.05, 0.01))


@dataclass(frozen=True)
class Sample:
    """One continuation of a prompt."""

    prompt: str
    tokens: Sequence[Token]
    settings: str


class CorpusBar(NamedTuple):
    """How many documents a step left or a rule removed; of a rule with some texts."""

    name: str
    documents: int
    megabytes: float | None = None
    examples: Sequence[tuple[str, str]] = ()  # (source, beginning of the text)


@dataclass(frozen=True)
class Corpus:
    """One corpus in the report."""

    name: str
    stages: Sequence[CorpusBar]
    rules: Sequence[CorpusBar]
    clusters: Mapping[str, int] | None
    notes: Sequence[str]


@dataclass(frozen=True)
class Content:
    """The content of a report; steps: the lineages of all folders, as `storage.lineage` returns them."""

    runs: Sequence[RunSummary]
    bars: Sequence[Bar]
    scores: Sequence[ScoreRow]
    skipped: Sequence[tuple[str, str]]
    samples: Sequence[Sample]
    fine_tuned: Sequence[tuple[str, Sequence[ScoreRow]]]
    steps: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    corpora: Sequence[Corpus] = ()


def read_content(folders: Sequence[Path]) -> Content:
    """Read Headwater folders, or those inside other folders; raises FolderError for a folder without any."""
    shown = _expand(folders)
    kinds: dict[str, list[tuple[Path, Manifest]]] = {kind: [] for kind in SHOWN}
    for path, manifest in shown:
        kinds.get(manifest.kind, []).append((path, manifest))
    base, steps, known = _common_parent(shown), dict[str, dict[str, Any]](), dict[str, str]()
    names = {path: _add_steps(lineage(path, known=known), base, steps) for path, _ in shown}
    scored = [_scores(path, manifest, base) for path, manifest in kinds["results"]]
    models = [(path, manifest) for path, manifest in kinds["model"] if (path / "metrics.json").exists()]
    return Content(
        runs=[read_run(path, manifest, names[path]) for path, manifest in kinds["run"]],
        bars=order_bars([bar for bars, _, _ in scored for bar in bars]),
        scores=[score for _, scores, _ in scored for score in scores],
        skipped=[protocol for _, _, skipped in scored for protocol in skipped],
        samples=[
            *(sample for path, _ in kinds["samples"] for sample in _read_samples(path)),
            *(sample for path, _ in kinds["run"] for sample in _samples_of_run(path, names[path])),
        ],
        fine_tuned=read_fine_tuned(models),
        steps=list(steps.values()),
        versions=shown[-1][1].versions if shown else {},
        corpora=[
            read_corpus(path)
            for path, manifest in shown
            if manifest.kind == "corpus" and (path / _FUNNEL_FILE).is_file()
        ],
    )


def _expand(folders: Sequence[Path]) -> list[tuple[Path, Manifest]]:
    """Return the Headwater folders among `folders`, and those inside the others."""
    manifests: dict[Path, Manifest] = {}
    for folder in folders:
        if has_manifest(folder):
            manifests[folder] = read_manifest(folder)
            if manifests[folder].kind == "model" and not (folder / "metrics.json").exists() and len(folders) == 1:
                raise FolderError(
                    f"{folder} is a model, which has no figures of its own",
                    expected="the folders that pretrain, evaluate or finetune wrote",
                    repair="A results folder is enough: it names its model",
                )
            continue
        if not folder.is_dir():
            seen = "is a file" if folder.exists() else "does not exist"
            raise FolderError(f"{folder} {seen}", expected="a folder to report on")
        inside = sorted(path for path in folder.glob("*/") if has_manifest(path))
        inside += sorted(path for path in folder.glob("*/*/") if has_manifest(path) and path.parent not in inside)
        inside = [path for path in inside if not path.name.startswith(".")]
        if not inside:
            raise FolderError(f"{folder} contains no folder that a Headwater command wrote")
        manifests |= {path: read_manifest(path) for path in inside}
    for path, manifest in manifests.items():
        if manifest.complete:
            open_folder(path)
    return list(manifests.items())


def _common_parent(folders: Sequence[tuple[Path, Manifest]]) -> Path:
    paths = [str(path.resolve().parent) for path, _ in folders]
    try:
        return Path(os.path.commonpath(paths))
    except ValueError:  # on different drives
        return Path.cwd()


def _name(path: Path, base: Path) -> str:
    """Return the name of a folder or file on the page, which may be published: its path from `base`.

    A model that ships and one of the hub have their own names.
    """
    if shipped.origin_of(path):
        return path.name
    try:
        return hub_name(path) or Path(os.path.relpath(path, base)).as_posix()
    except ValueError:  # on another drive
        return path.as_posix()


def _scores(path: Path, manifest: Manifest, base: Path) -> tuple[list[Bar], list[ScoreRow], list[tuple[str, str]]]:
    """Return what a results folder has; the model's name is that of its folder or run."""
    content = read_json(path / "results.json")
    name = str(content["model"])
    model = next((entry.path_from(path) for entry in manifest.inputs if entry.role == "model"), None)
    if model is not None and name not in shipped.names():
        name = _name(model.parent.resolve() / model.name, base)  # a link keeps its own name
    return read_scores(content, name.removesuffix("/model"))


def _read_samples(path: Path) -> Iterator[Sample]:
    for entry in read_json(path / "samples.json"):
        names = {"temperature": "temperature", "top_k": "top-k", "top_p": "top-p", "seed": "seed"}
        settings = [f"{name} {entry[key]}" for key, name in names.items() if entry.get(key) is not None]
        tokens = [Token(str(token["text"]), float(token["probability"])) for token in entry["tokens"]]
        yield Sample(str(entry["prompt"]), tokens, ", ".join(settings))


def read_corpus(path: Path) -> Corpus:
    """Return one corpus in the report."""
    funnel = read_json(path / _FUNNEL_FILE)
    return Corpus(path.name, _stages(funnel), _rules(funnel), funnel.get("clusters"), funnel.get("notes", ()))


def _stages(funnel: dict[str, Any]) -> list[CorpusBar]:
    """Return documents and bytes after each step."""
    documents, size = funnel["read"]["documents"], funnel["read"]["bytes"]
    left = [("read", documents, size)]
    for step, rules in funnel["removed"].items():
        documents -= sum(rule["documents"] for rule in rules.values())
        size -= sum(rule["bytes"] for rule in rules.values())
        left.append((f"after {step}", documents, size))
    left.append(("after duplicates", funnel["kept"]["documents"], funnel["kept"]["bytes"]))
    return [CorpusBar(name, count, bytes_ / 1e6) for name, count, bytes_ in left]


def _rules(funnel: dict[str, Any]) -> list[CorpusBar]:
    rules = [
        CorpusBar(f"{step}: {name}", removed["documents"], removed["bytes"] / 1e6, _examples(removed["examples"]))
        for step, rules in funnel["removed"].items()
        for name, removed in sorted(rules.items(), key=lambda entry: -entry[1]["documents"])
    ]
    return rules + [
        CorpusBar(f"duplicates: {kind}", count, None, _examples(funnel["examples"].get(kind, [])))
        for kind, count in funnel["duplicates"].items()
        if count
    ]


def _examples(examples: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    return [(example["url"] or example["source"], example["text"]) for example in examples]


def _samples_of_run(path: Path, name: str) -> Iterator[Sample]:
    """Yield the newest samples that a run wrote while it trained; it keeps no probabilities."""
    for line in list(intact_json_lines(path / "samples.jsonl"))[-_NEWEST_SAMPLES:]:
        yield Sample(str(line["prompt"]), [Token(str(line["text"]), None)], f"{name}, update {line['step']:,}")


def _add_steps(entry: Mapping[str, Any], base: Path, steps: dict[str, dict[str, Any]]) -> str:
    """Add the folders of a lineage to `steps` by name, each once and after its inputs; return its root's name."""
    sources = [_add_steps(inner, base, steps) for inner in entry["inputs"]]
    origin = entry["path"]
    name = origin if "://" in origin else _name(Path(origin).resolve(), base)
    step = {"commands": [], "seed": None, **entry, "name": name, "sources": sources}
    step["commands"] = [made] if (made := shipped.origin_of(origin)) else step["commands"]
    steps.setdefault(name, step)
    return name
