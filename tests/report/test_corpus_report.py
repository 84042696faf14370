"""A corpus on the page: its funnel, and each rule with examples."""

from __future__ import annotations

import json
from pathlib import Path

from headwater.corpus import BuildConfig, build_corpus
from headwater.report import report
from headwater.report.content import read_corpus


def write_corpus(folder: Path) -> Path:
    texts = [" ".join(f"river{day}stone{place}" for place in range(50 + 9 * day)) for day in range(9)]
    rows = [{"text": text, "url": f"http://www.nytimes.com/{day}"} for day, text in enumerate(texts)]
    rows += [rows[0], {"text": "<b>short & sweet</b>"}, {"text": f"{texts[8]} And more of the same."}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus(
        [folder / "rows.jsonl"], folder / "corpus", BuildConfig(minimum_characters=50, near_duplicates=True)
    )
    return folder / "corpus"


def test_a_corpus_is_shown_with_what_was_removed(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    shown = read_corpus(corpus)
    assert [(stage.name, stage.documents) for stage in shown.stages] == [
        ("read", 12),
        ("after length", 11),
        ("after duplicates", 9),
    ]
    assert [(rule.name, rule.documents) for rule in shown.rules] == [
        ("length: short", 1),
        ("duplicates: exact", 1),
        ("duplicates: near", 1),
    ]
    report([corpus], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;short &amp; sweet" in page
    assert "<b>short" not in page
    assert "duplicates: near" in page


def test_the_report_of_a_nested_corpus_has_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "work" / "inner").mkdir(parents=True)
    write_corpus(tmp_path / "work" / "inner")
    page = report([tmp_path / "work"], tmp_path / "pages" / "report.html")
    assert "<h2>Corpus corpus</h2>" in page.read_text()
