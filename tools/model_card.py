"""The card of a shipped model, from its description and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labelled import ROWS


@dataclass(frozen=True)
class Language:
    """What a card states for a language. A word's bytes include its space; `views` is about the text's views."""

    name: str
    prompts: tuple[str, ...]
    bytes_a_word: float
    views: str


LANGUAGES = {
    "en": Language(
        "English",
        ("It was a dark and stormy night", "The old man looked at her and said"),
        5.7,
        "Books keep the views of their time on sex, class, race and religion",
    ),
    "ko": Language(
        "Korean",
        ("오늘은", "이 영화는", "사용자가 파일을 저장하면"),
        10.9,
        "Reviews and petitions keep the views, the tone and the misspellings of those who wrote them",
    ),
}
_POINTS = 12  # of the curve
_NORMAL_95 = 1.96
_LARGE = 1_000


def card(about: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Return the model card: what the model is, its text, recipe, curve, scores and limits."""
    model, text, run, tokenizer = about["model"], about["text"], about["run"], about["tokenizer"]
    shape = f"{model['layers']} layers of {model['width']}, {model['heads']} heads, context {model['context']}"
    code = text.get("language", "en")
    language = LANGUAGES[code]
    norm = "before each part, as in GPT-2" if model["norm"] == "pre" else "after each part, as in GPT-1"
    corpus = f"corpus {text['identity'][:12]}"
    other = run.get("other_text")
    passes = f"{(run['tokens'] - (other['tokens'] if other else 0)) / text['train']['tokens']:.2f} passes"
    lines = [
        "---",
        "license: mit",
        f"language: {code}",
        "library_name: headwater",
        "pipeline_tag: text-generation",
        "---",
        "",
        f"# {about['name']}",
        "",
        f"A language model of {about['parameters']:,} parameters that ships with Headwater: {shape}; "
        f"LayerNorm {norm}. It is for experiments and teaching, not for decisions about people.",
        "",
        "```python",
        "import headwater as hw",
        "",
        f'hw.load("{about["name"]}").generate("{language.prompts[0]}", max_tokens=40, top_k=40, seed=1)',
        "```",
        "",
        *_tokenizer_note(about),
        "This card is written by `tools/ship.py` from `about.json` and `results.json` next to it.",
        "",
        "## Data",
        "",
        f"{text['documents']:,} documents in {language.name}, {text['train']['bytes'] / 1e6:.1f} MB to train on "
        f"and {text['validation']['bytes'] / 1e6:.1f} MB held out: {text['train']['tokens']:,} and "
        f"{text['validation']['tokens']:,} tokens of a tokenizer of kind {tokenizer['kind']} with "
        f"{tokenizer['entries']:,} entries, "
        + (
            f"taken from {'an earlier ' * (tokenizer['model'] == about['name'])}{tokenizer['model']}. "
            f"The text is {corpus}."
            if tokenizer.get("model")
            else f"learned from an earlier version of this text. This version is {corpus}."
            if other
            else f"learned from the same text ({corpus})."
        )
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
        f"{run['updates']:,} updates, {run['tokens']:,} tokens{'' if other else ', ' + passes}; "
        f"{run['seconds'] / 60:,.0f} minutes on a machine that also ran other work "
        f"({run['tokens_per_second']:,} tokens a second). "
        + (
            f"The first {other['updates']:,} updates read {other['tokens']:,} tokens of an earlier version of the "
            f"text (corpus {other['corpus'][:12]}); the others made {passes} over this one. "
            if other
            else ""
        )
        + f"Run {run['identity'][:12]}; "
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
        "In nats a token. A training loss is the mean since the previous line."
        + (f" Up to update {other['updates']:,}, both are on the earlier version of the text." if other else ""),
        "",
        "## Scores",
        "",
        "Zero-shot, with the bf16 weights of this folder"
        + (f", on at most {results['limit']:,} examples of each set" if results["limit"] else "")
        + ". Without overlap: examples that share an 8-gram with the training text left out.",
        "",
        "| protocol | metric | value | ± 95 % | examples | chance | without overlap | gpt2-small, published |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(_score(entry) for entry in results["results"]),
        "",
        *(f"- {entry['protocol']} is left out: {entry['reason']}" for entry in results["skipped"]),
        *([""] if results["skipped"] else []),
        *_yardsticks(results, tokenizer["kind"]),
        *_fine_tuned(results),
        "## Limits",
        "",
        *(f"- {limit}" for limit in limits(about, results)),
        "",
        "## Samples",
        "",
        "60 tokens, temperature 1, top-k 40, seed 1; not selected.",
        "",
    ]
    for sample in about["samples"]:
        lines += [f"> **{sample['prompt']}**{' '.join(sample['text'].split(' ')).replace(chr(10), ' ')}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _listed(texts: str | None) -> str:
    if texts is None:
        return ""
    return f" `recipes/texts/{texts}` describes these parts; `docs/models.md` has the commands."


def _tokenizer_note(about: Mapping[str, Any]) -> list[str]:
    if about["tokenizer"]["kind"] == "gpt2":
        return []
    return [
        "GPT-1's encoding needs two packages that a plain installation does not include: "
        "`pip install 'headwater[gpt1]'`. It lower-cases text and reads several line breaks as one.",
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


def _yardsticks(results: Mapping[str, Any], kind: str) -> list[str]:
    decoded = ""
    if kind == "gpt1":
        decoded = " They read the text that GPT-1's tokens decode to: lower-cased, with more spaces."
    for entry in results["results"]:
        if found := entry["details"].get("yardsticks"):
            values = [f"{one['name']}: {number(one['bits_per_byte'])}{_learned_from(one)}" for one in found]
            return [f"Bits per byte of other methods on the same held-out text. {'; '.join(values)}.{decoded}", ""]
    return []


def _learned_from(yardstick: Mapping[str, Any]) -> str:
    used = yardstick["training_bytes"]
    return f" (from {used / 1e6:.1f} MB of the training text)" if used else ""


def _fine_tuned(results: Mapping[str, Any]) -> list[str]:
    tuned = results.get("fine_tuned")
    if not tuned:
        return []
    lines = [
        "Fine-tuned for these epochs, at this peak learning rate, otherwise with the defaults of "
        "`headwater finetune`. The baseline is trained and tested on the same rows. Values are means over the "
        "seeds:",
        "",
        "| set | rows to train on | epochs | rate | rows tested | metric | value | standard deviation | seeds "
        "| baseline | value |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---|---:|",
        *(
            f"| {one['name']} | {one['rows']:,} | {one['epochs']} | {one['learning_rate']:.3g} "
            f"| {one['tested']:,} | {one['metric']} | {one['value']:.3f} "
            f"| {'' if one['deviation'] is None else number(one['deviation'])} "
            f"| {one['seeds']} | {one['baseline_name']} | {one['baseline']:.3f} |"
            for one in tuned
        ),
        "",
    ]
    few, many = ([one for one in tuned if (one["rows"] > ROWS) is more] for more in (False, True))
    for scores, it in ((few, "It"), (many, "Trained on all rows of a set, it")):
        if len(scores) > 1:
            better = sum(one["value"] > one["baseline"] for one in scores)
            lines += [f"{it} is above the baseline on {better} of {len(scores)} sets.", ""]
    remarks = {one["name"]: f"- {one['name']}: {'; '.join(one['remarks'])}" for one in tuned if one["remarks"]}
    if remarks:
        lines += ["About the rows:", "", *remarks.values(), ""]
    return lines


def number(value: float) -> str:
    """Format a number with three decimals if it is small, and with none if it is large."""
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:,.0f}"


def limits(about: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Return what the model cannot do. The last sentences follow from its scores."""
    language = LANGUAGES[about["text"].get("language", "en")]
    found = [
        f"Its context is {about['model']['context']} tokens, about {_words(about):,} words.",
        f"It was trained on the texts above and nothing else. {language.views}. They were not filtered "
        "for this, and the model was not trained on human preferences.",
        "Its statements about the world are invented. It does not follow instructions, and it knows no language "
        f"but {language.name}.",
    ]
    guessed = [
        entry["protocol"]
        for entry in results["results"]
        if entry["chance"] is not None
        and entry["stderr"] is not None
        and entry["value"] - _NORMAL_95 * entry["stderr"] <= entry["chance"]
    ]
    if guessed:
        found.append(f"Not significantly above chance (95 %): {', '.join(guessed)}.")
    return found


def _words(about: Mapping[str, Any]) -> int:
    """Return how many words fill a context, to the nearest ten, from the bytes a token of the held-out text."""
    held = about["text"]["validation"]
    a_word = LANGUAGES[about["text"].get("language", "en")].bytes_a_word
    return round(about["model"]["context"] * held["bytes"] / held["tokens"] / a_word / 10) * 10


def thinned(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return about `_POINTS` evenly spaced points of a curve, and always the last."""
    step = max(1, round(len(points) / _POINTS))
    return [*points[step - 1 : -1 : step], points[-1]]
