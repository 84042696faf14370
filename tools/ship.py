"""Make a model that ships from a finished run: weights in bf16, scores, and a card made from them.

python tools/ship.py RUN NAME --texts LIST --data DIR --work DIR    evaluate, then write src/headwater/shipped/NAME
python tools/ship.py --renew FOLDER --data DIR --work DIR --out DIR fine-tune again, and write FOLDER's new version
    With --tokens TOKENS, its held-out text is measured again too.
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
from typing import TYPE_CHECKING, Any

import gather
from labelled import fine_tune
from model_card import LANGUAGES, card

from headwater.reading import read_json

if TYPE_CHECKING:
    from headwater.storage import Manifest

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "src" / "headwater" / "shipped"
MOST_BYTES = 16_000_000
# The zero-shot protocols that score a model that ships, by the language of its text.
HELD_OUT = "heldout"
PARTS = ("train", "validation")  # of a tokens folder
PROTOCOLS: dict[str, tuple[str, ...]] = {
    "en": (
        "lambada.openai.whole-word",
        "wikitext-2.detokenized",
        "ptb.detokenized",
        "wsc273.partial",
        "dprd.substitution",
        "sst-2.whole-word",
        "story-cloze.mean",
        "race-middle.mean",
    ),
    "ko": (),
}


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
    parser.add_argument("--sets", help="labelled sets to fine-tune on, separated by commas; default: all")
    parser.add_argument("--out", type=Path, default=SHELF)
    parser.add_argument("--renew", type=Path)
    parser.add_argument("--tokens", type=Path, help="the text of the model to renew")
    parser.add_argument("--all-rows", default="", help="sets to fine-tune on all their rows as well")
    parser.add_argument("--card", type=Path)
    given = parser.parse_args()
    sets = None if given.sets is None else [name for name in given.sets.split(",") if name]
    whole = [name for name in given.all_rows.split(",") if name]
    if given.card is not None:
        print(card(read_json(given.card / "about.json"), read_json(given.card / "results.json")), end="")
        return 0
    if given.renew is not None and given.data and given.work is not None:
        renew(given.renew, given.data, given.work, given.out, given.limit, sets, given.tokens, whole)
        return 0
    if given.run is None or given.name is None or not given.data or None in (given.work, given.texts):
        parser.error("RUN, NAME, --texts, --data and --work are needed")
    places = (given.run, given.name, given.texts, given.data, given.work, given.out)
    ship(*places, given.limit, given.books, sets, whole)
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
    sets: Sequence[str] | None = None,
    all_rows: Sequence[str] = (),
) -> Path:
    """Write the folder of a model that ships, and return its path.

    sets: the labelled ones, by default all; all_rows: those that it is also fine-tuned on with all their rows.
    """
    from headwater.convert import convert
    from headwater.evaluation import Results, evaluate
    from headwater.inference import load
    from headwater.storage import PlainProgress, open_folder

    progress = PlainProgress()
    manifest = open_folder(run, "run")
    language = gather.read_language(texts)
    protocols = PROTOCOLS[language]
    start, runs = chain(run)
    tokens = source_of(run, "tokens")
    corpus = source_of(tokens, "corpus")
    about = describe(name, start, runs, texts, tokens, corpus)
    model = work / name
    convert(run / "model", model, precision="bf16", progress=progress)
    evaluate(model, [HELD_OUT], tokens, work / f"{name}-held-out", limit=books, progress=progress)
    # Each folder of data has its own scores, so that a folder added later does not repeat the others.
    scores = {folder: work / f"{name}-scores{number or ''}" for number, folder in enumerate(data) if protocols}
    for folder, out in scores.items():
        evaluate(model, protocols, [folder], out, overlap=corpus, limit=limit, progress=progress)
    results = merged([Results.read(folder).to_dict() for folder in (work / f"{name}-held-out", *scores.values())])
    results |= {"model": name, "limit": limit}
    results["fine_tuned"] = fine_tune(model, name, language, data, work, limit, sets, all_rows)
    lm = load(model)
    about["samples"] = [
        {
            "prompt": prompt,
            "seed": 1,
            "top_k": 40,
            "text": lm.generate(prompt, max_tokens=60, temperature=1.0, seed=1),
        }
        for prompt in LANGUAGES[language].prompts
    ]
    decided = {
        "run": manifest.identity,
        "precision": "bf16",
        "protocols": list(protocols),
        "limit": limit,
        "books": books,
        "sets": [[entry["name"], entry["rows"]] for entry in results["fine_tuned"]],
    }
    return write(shelf / name, model, about, results, decided)


def renew(
    shipped: Path,
    data: Sequence[Path],
    work: Path,
    shelf: Path,
    limit: int | None = None,
    sets: Sequence[str] | None = None,
    tokens: Path | None = None,
    all_rows: Sequence[str] = (),
) -> Path:
    """Fine-tune a model that ships on these sets again, write its folder, and return its path.

    tokens: the model's text; bits per byte of its held-out part, and of the yardsticks, are measured again.
    all_rows: sets to fine-tune on all their rows. The weights, the other scores and the samples are those of
    `shipped`, which must not be in `shelf`.
    """
    from headwater.evaluation import Results, evaluate
    from headwater.storage import PlainProgress, open_folder

    about, results = read_json(shipped / "about.json"), read_json(shipped / "results.json")
    name = about["name"]
    if tokens is not None:
        if any(open_folder(tokens, "tokens").config["counts"][part] != about["text"][part] for part in PARTS):
            raise SystemExit(f"{tokens} is not the text of {name}: its card counts other tokens")
        out = work / f"{name}-held-out"
        evaluate(shipped, [HELD_OUT], tokens, out, limit=None, progress=PlainProgress())
        results |= merged([Results.read(out).to_dict(), results])
    language = about["text"].get("language", "en")  # older ones do not state it
    known = results.get("fine_tuned", [])
    tuned = fine_tune(shipped, name, language, data, work, limit, sets, all_rows, known)
    results["fine_tuned"] = tuned
    sizes = [[entry["name"], entry["rows"]] for entry in tuned]
    decided = open_folder(shipped, "model").config | {"sets": sizes}
    return write(shelf / name, shipped, about, results, decided)


def write(
    out: Path, model: Path, about: dict[str, Any], results: dict[str, Any], decided: Mapping[str, Any]
) -> Path:
    """Write the folder of a model that ships: the files of `model`, what is known of it, and its card."""
    from headwater.storage import Stage

    stage = Stage(out, kind="model", config=decided, inputs={})
    if not stage.is_complete():
        with stage.write() as folder:
            for path in model.iterdir():
                if path.name != "headwater.json":
                    shutil.copyfile(path, folder / path.name)
            (folder / "about.json").write_text(dumped(about), encoding="utf-8")
            (folder / "results.json").write_text(dumped(without_paths(results)), encoding="utf-8")
            text = card(read_json(folder / "about.json"), read_json(folder / "results.json"))
            (folder / "README.md").write_text(text, encoding="utf-8")
            size = (folder / "model.safetensors").stat().st_size
            if size > MOST_BYTES:
                raise SystemExit(f"{out.name} has {size:,} bytes of weights, more than {MOST_BYTES:,}")
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()):,} bytes")
    return out


def merged(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of several folders as one; a protocol is skipped if no folder has its data."""
    results = {(entry["protocol"], entry["metric"]): entry for one in reversed(found) for entry in one["results"]}
    done = {protocol for protocol, _ in results}
    left_out = [entry for one in found for entry in one["skipped"] if entry["protocol"] not in done]
    skipped = {entry["protocol"]: entry for entry in left_out}
    order = [(entry["protocol"], entry["metric"]) for one in found for entry in one["results"]]
    return {"results": [results[key] for key in dict.fromkeys(order)], "skipped": list(skipped.values())}


