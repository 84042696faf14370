"""Quote published results on other pages: under the section that explains a claim, and all of them in Korean.

A page of docs/reading says `<!-- results NAME … -->`, with names of claims.toml. The lines after it are written
from papers/results: what came out, with its interval, the verdict, and a link to the page of the result. A claim
that is made several times there, as one for each table, has all its lines.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headwater.config import read_toml

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "papers" / "results"
KOREAN = read_toml(Path(__file__).with_name("claims_ko.toml"))
MARK = re.compile(r"^<!-- results ([\w. ]+) -->\n(?:- .*\n)*", re.M)

# The parts of `here` in English and in Korean, for claims without a text in claims_ko.toml, applied in this order.
_KOREAN_WORDS = (
    (
        r"better with pre-training on (\d+) of (\d+) sets \((.+?)\)",
        r"사전 학습한 쪽이 데이터 \2개 가운데 \1개에서 나음(\3)",
    ),
    (r"of (gpt1, bert, elmo, lstm): (.+)", r"\1 가운데 \2"),
    (r"([\d.]+) % of samples, ([\d.]+) % of real text", r"생성문 \1%, 실제 글 \2%"),
    (r"the largest effect is ([^(]+\([^)]+\)) points \((.+)\); ", r"가장 큰 효과는 \1%p(\2); "),
    (
        r"first position rows at a deviation of ([\d.]+), not ([\d.]+), from scratch",
        r"위치 행의 첫 표준 편차 \1(원래 \2), 처음부터 학습",
    ),
    (r"least certain side of an effect (.+) points from the bound", r"가장 불확실한 효과는 경계에서 \1%p"),
    (r"least certain (?:set|step|size|number of rows) ", r"가장 불확실한 값 "),
    (r"held-out less training loss: ", r"학습하지 않은 글의 손실에서 학습한 글의 손실을 뺀 값 "),
    (r"unread less training text: ", r"읽지 않은 글의 손실에서 학습한 글의 손실을 뺀 값 "),
    (r"\(by size: ", r"(크기별 "),
    (
        r" points on average; above a constant answer by (.+?) points",
        r"점(평균); 늘 같은 답을 하는 것보다 \1점 높음",
    ),
    (r"; below it on ", r"; 그보다 낮은 데이터: "),
    (
        r", on an axis from a guess \(0\) to the best system then \(1\)",
        r"(0은 찍었을 때, 1은 당시 가장 나은 시스템)",
    ),
    (r"(\S+) after ([\d,]+) updates, (.+) after ([\d,]+)", r"업데이트 \2번 뒤 \1, \4번 뒤 \3"),
    (r"mean error ([\d.]+) %, each of (\d+) runs left out in turn", r"평균 오차 \1%(학습 \2개를 하나씩 빼고)"),
    (
        r"(\S+) to (\S+) new parameters for features, (\S+) for fine-tuning",
        r"특징을 쓰면 새 파라미터 \1~\2개, 미세 조정은 \3개",
    ),
    (r"([\d.]+) % of its bytes", r"바이트의 \1%"),
    (r"(\d) words: ", r"\1단어: "),
    (r" over ([a-z][\w, ]+)$", r" (\1)"),
    (r"errors of ", r"오차 "),
    (r" points from the bound of 2 %", r"%p"),
    (r" bits per byte", r" 비트/바이트"),
    (r" nats per token", r" 나트/토큰"),
    (r" nats", r" 나트"),
    (r" points", r"%p"),
    (r" against ", r" 대 "),
    (r" to ", r"~"),
    (r"(\d|\)) %", r"\1%"),
)


def findings() -> list[dict[str, Any]]:
    """Return every published finding, with `experiment` and `rows`, the rows of its results."""
    from headwater_papers.published import published

    read = (published(json.loads(path.read_text("utf-8"))) for path in sorted(RESULTS.glob("*/results.json")))
    return [
        finding | {"experiment": results["experiment"], "rows": results["rows"]}
        for results in read
        for finding in results["findings"]
    ]


def in_korean(finding: dict[str, Any]) -> tuple[str, str, str]:
    """Return claim, measured value and verdict of a finding in Korean."""
    from headwater_papers.published import number_here

    words, name = KOREAN["words"], finding["name"]
    facts = {key: words.get(value, _span(value)) for key, value in finding["facts"].items()}
    template = KOREAN["here"].get(name)
    here = number_here(template, finding, finding["rows"]) if template else finding["here"]
    for english, korean in _KOREAN_WORDS:
        here = re.sub(english, korean, here)
    return KOREAN["claims"][name].format(**facts), here, KOREAN["verdicts"][finding["verdict"]]


def counted_in_korean(findings: Iterable[dict[str, Any]]) -> str:
    """Return the sentence that says how many claims have which verdict, as `counted` does in English."""
    from headwater_papers.published import tally

    count = tally(findings)
    numbers = {verdict.replace(" ", "_"): count[verdict] for verdict in KOREAN["verdicts"]}
    text: str = KOREAN["counted"].format(total=count.total(), **numbers)
    return text.strip()


def _span(fact: object) -> object:
    return re.sub(r"^(\d+) to (\d+)$", r"\1~\2", fact) if isinstance(fact, str) else fact


def with_results(text: str, page: Path) -> str:
    """Return the text of a page of docs/reading with the results that it names."""
    published = findings()
    korean = page.name.endswith(".ko.md")

    def lines(match: re.Match[str]) -> str:
        quoted = []
        for name in match[1].split():
            chosen = [finding for finding in published if finding["name"] == name]
            if not chosen:
                raise KeyError(f"{page.name}: no result is published for {name}")
            for finding in chosen:
                link = os.path.relpath(RESULTS / finding["experiment"] / "README.md", page.parent)
                if korean:
                    claim, here, verdict = in_korean(finding)
                    quoted.append(f"- 주장: {claim} 여기서 나온 값: {here}. 판정: **{verdict}**([결과]({link})).")
                else:
                    quoted.append(
                        f"- Claim: {finding['claim']} Here: {finding['here']}. "
                        f"**{finding['verdict'].capitalize()}** ([result]({link}))."
                    )
        return f"<!-- results {match[1]} -->\n" + "".join(f"{line}\n" for line in quoted)

    return MARK.sub(lines, text)


def korean_index() -> str:
    """Return papers/results/README.ko.md: the rows of README.md there, in Korean, with its warnings."""
    from headwater_papers.page import experiments_with_fewer_seeds
    from headwater_papers.published import tally

    shown = findings()
    few = ", ".join(experiments_with_fewer_seeds(RESULTS))
    lines = [
        KOREAN["beginning"].strip(),
        "",
        KOREAN["fewer_seeds"].format(experiments=few) if few else "",
        "",
        counted_in_korean(shown),
        "",
        "| 주장 | 여기서 나온 값 | 판정 |",
        "|---|---|---|",
    ]
    for finding in shown:
        claim, here, verdict = in_korean(finding)
        lines.append(f"| [{claim}]({finding['experiment']}/README.md) | {here} | {verdict} |")
    if tally(shown)["says nothing"]:
        lines += ["", KOREAN["says_nothing"].strip()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def pages() -> dict[Path, str]:
    """Return the pages that quote results, with their current text."""
    readings = sorted((ROOT / "docs" / "reading").glob("*.md"))
    quoting = {page: page.read_text("utf-8") for page in readings}
    texts = {page: with_results(text, page) for page, text in quoting.items() if MARK.search(text)}
    return {RESULTS / "README.ko.md": korean_index(), **texts}
