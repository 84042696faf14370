"""Make a model that ships from a finished run: weights in bf16, scores, and a card made from them.

python tools/ship.py RUN NAME --texts LIST --data DIR --work DIR    evaluate, then write src/headwater/shipped/NAME
python tools/ship.py --card FOLDER                                  print the card, from that folder's files alone

No part of a card is written by hand. It is made from two files next to it: `about.json` (the runs, their text and
their loss curve) and `results.json` (the scores of the bf16 weights). LIST is the list of texts that
`tools/gather.py` reads. If a document's part is not in it, its licence is unknown and the model is refused. An
interrupted evaluation resumes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gather

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "src" / "headwater" / "shipped"
MOST_BYTES = 16_000_000
# The protocols that score a model that ships.
HELD_OUT = "heldout"
PROTOCOLS = (
    "lambada.openai.whole-word",
    "wikitext-2.detokenized",
    "ptb.detokenized",
    "wsc273.partial",
    "dprd.substitution",
    "sst-2.whole-word",
    "story-cloze.mean",
    "race-middle.mean",
)
PROMPTS = ("It was a dark and stormy night", "The old man looked at her and said")
_POINTS = 12  # of the curve
_NORMAL_95 = 1.96
_LARGE = 1_000


def main() -> int:
    """Make a model, or print a card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--texts", type=Path, help="list of the texts, with their licences")
    parser.add_argument("--data", type=Path, action="append", help="folder of the evaluation sets; repeatable")
    parser.add_argument("--work", type=Path, help="folder for the bf16 model and its scores, kept between calls")
    parser.add_argument("--limit", type=int, help="examples of each set")
    parser.add_argument("--books", type=int, help="held-out parts of books that bits per byte are measured on")
    parser.add_argument("--out", type=Path, default=SHELF)
    parser.add_argument("--card", type=Path)
    given = parser.parse_args()
    if given.card is not None:
        print(card(read(given.card / "about.json"), read(given.card / "results.json")), end="")
        return 0
    if given.run is None or given.name is None or not given.data or None in (given.work, given.texts):
        parser.error("RUN, NAME, --texts, --data and --work are needed")
    ship(given.run, given.name, given.texts, given.data, given.work, given.out, given.limit, given.books)
    return 0


def ship(
    run: Path,
    name: str,
    texts: Path,
    data: Sequence[Path],
    work: Path,
    shelf: Path,
    limit: int | None = None,
    books: int | None = None,
) -> Path:
    """Write the folder of a model that ships, and return its path."""
    from headwater.cli.console import PlainProgress
    from headwater.convert import convert
    from headwater.evaluate import evaluate
    from headwater.evaluate.results import read_results
    from headwater.language_model import load
    from headwater.storage.provenance import open_folder
    from headwater.storage.stage import Stage

    progress = PlainProgress()
    manifest = open_folder(run, "run")
    runs = chain(run)
    tokens = source_of(run, "tokens")
    corpus = source_of(tokens, "corpus")
    about = describe(name, runs, texts, tokens, corpus)
    model = work / name
    convert(run / "model", model, precision="bf16", progress=progress)
    scores = work / f"{name}-scores"
    evaluate(model, [HELD_OUT], tokens, work / f"{name}-held-out", limit=books, progress=progress)
    evaluate(model, PROTOCOLS, data, scores, overlap=corpus, limit=limit, progress=progress)
    found = [read_results(folder).to_dict() for folder in (work / f"{name}-held-out", scores)]
    results = {key: [entry for one in found for entry in one[key]] for key in ("results", "skipped")}
    results |= {"model": name, "limit": limit}
    lm = load(model)
    about["samples"] = [
        {
            "prompt": prompt,
            "seed": 1,
            "top_k": 40,
            "text": lm.generate(prompt, max_tokens=60, temperature=1.0, seed=1),
        }
        for prompt in PROMPTS
    ]
    out = shelf / name
    decided = {
        "run": manifest.identity,
        "precision": "bf16",
        "protocols": list(PROTOCOLS),
        "limit": limit,
        "books": books,
    }
    stage = Stage(out, kind="model", config=decided, inputs={})
    if not stage.is_complete():
        with stage.write() as folder:
            for path in model.iterdir():
                if path.name != "headwater.json":
                    shutil.copyfile(path, folder / path.name)
            (folder / "about.json").write_text(dumped(about), encoding="utf-8")
            (folder / "results.json").write_text(dumped(without_paths(results)), encoding="utf-8")
            text = card(read(folder / "about.json"), read(folder / "results.json"))
            (folder / "README.md").write_text(text, encoding="utf-8")
            size = (folder / "model.safetensors").stat().st_size
            if size > MOST_BYTES:
                raise SystemExit(f"{name} has {size:,} bytes of weights, more than {MOST_BYTES:,}")
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()):,} bytes")
    return out