def chain(run: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """Return the `about.json` of the shipped model that training started from, if any, and the runs since then.

    A run with `--from` follows the run of that model. The runs of a shipped model are not needed.
    """
    from headwater.storage import read_manifest

    runs = [run]
    while any(entry.role == "model" for entry in read_manifest(runs[0]).inputs):
        model = source_of(runs[0], "model")
        if (model / "about.json").exists():
            return read_json(model / "about.json"), runs
        runs.insert(0, model.parent)
    return None, runs


def describe(
    name: str, start: Mapping[str, Any] | None, runs: Sequence[Path], texts: Path, tokens: Path, corpus: Path
) -> dict[str, Any]:
    """Return what the card states about the runs and their text, read from their folders.

    start: the `about.json` of the shipped model that the first run continues; its runs are counted too. SystemExit
    names a part of that model's text that is not in the corpus.
    """
    from headwater.model import load_config
    from headwater.storage import open_folder
    from headwater.training import read_journal

    config = load_config(runs[-1] / "model")
    packed, gathered = open_folder(tokens, "tokens"), open_folder(corpus, "corpus")
    journals = [read_journal(run / "metrics.jsonl") for run in runs]
    counts = packed.config["counts"]
    documents = parts(corpus, texts)
    manifest = open_folder(runs[-1], "run")
    earlier: Mapping[str, Any] = {"commands": [], "seconds": 0, "tokens": 0, "updates": 0}
    other_text = None
    if start is not None:
        earlier = start["run"]
        other_text = earlier.get("other_text")
        if (before := start["text"]["identity"]) != gathered.identity:
            other_text = {"corpus": before, "tokens": earlier["tokens"], "updates": earlier["updates"]}
        titles = {part["title"] for part in documents}
        if lost := [part["title"] for part in start["text"]["parts"] if part["title"] not in titles]:
            raise SystemExit(f"{corpus} lacks {', '.join(lost)}, which {start['name']} was trained on")
    return {
        "name": name,
        "parameters": config.parameter_count,
        "model": config.to_dict(),
        "run": {
            "identity": manifest.identity,
            "commands": earlier["commands"] + [plain_command(open_folder(run, "run").command) for run in runs],
            "recipe": {k: v for k, v in manifest.config.items() if k != "model"},
            "seconds": round(earlier["seconds"] + sum(float(lines[-1]["seconds"]) for lines in journals)),
            "tokens": earlier["tokens"] + sum(lines[-1]["tokens"] for lines in journals),
            "updates": earlier["updates"] + sum(lines[-1]["step"] for lines in journals),
            "other_text": other_text,
            "tokens_per_second": round(
                statistics.median(line["tokens_per_second"] for lines in journals for line in lines)
            ),
            "versions": manifest.versions,
        },
        "text": {
            "identity": gathered.identity,
            "list": texts.name,
            "language": gather.read_language(texts),
            "parts": documents,
            "documents": sum(part["documents"] for part in documents),
            "train": counts["train"],
            "validation": counts["validation"],
        },
        "tokenizer": {
            "kind": packed.config["tokenizer_kind"],
            "entries": packed.config["vocabulary_size"],
            "identity": packed.config["tokenizer_identity"],
            "model": tokenizer_model(packed),
        },
        "curve": (start["curve"] if start else []) + curve(journals, earlier["updates"], earlier["tokens"]),
    }


def tokenizer_model(packed: Manifest) -> str | None:
    """Return the name of the model whose tokenizer packed the tokens; None for any other tokenizer."""
    return next(
        (Path(one.path).name for one in packed.inputs if (one.role, one.kind) == ("tokenizer", "model")), None
    )


def parts(corpus: Path, texts: Path) -> list[dict[str, Any]]:
    """Return what a corpus has of each part of the list. SystemExit names a document whose part is not in it."""
    from headwater.corpus import read_documents

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


def curve(journals: Sequence[Sequence[Mapping[str, Any]]], updates: int, tokens: int) -> list[dict[str, float]]:
    """Return the measured held-out losses of all runs, each with the mean training loss since the previous one.

    updates, tokens: those before the first run.
    """
    points: list[dict[str, float]] = []
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


def source_of(folder: Path, role: str) -> Path:
    """Return the input folder with this role. Raise SystemExit if it is missing or has changed."""
    from headwater.storage import identity_of, read_manifest

    entry = next(entry for entry in read_manifest(folder).inputs if entry.role == role)
    path = (folder / entry.path).resolve()
    if not path.exists() or identity_of(path)[1] != entry.identity:
        raise SystemExit(f"{path} is not the {role} that {folder} was made from")
    return path


def plain_command(command: str) -> str:
    """Return a command with absolute paths and those of recipes shortened to their names."""
    words = [
        Path(word).name if word.startswith("/") or word.endswith(".toml") else word
        for word in shlex.split(command)
    ]
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


if __name__ == "__main__":
    sys.exit(main())
