"""`headwater corpus`: gather text into a corpus, or inspect one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwater.cli.console import AsJson, Encoding, Out, Settings, emit, refuse_unused, terminal_progress
from headwater.cli.keys import keys_option
from headwater.display import counted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Gather text into a corpus, or inspect one.")
RULES_SHOWN = 8  # for each step


BUILD_KEYS = keys_option("headwater.corpus:BuildConfig")
LINKS_KEYS = keys_option("headwater.corpus:LinksConfig")
FETCH_KEYS = keys_option("headwater.corpus:FetchConfig")


@app.command()
def build(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…",
            help="python-docs (the documentation in the installed Python packages), or files and folders of "
            ".txt, .md, .jsonl, .json, .csv, .tsv (also .gz, .zst, .xz, .bz2), .parquet, .html, .warc.gz, "
            ".wet.gz, or a corpus; or the URL of one file.",
        ),
    ],
    out: Out,
    recipe: Annotated[str, typer.Option(help="plain, webtext (GPT-2), books (GPT-1), or a TOML file.")] = "plain",
    text_field: Annotated[
        str | None, typer.Option(help="Field or column with the text.", show_default="text")
    ] = None,
    encoding: Encoding = "",
    workers: Annotated[int, typer.Option(help="Number of worker processes.", min=1)] = 1,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Where to run: this machine, or a Ray cluster."),
    ] = "local",
    address: Annotated[
        str, typer.Option(help="Address of the Ray cluster; by default one is started on this machine.")
    ] = "",
    settings: Settings = None,
    keys: Annotated[bool, BUILD_KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Gather sources into a corpus, one Parquet row per document, by the rules of a recipe."""
    from headwater.config import parse_settings
    from headwater.corpus import build_corpus, load_recipe, read_funnel

    if engine != "ray":
        refuse_unused(context, f"--engine {engine}", "address")
    options = {} if text_field is None else {"text_field": text_field}
    options |= {"encoding": encoding} if encoding else {}
    config = load_recipe(recipe, parse_settings(settings or []) | options)
    progress = terminal_progress()
    build_corpus(sources, out, config, workers=workers, engine=engine, address=address, progress=progress)
    funnel = read_funnel(out)
    emit({"out": str(out), **funnel}, as_json=as_json, text=_funnel_text(str(out), funnel))


