"""GPT-2, sections 2.1 and 3.7: French in an English training text, and translations that occur in it (table 1).

No model is needed. A quotation is French if it has more French than English function words. The paper found its
French with a language detector that reads bytes; quotations are too short for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headwater.corpus import texts_of
from headwater_papers.claims import CLAIMS, judge_count
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.gpt2_ladder import PREFIX, text_of
from headwater_papers.gpt2_samples import as_line
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.paper_tables import number
from headwater_papers.scale import Scale
from headwater_papers.setup import describe_text

_FRENCH_WORDS = """
le la les des du un une et est je vous il elle que qui ne pas mon ma mes votre vos dans pour avec sur mais au aux
ce cette nous ils elles moi toi lui leur tout toute bien plus comme sont être c'est n'est qu'il d'une j'ai l'on
"""
_ENGLISH_WORDS = "the of and to a in is it he she you that was with for on i as not be his her my at by"
_FRENCH, _ENGLISH = frozenset(_FRENCH_WORDS.split()), frozenset(_ENGLISH_WORDS.split())
_QUOTED = re.compile(r"""[“"«‘](?P<text>[^“”"«»‘\n]{12,300})[”"»’]""")
_NAMED = re.compile(r"\b(?:French|English|translat\w+|meaning|means|that is to say|or, as)\b")
_AROUND = 160  # characters on each side that may translate a quotation
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
SHOWN = 5


class Quotation(NamedTuple):
    """A quotation in French, the text around it, and whether that text names a language or a translation."""

    french: str
    around: str
    named: bool


def is_french(text: str) -> bool:
    """Return whether a text of at least three words has more French than English function words."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(text)]
    french = sum(word in _FRENCH for word in words)
    return len(words) > 2 and french > 1 and french > sum(word in _ENGLISH for word in words)


def quotations(text: str) -> Iterator[Quotation]:
    """Yield the French quotations of a text."""
    for match in _QUOTED.finditer(text):
        if is_french(match["text"]):
            around = text[max(0, match.start() - _AROUND) : match.end() + _AROUND]
            yield Quotation(match["text"], " ".join(around.split()), bool(_NAMED.search(around)))


def _count(texts: Iterable[str]) -> dict[str, Any]:
    quoted: list[Quotation] = []
    total = 0
    for text in texts:
        total += len(text.encode())
        quoted += quotations(text)
    named = [one.around for one in quoted if one.named]
    return {
        "bytes": total,
        "french": sum(len(one.french.encode()) for one in quoted),
        "quoted": len(quoted),
        "named": len(named),
        "shown": [named[place] for place in evenly_placed(len(named), SHOWN)] if named else [],
    }


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: counting."""
    return {("counting", "table 1")}


def run(laboratory: Laboratory) -> Findings:
    """Count in the training text of the ladder."""
    name = text_of(laboratory.scale)
    train, _ = laboratory.corpus(name)
    counted = laboratory.measured(
        "translations",
        "quotations.json",
        lambda: _count(texts_of(train)),
        kind="counting",
        name="table 1",
        config={"around": _AROUND, "shown": SHOWN},
        inputs={"train": train},
    )
    share = 100 * counted["french"] / counted["bytes"]
    paper = 100 * number("webtext | bytes of French, about | amount") / number("webtext | bytes of text | amount")
    return Findings(
        rows=[
            Row(name, "% of the bytes that are French", [share], paper),
            Row(name, "quotations in French", [counted["quoted"]]),
            Row(name, "with a language or a translation named near them", [counted["named"]]),
        ],
        findings=[judge_count(CLAIMS["gpt2_translations.few"], 1 - share, here=f"{share:.4f} % of its bytes")],
        setup=describe_text(laboratory, name),
        notes=[
            f"As in table 1, {n} of {SHOWN}: {as_line(text)}" for n, text in enumerate(counted["shown"], start=1)
        ],
    )


TRANSLATIONS = Experiment(
    name="gpt2_translations",
    title="Translations that occur in the training text",
    paper="GPT-2",
    section="2.1 and 3.7 (table 1)",
    claim="An English text has a little French, and places that show how to translate it.",
    models=(PREFIX,),
    any_base=True,
    pieces=pieces,
    run=run,
    paper_tables=("webtext",),
)
