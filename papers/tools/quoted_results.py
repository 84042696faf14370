"""Quote published results on other pages: under the section that explains a claim, and all of them in Korean.

A page of docs/reading says `<!-- results NAME … -->`, with names of claims.toml. The lines after it are written
from papers/results: what came out, with its interval, the verdict, and a link to the page of the result. A claim
that is made several times there, as one for each table, has all its lines.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from headwater.config import read_toml

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "papers" / "results"
KOREAN = read_toml(Path(__file__).with_name("claims_ko.toml"))
MARK = re.compile(r"^<!-- results ([\w. ]+) -->\n(?:- .*\n)*", re.M)

# What `here` of a finding consists of, in English and in Korean: applied in this order.
_KOREAN_WORDS = (
    (r"on (\d+) of (\d+) sets outside the interval \((.+?)\)", r"데이터 \2개 가운데 \1개에서 구간 밖(\3)"),
    (r"of (gpt1, bert, elmo, lstm): (.+)", r"\1 가운데 \2"),
    (r"([\d.]+) % of samples, ([\d.]+) % of real text", r"생성문 \1%, 실제 글 \2%"),
    (r"([\d.]+)% of the most confident, ([\d.]+)% of all", r"가장 확신하는 답의 \1%, 전체의 \2%"),
    (r"the largest effect is ([^(]+\([^)]+\)) points \((.+)\); ", r"가장 큰 효과는 \1%p(\2); "),
    (
        r"first position rows at a deviation of ([\d.]+), not ([\d.]+), from scratch",
        r"위치 행의 첫 표준 편차 \1(원래 \2), 처음부터 학습",
    ),
    (r"least certain side of an effect (.+) points from the bound", r"가장 불확실한 효과는 경계에서 \1%p"),
    (r"least certain (?:set|step|size|number of rows) ", r"가장 불확실한 값 "),
    (r"held-out less training loss: ", r"학습하지 않은 글의 손실에서 학습한 글의 손실을 뺀 값 "),
    (r"unread less training text: ", r"읽지 않은 글에서 학습한 글을 뺀 값 "),
    (r"\(by size: ", r"(크기별 "),
    (r"above a constant answer by ", r"늘 같은 답을 하는 것보다 높은 정도 "),
    (r"; below it on ", r"; 그보다 낮은 데이터: "),
    (r"(\S+) after ([\d,]+) updates, (.+) after ([\d,]+)", r"업데이트 \2번 뒤 \1, \4번 뒤 \3"),
    (r"mean error ([\d.]+) %, each of (\d+) runs left out in turn", r"평균 오차 \1%(학습 \2개를 하나씩 빼고)"),
    (r"errors of ", r"오차 "),
    (r"a factor of ([\d.]+), (\d+) passages left out", r"\1배, 뺀 지문 \2개"),
    (r"([\d.]+%) of runs of (\d) words", r"\1(\2단어 연속)"),
    (r" of the words", r"(단어 기준)"),
    (r"(\d) words: ", r"\1단어: "),
    (r"(\d+) words$", r"단어 \1개"),
    (r" over ([a-z][\w, ]+)$", r" (\1)"),
    (r" nats a token", r" 나트/토큰"),
    (r" nats", r" 나트"),
    (r" bits a byte", r" 비트/바이트"),
    (r" points", r"%p"),
    (r" and ", r"와 "),
    (r" against ", r" 대 "),
    (r" to ", r"~"),
    (r"(\d|\)) %", r"\1%"),
)


def findings() -> list[dict[str, Any]]:
    """Return every published finding with `experiment`, and with `name`, its entry in claims.toml."""
    from headwater_papers.claims import CLAIMS

    patterns = {
        name: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(claim.claim)))
        for name, claim in CLAIMS.items()
    }
    found = []
    for path in sorted(RESULTS.glob("*/results.json")):
        results = json.loads(path.read_text("utf-8"))
        for finding in results["findings"]:
            for name, pattern in patterns.items():
                matched = pattern.fullmatch(finding["claim"])
                if matched and name.split(".")[0] == results["experiment"]:
                    found.append(
                        finding | {"experiment": results["experiment"], "name": name, "facts": matched.groupdict()}
                    )
    return found


def in_korean(finding: dict[str, Any]) -> tuple[str, str, str]:
    """Return claim, measured value and verdict of a finding in Korean."""
    words = KOREAN["words"]
    facts = {key: words.get(value, _span(value)) for key, value in finding["facts"].items()}
    here = finding["here"]
    for english, korean in _KOREAN_WORDS:
        here = re.sub(english, korean, here)
    return KOREAN["claims"][finding["name"]].format(**facts), here, KOREAN["verdicts"][finding["verdict"]]


def _span(fact: str) -> str:
    return re.sub(r"^(\d+) to (\d+)$", r"\1~\2", fact)


def with_results(text: str, page: Path) -> str:
    """Return the text of a page of docs/reading with the results that it names."""
    published = findings()
    korean = page.name.endswith(".ko.md")

    def lines(match: re.Match[str]) -> str:
        quoted = []
        for name in match[1].split():
            chosen = [one for one in published if one["name"] == name]
            if not chosen:
                raise KeyError(f"{page.name}: no result is published for {name}")
            for one in chosen:
                link = os.path.relpath(RESULTS / one["experiment"] / "README.md", page.parent)
                if korean:
                    claim, here, verdict = in_korean(one)
                    quoted.append(f"- 주장: {claim} 여기서 나온 값: {here}. 판정: **{verdict}**([결과]({link})).")
                else:
                    quoted.append(
                        f"- Claim: {one['claim']} Here: {one['here']}. "
                        f"**{one['verdict'].capitalize()}** ([result]({link}))."
                    )
        return f"<!-- results {match[1]} -->\n" + "".join(f"{line}\n" for line in quoted)

    return MARK.sub(lines, text)


def korean_index() -> str:
    """Return papers/results/README.ko.md: every claim, what came out and the verdict, by experiment."""
    lines = [
        KOREAN["beginning"],
        "| 주장 | 여기서 나온 값 | 판정 |",
        "|---|---|---|",
    ]
    for one in findings():
        claim, here, verdict = in_korean(one)
        lines.append(f"| [{claim}]({one['experiment']}/README.md) | {here} | {verdict} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return the pages that quote results, with their current text."""
    readings = sorted((ROOT / "docs" / "reading").glob("*.md"))
    quoting = {page: page.read_text("utf-8") for page in readings}
    texts = {page: with_results(text, page) for page, text in quoting.items() if MARK.search(text)}
    return {RESULTS / "README.ko.md": korean_index(), **texts}