def chain(run: Path) -> list[Path]:
    """Return the runs that made a model, from first to last. A run with `--from` follows the run of that model."""
    from headwater.storage.provenance import read_manifest

    runs = [run]
    while any(entry.role == "model" for entry in read_manifest(runs[0]).inputs):
        runs.insert(0, source_of(runs[0], "model").parent)
    return runs


def describe(name: str, runs: Sequence[Path], texts: Path, tokens: Path, corpus: Path) -> dict[str, Any]:
    """Return what the card states about the runs and their text, read from their folders."""
    from headwater.model import count_parameters
    from headwater.model.io.folder import load_config
    from headwater.storage.provenance import open_folder

    config = load_config(runs[-1] / "model")
    packed, gathered = open_folder(tokens, "tokens"), open_folder(corpus, "corpus")
    journals = [journal(run) for run in runs]
    counts = packed.config["counts"]
    documents = parts(corpus, texts)
    manifest = open_folder(runs[-1], "run")
    return {
        "name": name,
        "parameters": count_parameters(config),
        "model": config.to_dict(),
        "run": {
            "identity": manifest.identity,
            "commands": [plain_command(open_folder(run, "run").command) for run in runs],
            "recipe": {k: v for k, v in manifest.config.items() if k != "model"},
            "seconds": round(sum(float(lines[-1]["seconds"]) for lines in journals)),
            "tokens": sum(lines[-1]["tokens"] for lines in journals),
            "updates": sum(lines[-1]["step"] for lines in journals),
            "tokens_per_second": round(
                statistics.median(line["tokens_per_second"] for lines in journals for line in lines)
            ),
            "versions": manifest.versions,
        },
        "text": {
            "identity": gathered.identity,
            "list": texts.name,
            "parts": documents,
            "documents": sum(part["documents"] for part in documents),
            "train": counts["train"],
            "validation": counts["validation"],
        },
        "tokenizer": {
            "kind": packed.config["tokenizer_kind"],
            "entries": packed.config["vocabulary_size"],
            "identity": packed.config["tokenizer_identity"],
        },
        "curve": curve(journals),
    }


def journal(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `metrics.jsonl`."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def parts(corpus: Path, texts: Path) -> list[dict[str, Any]]:
    """Return what a corpus has of each part of the list. SystemExit names a document whose part is not in it."""
    from headwater.corpus.folder import read_documents

    listed = {part.name: part for part in gather.read_list(texts)}
    found: dict[str, dict[str, Any]] = {}
    for document in read_documents(corpus):
        _, part, *_ = *Path(document.source).parts, ""  # GROUP/PART/FILE
        if part not in listed:
            raise SystemExit(f"{texts} states no licence for {document.source}. Add its part to the list.")
        about = listed[part]
        entry = found.setdefault(
            part, {"title": about.title, "licence": about.licence, "origin": about.origin, "documents": 0}
        )
        entry["documents"] += 1
    return [found[name] for name in listed if name in found]


def curve(journals: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, float]]:
    """Return the measured held-out losses of all runs, each with the mean training loss since the previous one."""
    points: list[dict[str, float]] = []
    updates = tokens = 0
    for lines in journals:
        losses = []
        for line in lines:
            losses.append(line["loss"])
            if "validation_loss" in line:
                place = {"updates": updates + line["step"], "tokens": tokens + line["tokens"]}
                points.append({**place, "training": statistics.fmean(losses), "held_out": line["validation_loss"]})
                losses = []
        updates, tokens = updates + lines[-1]["step"], tokens + lines[-1]["tokens"]
    return points


