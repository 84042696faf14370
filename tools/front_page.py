"""Write what pages show of papers/results: the claims in README.md and README.ko.md, the law in docs/models.md.

python tools/front_page.py --check    fail if a page shows other verdicts or figures than the results
python tools/front_page.py --write    write them into the pages

The English cells are those of the results. The Korean page has its own words for each claim and each verdict; its
figures are those of the results, with the words between them replaced.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "papers" / "results" / "README.md"
SCALING = ROOT / "papers" / "results" / "scaling" / "README.md"
# The law and its forecasts on that page.
LAW = re.compile(r"^- (?:L\(N, D\) = |[^:]+ operations\): N = ).*$", re.M)
ROW = re.compile(
    r"^\| \[(?P<claim>.+?)\]\((?P<page>[^)]+)\) \| (?P<paper>.+) \| (?P<here>.+) \| (?P<verdict>.+) \|$", re.M
)
# The claims on the front page: as the results state them, and in Korean with the paper's figure.
CLAIMS = {
    "Pre-training reaches a perplexity of 18.4 a token.": (
        "사전 학습한 모델의 퍼플렉시티(perplexity)는 토큰당 18.4입니다.",
        "18.4",
    ),
    "At equal updates the Transformer's held-out loss is below that of an equally large LSTM.": (
        "업데이트(update) 횟수가 같으면 트랜스포머(Transformer)의 검증 손실(held-out loss)이 같은 크기의 "
        "LSTM보다 낮습니다.",
        "과제 점수로만 비교합니다 (표 5, 그림 2)",
    ),
    "Pre-training raises the average (table 5).": (
        "사전 학습을 하면 과제의 평균 점수가 오릅니다 (표 5).",
        "74.7 대 59.9: 14.8점",
    ),
    "Transferring all layers beats transferring the embeddings alone.": (
        "모든 층을 전이(transfer)하면 임베딩(embedding)만 전이할 때보다 낫습니다.",
        "MultiNLI에서 최대 9점",
    ),
    "Held-out bits a byte fall with size, at every step of the ladder.": (
        "모델이 커질 때마다 검증 텍스트의 바이트당 비트 수가 줄어듭니다.",
        "네 크기 모두에서 줄어듭니다 (그림 4)",
    ),
    "Summaries after TL;DR: are better than three random sentences of the article.": (
        "TL;DR: 뒤에 생성한 요약이 기사에서 무작위로 뽑은 세 문장보다 낫습니다.",
        "ROUGE 평균 21.40 대 20.98: 근소한 차이",
    ),
}
VERDICTS = {
    "holds": "성립합니다",
    "does not hold": "성립하지 않습니다",
    "weaker than expected": "기대한 효과보다 약합니다",
    "not decided at this scale": "이 규모에서는 판정할 수 없습니다",
}
# The words between the figures, longest first.
WORDS = {
    "nats a token": "nat/토큰",
    "least certain step": "가장 불확실한 단계",
    "against": "대",
    "points": "점",
    "to": "~",
}


@dataclass(frozen=True)
class Row:
    """One claim of papers/results/README.md."""

    claim: str
    page: str
    paper: str
    here: str
    verdict: str


def rows() -> list[Row]:
    """Return the rows of `CLAIMS`, in that order."""
    found = {
        match["claim"]: Row(**match.groupdict()) for match in ROW.finditer(RESULTS.read_text(encoding="utf-8"))
    }
    missing = CLAIMS.keys() - found.keys()
    if missing:
        raise SystemExit(f"{RESULTS.relative_to(ROOT)} has no such claim, change CLAIMS: {sorted(missing)}")
    return [found[claim] for claim in CLAIMS]


def in_korean(figures: str) -> str:
    """Return figures with the English words between them replaced."""
    for english, korean in WORDS.items():
        figures = re.sub(rf"\b{english}\b", korean, figures)
    if left := re.findall(r"[a-z]{2,}", figures.replace("nat/", "")):
        raise SystemExit(f"WORDS has no Korean for {left} in {figures!r}")
    return figures.replace(" 점", "점")


def table(*, korean: bool) -> str:
    """Return the table of the claims as Markdown."""
    lines = [
        "| 주장 | 논문 | 재현 결과 | 판정 |" if korean else "| claim | paper | here | verdict |",
        "|---|---|---|---|",
    ]
    for row in rows():
        claim, paper, verdict = row.claim, row.paper, row.verdict
        here = row.here.partition(" over ")[0]  # the page lists the sets of an average
        if korean:
            (claim, paper), here, verdict = CLAIMS[claim], in_korean(here), VERDICTS[verdict]
        lines.append(f"| [{claim}](papers/results/{row.page}) | {paper} | {here} | {verdict} |")
    return "\n".join(lines)


def law() -> str:
    """Return the lines of the scaling law and of its forecast for each budget."""
    found = LAW.findall(SCALING.read_text(encoding="utf-8"))
    if not found:
        raise SystemExit(f"{SCALING.relative_to(ROOT)} has no law")
    return "\n".join(found)


def parts() -> dict[str, tuple[str, str]]:
    """Return what each page has between its marks: (name of the mark, content)."""
    return {
        "README.md": ("claims", table(korean=False)),
        "README.ko.md": ("claims", table(korean=True)),
        "docs/models.md": ("law", law()),
    }


def main() -> int:
    """Check or write the pages. Return the exit status."""
    status = 0
    for name, (mark, content) in parts().items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
        expected = f"{text.partition(start)[0]}{start}\n{content}\n{end}{text.partition(end)[2]}"
        if sys.argv[1:] == ["--write"]:
            path.write_text(expected, encoding="utf-8")
        elif text != expected:
            print(f"{name}: what it shows of the results is out of date: run make format")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
