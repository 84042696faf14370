"""What experiments share: corpora, tokenizers, tokens, models, fine-tuned models, scores.

Everything is in `OUT/shared`, in folders whose names end in a hash of their configuration and inputs. Experiments
that ask for the same thing get the same folder. After a change of a number in a scale, only what depends on it is
made again. Each folder is a stage, so a run that was killed resumes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwater import shipped
from headwater.corpus import build_corpus, load_recipe, read_documents, training_grams, write_documents
from headwater.display import counted, duration
from headwater.errors import DataError
from headwater.evaluation import VERSION, DataFiles, Figure, Results, evaluate, select
from headwater.inference import load
from headwater.model import save_model
from headwater.pretraining import PretrainConfig, TokenStream, pack, pretrain
from headwater.reading import read_json
from headwater.storage import SILENT, Progress, Stage, has_manifest, identity_of, write_json
from headwater.tokenizer import Tokenizer, train_tokenizer
from headwater.training import read_journal
from headwater_papers.scale import Scale

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

DIGITS = 10  # of the hash in a folder's name


def once(
    make: Callable[Concatenate[Laboratory, Arguments], Made],
) -> Callable[Concatenate[Laboratory, Arguments], Made]:
    """Cache a laboratory function's results by its arguments; each call records the folders that it used."""

    @functools.wraps(make)
    def find(laboratory: Laboratory, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        key = (make.__name__, *arguments, *named.values())
        if key not in laboratory.made:
            before, laboratory.used = laboratory.used, {}
            made = make(laboratory, *arguments, **named)
            laboratory.made[key] = made, laboratory.used
            laboratory.used = before
        result: Made
        result, used = laboratory.made[key]
        laboratory.used.update(used)
        return result

    return find


class Laboratory:
    """Makes or finds what an experiment asks for, and reports how much work is left.

    `pieces` names all the work as (kind, name); the time left is estimated from finished pieces of the same kind.
    """

    def __init__(
        self,
        scale: Scale,
        data: Path,
        shared: Path,
        pieces: set[tuple[str, str]] | None = None,
        progress: Progress = SILENT,
        *,
        device: str = "auto",
    ) -> None:
        self.device = device
        self.scale, self.data, self.shared, self.progress = scale, data, shared, progress
        self.used: dict[str, Path] = {}
        self._left = set(pieces or ())
        self._all = len(self._left)
        self._took: dict[str, list[float]] = defaultdict(list)
        self._identity = functools.cache(lambda path: identity_of(path)[1])
        self.made: dict[tuple[object, ...], tuple[Any, dict[str, Path]]] = {}  # see `once`
        shared.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def at(self, scale: Scale) -> Iterator[None]:
        """Work at another scale within the block."""
        before = self.scale, self.made
        self.scale, self.made = scale, self.made if scale is self.scale else {}
        try:
            yield
        finally:
            self.scale, self.made = before

    def place(self, name: str, config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Path:
        """Return the folder for what this configuration makes from these inputs, and record it as used."""
        what = {"config": dict(config), "inputs": {role: self._identity(path) for role, path in inputs.items()}}
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        path = self.shared / f"{name}-{digest[:DIGITS]}"
        self.used[path.name] = path
        return path

    @contextmanager
    def piece(self, kind: str, name: str, place: Path) -> Iterator[None]:
        """Do one piece of work at `place`; afterwards report how much is left."""
        made = not has_manifest(place)
        started = time.monotonic()
        yield
        self._left.discard((kind, name))
        if made:
            took = time.monotonic() - started
            self._took[kind].append(took)
            self.progress.note(f"{kind} {name}: {duration(took)}; {self._remaining()}")

    def leave_out(self, kind: str, name: str) -> None:
        """Take a piece of work off the list, since there is nothing to do for it."""
        self._left.discard((kind, name))

    def measured(
        self,
        folder: str,
        file: str,
        measure: Callable[[], Any],
        *,
        kind: str,
        name: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Path],
        also: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the result of `measure`, which is called once and stored as JSON in a folder.

        also: what the name of the folder depends on in addition to its configuration.
        """
        out = self.place(folder, {**config, **(also or {})}, inputs)
        stage = Stage(out, kind=kind, config=config, inputs=inputs)
        with self.piece(kind, name, out):
            if not stage.is_complete():
                measured = measure()
                with stage.write() as work:
                    write_json(work / file, measured)
        return read_json(out / file)

    # Text

    @once
    def corpus(self, name: str) -> tuple[Path, Path]:
        """Return the training corpus of a text, and the corpus of its held-out documents."""
        plan = self.scale.texts[name]
        sources = {source: self.data / source for source in plan.sources}
        recipe = load_recipe(plan.recipe, plan.changes)
        whole = self.place(f"corpus-{name}", recipe.to_dict(), sources)
        build_corpus(list(sources.values()), whole, recipe, progress=self.progress)
        held_out = choose_held_out(whole, plan.held_out)
        parts = []
        for part in ("train", "held-out"):
            out = self.place(f"corpus-{name}-{part}", {"held_out": plan.held_out}, {"corpus": whole})
            config = {"part": part, "held_out": plan.held_out}
            stage = Stage(out, kind="corpus", config=config, inputs={"corpus": whole})
            if not stage.is_complete():
                with stage.write() as work:
                    wanted = part == "held-out"
                    documents = (d for d in read_documents(whole) if (d.id in held_out) == wanted)
                    labels = dict.fromkeys(label for d in read_documents(whole) for label in d.labels)
                    write_documents(documents, work, list(labels))
            parts.append(out)
        return parts[0], parts[1]

    @once
    def tokens(self, name: str) -> tuple[Path, Path]:
        """Return a text as tokens: what models train on, and the held-out documents.

        Each part of the second folder has half of the held-out documents; scores are of its part "validation".
        """
        plan = self.scale.texts[name]
        train, held_out = self.corpus(name)
        config = {"kind": plan.tokenizer, "vocab_size": plan.vocabulary}
        tokenizer = self.place(f"tokenizer-{name}", config, {"corpus": train})
        train_tokenizer(
            [train], tokenizer, kind=plan.tokenizer, vocab_size=plan.vocabulary, progress=self.progress
        )
        packed = []
        for part, corpus, share in (("train", train, plan.validation), ("held-out", held_out, 0.5)):
            out = self.place(f"tokens-{name}-{part}", {"share": share}, {"corpus": corpus, "tokenizer": tokenizer})
            pack(corpus, tokenizer, out, share, progress=self.progress)
            packed.append(out)
        return packed[0], packed[1]

    # Models

    @once
    def run(self, name: str, seed: int, *, steps: int | None = None, note: str = "") -> Path:
        """Return the pre-training run of a model that the scale has a recipe for.

        steps: updates instead of the recipe's, without snapshots; `note`, which gives the reason, is
        appended to the name of the piece.
        """
        plan = self.scale.models[name]
        tokens, _ = self.tokens(plan.text)
        changes = {"seed": seed} | ({} if steps is None else {"steps": steps})
        snapshots = plan.snapshots if steps is None else ()
        config = PretrainConfig.build(plan.recipe, changes, source=f"models.{name}.recipe")
        out = self.place(f"run-{name}-{seed}", config.to_dict() | {"snapshots": snapshots}, {"tokens": tokens})
        config = config.model_copy(update={"device": self.device})  # the device does not change the folder
        with self.piece(f"pre-training{note}", f"{name}, seed {seed}", out):
            keep = functools.partial(_save_snapshot, out, snapshots, tokens) if snapshots else None
            pretrain(config, tokens, out, more_figures=keep, progress=self.progress)
        return out

    def model(self, name: str, seed: int) -> Path:
        """Return the folder of a pre-trained model; the same for every seed if the scale names one that exists."""
        existing = self.scale.models[name].model
        if existing:
            self.used[name] = shipped.resolve(existing)
            return self.used[name]
        return self.run(name, seed) / "model"

    def snapshots(self, name: str, seed: int) -> dict[int, Path]:
        """Return the snapshots of a model by update."""
        run = self.run(name, seed)
        return {step: snapshot_folder(run, step) for step in self.scale.models[name].snapshots}

    def curve(self, name: str, seed: int) -> list[dict[str, Any]]:
        """Return the lines of a run's journal; some have a validation_loss."""
        return read_journal(self.run(name, seed) / "metrics.jsonl")

    # Scores

    def evaluate(
        self, name: str, model: Path, tasks: Sequence[str], *, limit: int | None = None
    ) -> tuple[Results, Path]:
        """Return the zero-shot scores of a model on protocols, and the folder with every example.

        The folder also depends on the protocols' files: one that is added or changed later gets new scores.
        """
        config = {"tasks": list(tasks), "limit": limit, "protocols": VERSION}
        located, _ = DataFiles([self.data]).locate_tasks(select(tasks))
        files = {f"{task.protocol} {role}": path for task in located for role, path in located[task].items()}
        out = self.place(f"scores-{_file_name(name)}", config, {"model": model} | files)
        with self.piece("scores", name, out):
            results = evaluate(
                model,
                tasks,
                self.data,
                out,
                limit=limit,
                device=self.device,
                allow_empty=True,  # the report says what was left out
                progress=self.progress,
            )
            return results, out

    def perplexity(
        self, name: str, model: Path, tokens: Path, part: str, windows: int | Sequence[int]
    ) -> dict[str, float]:
        """Return loss per token (nats) and perplexity of a model on windows of a part of a tokens folder.

        windows: their number, evenly spaced over the part, or their indices. A window is one context of the model;
        all of its tokens but the first are scored. "loss error" is the standard error over windows. A tokenizer of
        kind gpt2, whose tokens are bytes, also gives "bits per byte".
        """
        return self.measured(
            f"perplexity-{_file_name(name)}",
            "perplexity.json",
            lambda: _perplexity(model, tokens, part, windows, self.device),
            kind="perplexity",
            name=name,
            config={"part": part, "windows": windows, "error": "windows"},
            inputs={"model": model, "tokens": tokens},
        )

    def overlap(
        self, text: str, rows: Mapping[str, Path], read: Callable[[Path], Sequence[str]]
    ) -> dict[str, Any]:
        """Return the percentage of the 8-grams of test texts that occur in a training text (GPT-2, section 4).

        `rows` are folders by the name of the set, and `read` returns the test texts of one.
        """
        corpus, _ = self.corpus(text)

        def measure() -> dict[str, Any]:
            tests = {name: read(folder) for name, folder in rows.items()}
            grams = training_grams(corpus, chain.from_iterable(tests.values()))
            overlaps = {}
            for name, texts in tests.items():
                percent, total = grams.percent(texts)
                overlaps[name] = {"grams": total, "percent": percent}
            return overlaps

        inputs = {"corpus": corpus, **rows}
        config = {"words": 8}
        return self.measured(
            f"overlap-{text}", "overlap.json", measure, kind="overlap", name=text, config=config, inputs=inputs
        )

    def _remaining(self) -> str:
        if not self._left:
            return "nothing is left"
        known = [self._took[kind] for kind, _ in self._left if self._took[kind]]
        seconds = sum(sum(took) / len(took) for took in known)
        more = "at least " if len(known) < len(self._left) else "about "
        return f"{len(self._left)} of {self._all} pieces left, {more}{duration(seconds)}"


def choose_held_out(corpus: Path, share: float) -> frozenset[str]:
    """Return the ids of the held-out documents: the `share` with the smallest hashes, at least one."""
    ids = [document.id for document in read_documents(corpus)]
    if len(ids) < 2:
        raise DataError(f"{corpus} has {counted(len(ids), 'document')}", expected="at least two, to hold one out")
    ordered = sorted(ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return frozenset(ordered[: max(1, round(share * len(ids)))])


def snapshot_folder(run: Path, step: int) -> Path:
    """Return the folder of the model after update `step`."""
    return run.with_name(f"{run.name}-snapshots") / f"{step:07d}"


def _save_snapshot(run: Path, steps: Sequence[int], tokens: Path, model: Any, step: int) -> dict[str, float]:
    """Save the model after some updates, next to the run; called after each update of pre-training."""
    if step in steps:
        config = model.config.to_dict() | {"step": step, "run": run.name}
        stage = Stage(snapshot_folder(run, step), kind="model", config=config, inputs={"tokens": tokens})
        if not stage.is_complete():
            with stage.write() as work:
                save_model(model, work, tokenizer=Tokenizer.load(tokens / "tokenizer"))
    return {}


def evenly_placed(total: int, count: int) -> NDArray[np.int64]:
    """Return `count` evenly spaced places of `range(total)`, or all if there are fewer."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(np.int64))


def _perplexity(
    model: Path, tokens: Path, part: str, windows: int | Sequence[int], device: str
) -> dict[str, float]:
    lm = load(model, precision="fp32", device=device)
    stream = TokenStream(tokens, part, lm.config.context)
    chosen = evenly_placed(stream.windows, windows) if isinstance(windows, int) else windows
    asked = [stream.window(int(index))[0].tolist() for index in chosen]
    scores = lm.scorer.token_scores([(ids[:1], ids[1:]) for ids in asked])
    count = sum(len(score.log_probability) for score in scores)
    loss = -math.fsum(float(value) for score in scores for value in score.log_probability) / count
    sums = [-math.fsum(map(float, score.log_probability)) for score in scores]
    error = Figure.ratio("", sums, [len(score.log_probability) for score in scores]).stderr
    perplexity = {"loss": loss, "perplexity": math.exp(loss), "tokens": count, "loss error": error or 0.0}
    if lm.tokenizer.kind == "gpt2":
        size = sum(len(lm.tokenizer.token_bytes(token)) for ids in asked for token in ids[1:])
        perplexity["bits per byte"] = loss * count / math.log(2) / size
    return perplexity


def _file_name(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")