def card(about: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Return the model card: what the model is, its text, recipe, curve, scores and limits."""
    model, text, run, tokenizer = about["model"], about["text"], about["run"], about["tokenizer"]
    shape = f"{model['layers']} layers of {model['width']}, {model['heads']} heads, context {model['context']}"
    norm = "before each part, as GPT-2" if model["norm"] == "pre" else "after each part, as GPT-1"
    lines = [
        "---",
        "license: mit",
        "language: en",
        "library_name: headwater",
        "pipeline_tag: text-generation",
        "---",
        "",
        f"# {about['name']}",
        "",
        f"A language model of {about['parameters']:,} parameters that ships with Headwater: {shape}; "
        f"normalisation {norm}. It is for trying things out and for teaching, not for use on people.",
        "",
        "```python",
        "import headwater as hw",
        "",
        f'hw.load("{about["name"]}").generate("{PROMPTS[0]}", max_tokens=40, top_k=40, seed=1)',
        "```",
        "",
        *_tokenizer_note(about),
        "This card is written by `tools/ship.py` from `about.json` and `results.json` beside it.",
        "",
        "## Data",
        "",
        f"{text['documents']:,} documents in English, {text['train']['bytes'] / 1e6:.1f} MB to train on and "
        f"{text['validation']['bytes'] / 1e6:.1f} MB held out: {text['train']['tokens']:,} and "
        f"{text['validation']['tokens']:,} tokens of a tokenizer of kind {tokenizer['kind']} with "
        f"{tokenizer['entries']:,} entries, learned from the same text (corpus {text['identity'][:12]})."
        + _listed(text["list"]),
        "",
        "| part | documents | licence | source |",
        "|---|---:|---|---|",
        *(
            f"| {part['title']} | {part['documents']:,} | {part['licence']} | {part['origin']} |"
            for part in text["parts"]
        ),
        "",
        "## Recipe",
        "",
        "```sh",
        *run["commands"],
        "```",
        "",
        f"{run['updates']:,} updates, {run['tokens']:,} tokens, "
        f"{run['tokens'] / text['train']['tokens']:.2f} passes; {run['seconds'] / 60:,.0f} minutes on a machine "
        f"that did other things meanwhile ({run['tokens_per_second']:,} tokens a second). "
        f"Run {run['identity'][:12]}; "
        + ", ".join(f"{package} {version}" for package, version in run["versions"].items())
        + ".",
        "",
        "| setting of the last run | value |" if len(run["commands"]) > 1 else "| setting | value |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in run["recipe"].items()),
        "",
        "The weights are stored in bf16; training kept them in float32.",
        "",
        "## Curve",
        "",
        "| updates | tokens | training loss | held-out loss |",
        "|---:|---:|---:|---:|",
        *(
            f"| {p['updates']:,} | {p['tokens']:,} | {p['training']:.3f} | {p['held_out']:.3f} |"
            for p in thinned(about["curve"])
        ),
        "",
        "Nats a token; training loss is the mean since the line before.",
        "",
        "## Scores",
        "",
        "Zero-shot, of the bf16 weights as they lie here"
        + (f", on at most {results['limit']:,} examples of each set" if results["limit"] else "")
        + ". Without overlap: examples that share an 8-gram with the training text left out.",
        "",
        "| protocol | metric | value | ± 95 % | examples | chance | without overlap | gpt2-small, published |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(_score(entry) for entry in results["results"]),
        "",
        *(f"- {entry['protocol']} is left out: {entry['reason']}" for entry in results["skipped"]),
        *([""] if results["skipped"] else []),
        "## Limits",
        "",
        *(f"- {limit}" for limit in limits(about, results)),
        "",
        "## Samples",
        "",
        "Top-k 40, seed 1, not picked.",
        "",
    ]
    for sample in about["samples"]:
        lines += [f"> **{sample['prompt']}**{' '.join(sample['text'].split(' ')).replace(chr(10), ' ')}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _listed(texts: str | None) -> str:
    if texts is None:
        return ""
    return f" `recipes/texts/{texts}` is the list of the text; `docs/models.md` has the commands."


def _tokenizer_note(about: Mapping[str, Any]) -> list[str]:
    if about["tokenizer"]["kind"] == "gpt2":
        return []
    return [
        "GPT-1's encoding needs two packages that a plain installation does not bring: "
        "`pip install 'headwater[gpt1]'`. It knows no upper case and no line breaks.",
        "",
    ]


def _score(entry: Mapping[str, Any]) -> str:
    reach = "" if entry["stderr"] is None else number(_NORMAL_95 * entry["stderr"])
    chance = "" if entry["chance"] is None else f"{entry['chance']:.3f}"
    shared = entry["details"].get("overlap", {})
    without = number(shared["value without"]) if "value without" in shared else ""
    small = entry["published"].get("gpt2-small")
    return (
        f"| {entry['protocol']} | {entry['metric']} | {number(entry['value'])} | {reach} | {entry['count']:,} "
        f"| {chance} | {without} | {'' if small is None else f'{small:g}'} |"
    )


def number(value: float) -> str:
    """Format a number with three decimals if it is small, and with none if it is large."""
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:,.0f}"


def limits(about: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Return what the model cannot do. The last sentences follow from its scores."""
    found = [
        f"It sees {about['model']['context']} tokens, some {_words(about):,} words, and nothing before them.",
        "It has read the texts above and nothing else. Books keep the views of their time on sex, class, race and "
        "religion; nothing was filtered out, and nothing was tuned to people's wishes.",
        "What it says of the world is invented. It follows no instructions, and it knows no language but English.",
    ]
    guessed = [
        entry["protocol"]
        for entry in results["results"]
        if entry["chance"] is not None
        and entry["stderr"] is not None
        and entry["value"] - _NORMAL_95 * entry["stderr"] <= entry["chance"]
    ]
    if guessed:
        found.append(f"Not told apart from guessing: {', '.join(guessed)}.")
    return found


def _words(about: Mapping[str, Any]) -> int:
    """Return how many words fill a context, to the nearest ten, from the bytes a token of the held-out text."""
    held = about["text"]["validation"]
    return round(about["model"]["context"] * held["bytes"] / held["tokens"] / 5.7 / 10) * 10


def thinned(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return about `_POINTS` evenly spaced points of a curve, and always the last."""
    step = max(1, round(len(points) / _POINTS))
    return [*points[step - 1 : -1 : step], points[-1]]


def source_of(folder: Path, role: str) -> Path:
    """Return the input folder with this role. Raise SystemExit if it is missing or has changed."""
    from headwater.storage.provenance import identity_of, read_manifest

    entry = next(entry for entry in read_manifest(folder).inputs if entry.role == role)
    path = (folder / entry.path).resolve()
    if not path.exists() or identity_of(path)[1] != entry.identity:
        raise SystemExit(f"{path} is not the {role} that {folder} was made from")
    return path


def plain_command(command: str) -> str:
    """Return a command with absolute paths shortened to their names."""
    words = [Path(word).name if word.startswith("/") else word for word in shlex.split(command)]
    return shlex.join(words)


def without_paths(value: Any) -> Any:
    """Return results with absolute paths in their texts shortened to names."""
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inner) for inner in value]
    if isinstance(value, str):
        return " ".join(Path(word).name if word.startswith("/") else word for word in value.split(" "))
    return value


def dumped(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