@app.command()
def links(
    dumps: Annotated[
        list[str],
        typer.Argument(
            metavar="DUMP…",
            help="Reddit submissions: .zst, .xz, .bz2, .gz or plain; or the URL of one.",
        ),
    ],
    out: Out,
    workers: Annotated[int, typer.Option(help="Number of worker processes, each for one dump.", min=1)] = 1,
    settings: Settings = None,
    keys: Annotated[bool, LINKS_KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Gather the outbound links of Reddit submissions with at least three points, as WebText did."""
    from headwater.config import parse_settings
    from headwater.corpus import LinksConfig, gather_links

    config = LinksConfig.build(parse_settings(settings or []), source="--set")
    counts = gather_links(dumps, out, config, workers=workers, progress=terminal_progress())
    removed = ", ".join(f"{rule} {count:,}" for rule, count in counts["removed"].items())
    text = (
        f"{out}: {counts['links']:,} links of {counts['submissions']:,} submissions; removed: {removed or 'none'}"
    )
    emit({"out": str(out), **counts}, as_json=as_json, text=text)


@app.command()
def fetch(
    links: Annotated[Path, typer.Argument(help="A links folder.")],
    out: Out,
    settings: Settings = None,
    keys: Annotated[bool, FETCH_KEYS] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch links and write the pages as WARC. Obeys robots.txt; uses the network; run it again to resume."""
    from headwater.config import parse_settings
    from headwater.corpus import FetchConfig, fetch_links

    config = FetchConfig.build(parse_settings(settings or []), source="--set")
    counts = fetch_links(links, out, config, progress=terminal_progress())
    outcomes = ", ".join(f"{outcome} {count:,}" for outcome, count in counts["outcomes"].items())
    text = f"{out}: {counts['pages']:,} pages of {counts['links']:,} links; {outcomes}"
    emit({"out": str(out), **counts}, as_json=as_json, text=text)


@app.command()
def stats(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder.")],
    as_json: AsJson = False,
) -> None:
    """Print a corpus's documents, lengths, languages, sources and labels, and what its build removed."""
    from headwater.corpus import read_funnel, statistics

    figures = statistics(corpus)
    text = _stats_text(corpus, figures)
    if funnel := read_funnel(corpus):
        figures["funnel"] = funnel
        text += "\n" + _funnel_text("  how it was made:", funnel)
    emit(figures, as_json=as_json, text=text)


@app.command()
def overlap(
    train: Annotated[Path, typer.Option(help="Training corpus: a folder or a file.")],
    test: Annotated[list[Path], typer.Option(help="Test text. Repeatable.")],
    own: Annotated[
        list[Path] | None,
        typer.Option(
            "--test-train", help="The training part of a test set: one for each --test, in the same order."
        ),
    ] = None,
    words: Annotated[int, typer.Option(help="Words in an n-gram.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """Print the percentage of test texts' n-grams that occur in a training corpus (GPT-2, table 6)."""
    from headwater.corpus import measure_overlap

    report = measure_overlap(train, test, own or [], words=words, progress=terminal_progress())
    emit(report, as_json=as_json, text=_overlap_text(report))


def _funnel_text(heading: str, funnel: dict[str, Any]) -> str:
    def size(counted: dict[str, Any]) -> str:
        return f"{counted['documents']:>12,} documents {counted['bytes'] / 1e6:>12,.2f} MB"

    lines = [heading, f"  {'read':32}{size(funnel['read'])}"]
    for step, rules in funnel["removed"].items():
        ordered = sorted(rules.items(), key=lambda entry: -entry[1]["documents"])
        lines += [f"  {f'- {step}: {rule}':32}{size(removed)}" for rule, removed in ordered[:RULES_SHOWN]]
        if len(ordered) > RULES_SHOWN:
            lines.append(f"  - {step}: {len(ordered) - RULES_SHOWN} further rules, in funnel.json")
    for kind, count in funnel["duplicates"].items():
        lines.append(f"  {f'- duplicates: {kind}':32}{count:>12,} documents")
    lines.append(f"  {'kept':32}{size(funnel['kept'])}")
    for mark, kind in (("(declared", "pages in another encoding than declared"), ("(text", "files not in UTF-8")):
        guessed = {name: count for name, count in funnel.get("encodings", {}).items() if mark in name}
        if guessed:
            lines.append(f"  {kind}: {', '.join(f'{count:,} {name}' for name, count in guessed.items())}")
    for kind, entry in sorted(funnel.get("left_out", {}).items(), key=lambda named: -named[1]["count"]):
        first = f" (first: {entry['examples'][0][:80]})" if entry["examples"] else ""
        lines.append(f"  left out: {kind}: {entry['count']:,}{first}")
    if replaced := funnel.get("replaced"):
        lines.append(f"  with U+FFFD, in place of lost characters: {counted(replaced, 'document')}")
    if composed := funnel.get("composed"):
        lines.append(f"  changed to Unicode's composed form (NFC): {counted(composed, 'document')}")
    if funnel["set_aside"]:
        lines.append(f"  set aside: {funnel['set_aside']:,} (set-aside.jsonl names each page or file and why)")
    return "\n".join(lines)


def _stats_text(corpus: Path, figures: dict[str, Any]) -> str:
    lines = [
        str(corpus),
        f"  documents   {figures['documents']:,}",
        f"  bytes       {figures['bytes']:,}",
        f"  characters  {figures['characters']:,}",
    ]
    lengths = ", ".join(f"{name} {value:,}" for name, value in figures["characters_per_document"].items())
    lines.append(f"  characters per document: {lengths}")
    lines.append(f"  the string <UNK>: {figures['unknown']:,} times")
    for name, summary in figures["counts"].items():
        if summary["distinct"] is None:
            lines.append(f"  {name}: more distinct values than are counted")
            continue
        shown = ", ".join(f"{value} {count:,}" for value, count in summary["top"] if len(value) < 60)
        lines.append(f"  {name} ({summary['distinct']:,} distinct): {shown or 'too long to show'}")
    return "\n".join(lines)


def _overlap_text(report: dict[str, Any]) -> str:
    width = max(len("test text"), *(len(row["name"]) for row in report["rows"]))
    train_part = f"in {Path(report['train']).name}"
    lines = [f"{'test text'.ljust(width)}  {'n-grams':>11}  {train_part:>20}  {'own training part':>17}"]
    for row in report["rows"]:
        own = "–" if row["own"] is None else f"{row['own']:.2f} %"
        train = f"{row['train']:.2f} %"
        lines.append(f"{row['name'].ljust(width)}  {row['grams']:>11,}  {train:>20}  {own:>17}")
    lines.append(
        f"{report['words']}-grams of lower-cased words; {report['train_grams']:,} in the training text; "
        f"{report['index_bytes'] / 1e6:.1f} MB for those of the test texts"
    )
    return "\n".join(lines)
