"""The papers' numbers: their own counts and gains follow from their tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from evaluation import gain, gpt1_ahead, gpt2_ahead
from headwater.config import read_toml
from headwater.finetuning import FinetuneConfig
from headwater.model import ModelConfig
from headwater_papers.paper_tables import TABLES, filled, markdown, number
from headwater_papers.scale import load_scale


def test_the_papers_counts_follow_from_their_tables() -> None:
    assert len(gpt1_ahead()) == 9  # of 12
    assert {"rte", "sst2", "mrpc"}.isdisjoint(gpt1_ahead())
    assert len(gpt2_ahead()) == 7  # of 8
    assert "1BW" not in gpt2_ahead()


# The abstract and section 4.2 of GPT-1.
@pytest.mark.parametrize(
    ("task", "points"),
    [("storycloze", 8.9), ("race", 5.7), ("mnli-m", 1.5), ("scitail", 5.0), ("qnli", 5.8), ("snli", 0.6),
     ("qqp", 4.2), ("stsb", 1.0), ("cola", 10.4)],
)  # fmt: skip
def test_the_papers_gains_follow_from_its_tables(task: str, points: float) -> None:
    assert gain(task) == pytest.approx(points)


def test_every_table_has_a_source_and_whole_rows() -> None:
    for name, table in TABLES.items():
        assert table.source, name
        assert all(len(row) == len(table.columns) for row in table.rows.values()), name


def test_numbers_of_a_table_are_printed_in_full() -> None:
    table = "\n".join(markdown(TABLES["sizes"]))
    assert "116,534,784" in table
    assert "1,557,611,200" in table


_ROOT = Path(__file__).parents[2]
_SOURCES = sorted((_ROOT / "papers/src").rglob("*.py")) + sorted(
    (_ROOT / "src/headwater/evaluation").rglob("*.py")
)
# Scores of both papers. Those of the recipes are keys of a configuration, and sizes are counted.
_RECIPES = ("gpt1-recipe", "gpt2-recipe", "gpt2-appendix", "gpt1-story-cloze", "sizes", "sizes-bert")
_SCORES = {
    float(value)
    for name, table in TABLES.items()
    if name not in _RECIPES
    for row in table.rows.values()
    for value in row
    if isinstance(value, int | float) and value != int(value)
}
_OWN = {0.25, 0.6, 0.8, 0.99, 1.02, 3.5, 6.4}  # a random guess among four, a version, widths, a power, a level
_PLACE = re.compile(
    r"(sections?|tables?|figures?|equations?|appendix) (\d+(\.\d+)*)((,| and| to|, left| on)+ (\d+(\.\d+)*))*"
)


def test_no_number_of_a_paper_is_typed_in_a_claim() -> None:
    for experiment, claims in read_toml(_ROOT / "papers/src/headwater_papers/claims.toml").items():
        for name, claim in claims.items():
            for key in ("claim", "paper"):
                plain = _PLACE.sub("", re.sub(r"<[^<>|]+\|[^<>]+>", "", claim[key]).replace("confident 1 %", ""))
                own = (
                    plain.replace("10,000 examples", "")
                    .replace("less than 2 %", "")
                    .replace("within 2 %", "")
                    .replace("runs of 4 words", "")
                )
                own = re.sub(r"GPT-[12]|WikiText-2|text8|enwik8|1BW|8-grams", "", own)
                assert not re.search(r"\d", own), (experiment, name, own)
            for plan in claim["plans"]:  # a random guess and zero are not of a paper
                typed = [one for one in plan.get("of", ()) if not isinstance(one, str)]
                assert set(typed) <= {0, 50.0}, (experiment, name)


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: path.name)
def test_no_score_of_a_paper_is_typed_in_the_code(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    left_out |= {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "section"
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in left_out:
            continue
        if isinstance(node.value, float):
            shares = {round(value / 100, 6) for value in _SCORES}
            assert node.value in _OWN or node.value not in _SCORES | shares, (node.lineno, node.value)
        if isinstance(node.value, str):
            typed = {float(one) for one in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", _PLACE.sub("", node.value))}
            assert not (typed - _OWN) & _SCORES, (node.lineno, node.value)


def test_a_reference_is_a_number_or_a_mean_or_a_difference() -> None:
    assert number("gpt1-table-5 | lstm | average") == 69.1
    assert number("gpt1-table-5 | full | QQP + MNLI + QNLI") == pytest.approx(80.0667, abs=1e-4)
    text = (
        "<gpt1-table-5 | full | average - gpt1-table-5 | lstm | average @ .1f> points of <sizes | GPT-1 | layers>"
    )
    assert filled(text) == "5.6 points of 12"
    with pytest.raises(KeyError):
        number("gpt1-table-2 | GenSen | SNLI")


def test_the_papers_own_scale_has_the_papers_recipe() -> None:
    scale = load_scale("paper")
    recipe, tuned = TABLES["gpt1-recipe"], FinetuneConfig().resolve(ModelConfig(width=768), examples=1_000)
    gpt1 = scale.models["gpt1"].recipe
    before = {
        "batch_size": "sequences of a batch",
        "context": "tokens of a sequence",
        "learning_rate": "peak learning rate",
    }
    before |= {"weight_decay": "decoupled weight decay", "dropout": "dropout"}
    assert all(gpt1[key] == recipe.value(row, "pre-training") for key, row in before.items())
    assert scale.labelled.recipe["epochs"] == recipe.value("epochs", "fine-tuning")
    assert tuned.learning_rate == recipe.value("peak learning rate", "fine-tuning")
    assert tuned.batch_size == recipe.value("sequences of a batch", "fine-tuning")
    assert tuned.lambda_lm == recipe.value("λ, the weight of L1", "fine-tuning")
    samples, shown = scale.experiments["gpt2_samples"], TABLES["gpt2-appendix"]
    assert samples["context"] == shown.value("tables 7 to 11", "tokens of context")
    assert samples["length"] == shown.value("tables 7 to 11", "tokens of the sample")
