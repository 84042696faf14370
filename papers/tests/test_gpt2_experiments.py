"""GPT-2's experiments at a tiny scale: each ends in numbers and verdicts, and the ladder is made once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headwater.errors import DataError
from headwater.evaluation import Figure
from headwater.pretraining import PretrainConfig, TokenStream
from headwater_papers import reproduce
from headwater_papers.claims import PaperClaim, judge_steps
from headwater_papers.gpt2_appendix import BEGINNING, REST, copies, recited
from headwater_papers.gpt2_ladder import windows_read, windows_unread
from headwater_papers.gpt2_lambada import share_outside
from headwater_papers.gpt2_memorisation import share_without
from headwater_papers.gpt2_overlap import change_by_passage, documents, judge_without, schemata
from headwater_papers.gpt2_shuffled import ORDERS, ShuffledSettings, choose_passages, measure
from headwater_papers.gpt2_tasks import by_confidence, calibration
from headwater_papers.gpt2_translations import quotations
from headwater_papers.gpt2_zero_shot import PARTS, _losses, _underfitting, _unread_note
from headwater_papers.items import ItemValues
from headwater_papers.scale import Scale
from headwater_papers.statistics import FAILS, HOLDS, OPEN, Measured

NAMES = (
    "gpt2_layer_norm",
    "gpt2_zero_shot",
    "gpt2_shuffled",
    "gpt2_tasks",
    "gpt2_overlap",
    "gpt2_memorisation",
    "gpt2_samples",
    "gpt2_appendix",
    "gpt2_translations",
    "gpt2_compute_optimal",
)
_RECIPE = {
    "preset": "gpt2-pico",
    "batch_size": 4,
    "context": 48,
    "steps": 4,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "validate_every": 4,
    "checkpoint_every": 4,
}


def ladder_scale() -> Scale:
    """Two rungs of each ladder, three seeds, four updates; eight runs for a scaling law."""
    small, large = {"layers": 1, "width": 16, "heads": 1}, {"layers": 2, "width": 32, "heads": 2}
    ladders = {"gpt2-a": small, "gpt2-b": large, "optimal-a": small, "optimal-b": large}
    models = {name: (shape, _RECIPE["steps"]) for name, shape in ladders.items()}
    models |= {
        f"scaling-{name}{steps}": (shape, steps)
        for name, shape in (("a", small), ("b", large))
        for steps in (2, 3, 4, 8)
    }
    shown = {"count": 4, "context": 16, "length": 24}
    return Scale.build(
        {
            "name": "tiny",
            "about": "for tests",
            "texts": {
                "web": {"sources": ["text.txt"], "vocabulary": 300, "held_out": 0.3, "validation": 0.1},
            },
            "models": {
                name: {
                    "text": "web",
                    "recipe": _RECIPE
                    | {"model": shape | {"context": 48}, "steps": steps, "validate_every": steps},
                }
                for name, (shape, steps) in models.items()
            },
            "experiments": {
                "gpt2_zero_shot": {"limit": 3, "windows": 6},
                "gpt2_tasks": {"written": 2, "questions": 3},
                "gpt2_shuffled": {"passages": 4, "sentences": 3},
                "gpt2_memorisation": shown,
                "gpt2_layer_norm": {"layers": 3, "width": 16, "context": 16, "updates": 3},
                "gpt2_samples": shown | {"shown": 2},
                "gpt2_appendix": {"context": 16, "length": 24},
            },
        }
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, sample_text: str) -> Path:
    """All of them, on sets of a few made-up lines in the official formats."""
    data = tmp_path_factory.mktemp("data")
    words = sample_text.replace("<|endoftext|>", "").split()
    files = {
        "text.txt": sample_text,
        "eval-zeroshot/lambada/lambada_test_openai.jsonl": "".join(
            json.dumps({"text": " ".join(words[start : start + 12])}) + "\n" for start in (0, 50, 90, 300)
        ),
        "eval-zeroshot/wikitext2/wiki.test.tokens": " ".join(words[400:600]) + "\n",
        "eval-zeroshot/ptb/ptb.test.txt": " ".join(words[700:760]) + "\n",
        "eval-zeroshot/ptb/ptb.train.txt": " ".join(words[740:900]) + "\n",
        "eval-zeroshot/nq/NQ-open.dev.jsonl": "".join(
            json.dumps({"question": f"who is {word}", "answer": [word]}) + "\n" for word in words[:12]
        ),
        "eval-zeroshot/wsc/wsc273.txt": "One saw two when [MASK] came .\n[MASK]\none,two\none\n\n" * 3,
    }
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text, encoding="utf-8")
    out = tmp_path_factory.mktemp("reproduction") / "out"
    reproduce(["gpt2"], ladder_scale(), data, out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_ends_in_numbers_verdicts_figures_and_a_page(done: Path, name: str) -> None:
    results = json.loads((done / name / "results.json").read_text())
    assert results["rows"]
    assert bool(results["findings"]) == (name != "gpt2_appendix")  # it shows samples
    for finding in results["findings"]:
        assert finding["sentence"]
        assert "{" not in finding["sentence"] + finding["here"]
    assert all(
        (done / name / f"{figure}.{kind}").exists() for figure in results["figures"] for kind in ("png", "svg")
    )
    page = (done / name / "README.md").read_text()
    assert all(finding["claim"] in page for finding in results["findings"])
    assert results["rows"][0]["measure"] in page


@pytest.mark.slow
def test_sets_have_rows_with_and_without_a_detokenizer(done: Path) -> None:
    results = json.loads((done / "gpt2_zero_shot" / "results.json").read_text())
    rows = [row["measure"] for row in results["rows"] if row["setting"].startswith("gpt2-a")]
    for name in ("WikiText-2", "PTB"):
        assert f"{name} perplexity" in rows
        assert f"{name} perplexity, not de-tokenized" in rows
    assert not [name for name in rows if "1BW" in name or "text8" in name]
    for file in ("news.en.heldout-00000-of-00050", "cbtest_CN_valid_2000ex.txt", "text8.test.5mb"):
        (note,) = (note for note in results["notes"] if file in note)
        assert "was not found in the data folder" in note
    assert not [finding for finding in results["findings"] if "de-tokenized" in finding["claim"]]


@pytest.mark.slow
def test_the_ladder_and_the_continuations_are_made_once(done: Path) -> None:
    made = [path.name.rpartition("-")[0] for path in (done / "shared").iterdir() if path.is_dir()]
    for kind in ("run", "continuations"):
        names = [name for name in made if name.startswith(f"{kind}-gpt2-")]
        assert len(names) == len(set(names)) == 6  # two rungs, three seeds


@pytest.mark.slow
def test_overlap_is_judged_over_all_passages(done: Path) -> None:
    rows = json.loads((done / "gpt2_overlap" / "results.json").read_text())["rows"]
    (scored,) = (row for row in rows if row["measure"] == "perplexity, all passages")
    assert scored["examples"] == 4  # table 3 has 3
    assert {"accuracy, all passages", "schemata that share 8-grams"} <= {row["measure"] for row in rows}


def test_a_text_in_almost_every_passage_decides_nothing() -> None:
    values, clean = np.random.default_rng(1).normal(-6, 3, 40), np.arange(40) < 1
    items = {"passages": ItemValues(tuple(map(str, range(40))), change_by_passage(values, clean)[None])}
    changes = Measured()
    for _ in range(3):
        changes.add(0.0, None, items)
    found = judge_without(changes, 39, 40)
    assert found.verdict == OPEN
    assert "39 of the 40" in found.here


def test_confidence_is_a_curve_over_the_most_confident_answers() -> None:
    answers = [{"confidence": n / 200, "exact match": float(n >= 190)} for n in range(200)]
    found = calibration(by_confidence(answers))
    assert (found[1], found[5], found[10], found[100]) == (1.0, 1.0, 0.5, 0.05)


def test_schemata_and_documents_are_read_to_be_counted(tmp_path: Path) -> None:
    block = "The trophy is large because  [MASK]  grew .\n[MASK]\n the trophy , the case \n the trophy \n\n"
    (tmp_path / "wsc").write_text(block * 2, encoding="utf-8")
    assert schemata(tmp_path / "wsc") == ["The trophy is large because  the trophy  grew ."] * 2
    stories = [{"source": source, "story": source * 2} for source in ("cnn", "race", "cnn")]
    (tmp_path / "coqa").write_text(json.dumps({"data": stories}), encoding="utf-8")
    assert documents(tmp_path / "coqa") == {"cnn": ["cnncnn"] * 2, "race": ["racerace"]}
    assert documents(None) == {}


def test_that_no_sample_overlaps_is_not_certain() -> None:
    found = share_without([[0.0] * 8] * 3)
    assert list(found) == [1.0] * 3
    assert found.item_error > 0.05


def test_the_change_by_passage_is_a_jackknife_of_perplexities() -> None:
    values, clean = np.random.default_rng(1).normal(-6, 3, 40), np.arange(40) % 7 != 0

    def change(kept: Any) -> float:
        perplexities = [
            Figure.mean("perplexity", (-part).tolist()).value for part in (values[kept & clean], values[kept])
        ]
        return float(np.log(perplexities[0] / perplexities[1]))

    pseudo = change_by_passage(values, clean)
    everything = np.ones(40, bool)
    assert np.isclose(pseudo.mean(), change(everything))
    for passage in (0, 1):  # one that overlaps, one that does not
        without = change(np.arange(40) != passage)
        assert np.isclose(pseudo[passage], 40 * change(everything) - 39 * without)


def test_read_and_unread_windows_do_not_overlap(tokens: Path) -> None:
    recipe = PretrainConfig.build(_RECIPE, {"seed": 2})
    read, unread = (some(tokens, recipe, 1_000) for some in (windows_read, windows_unread))
    assert len(read) == 16  # four updates of four windows
    assert not np.intersect1d(read, unread).size


def test_a_ladder_that_read_all_of_its_text_has_no_unread_part(tokens: Path) -> None:
    windows = TokenStream(tokens, "train", 48).windows
    measured: list[str] = []
    left_out: list[str] = []

    def perplexity(name: str, model: Path, folder: Path, part: str, places: list[int]) -> dict[str, float]:
        assert places
        measured.append(name)
        return {"loss": 2.0 - len(measured) / 100}

    for steps in (2, windows // 4 + 1):  # of four windows each
        laboratory: Any = SimpleNamespace(
            scale=SimpleNamespace(
                models={"gpt2-a": SimpleNamespace(text="web", recipe=_RECIPE | {"steps": steps})}
            ),
            tokens=lambda text: (tokens, tokens),
            model=lambda rung, seed: tokens,
            perplexity=perplexity,
            leave_out=lambda kind, name: left_out.append(name),
        )
        losses: dict[str, dict[str, Measured]] = {part: {} for part in PARTS}
        for seed in (1, 2, 3):
            for part, figures in _losses(laboratory, "gpt2-a", seed, 5).items():
                losses[part].setdefault("gpt2-a", Measured()).add(figures["loss"], 0.01)
        claims = [finding.claim for finding in _underfitting(losses, ["gpt2-a"])]
        notes = _unread_note(losses, ["gpt2-a"])
        if steps == 2:
            assert (len(claims), notes, left_out) == (2, [], [])
    assert len(claims) == 1
    assert "read every window" in notes[0]
    assert left_out == [f"gpt2-a, seed {seed}, unread" for seed in (1, 2, 3)]


def test_a_ladder_rises_only_where_every_step_does() -> None:
    claim = PaperClaim(claim="it rises", paper="", holds="up", fails="down", undecided="even")
    rising, level, falling = [[1.0, 1.1, 1.2]], [[1.3, 0.9, 1.4]], [[0.1, 0.2, 0.3]]
    above = [[2.0, 2.1, 2.2]]
    found = [judge_steps(claim, rising + then).verdict for then in (above, level + above, above + falling)]
    assert found == [HOLDS, OPEN, FAILS]
    assert judge_steps(claim, rising, here="one rung").verdict == OPEN


def test_shuffling_costs_the_gain_from_the_previous_sentence() -> None:
    settings = ShuffledSettings(passages=3, sentences=4)
    texts = [". ".join(f"word {place} {name}" for place in range(9)) + "." for name in "ab"]
    passages = choose_passages(texts, settings)
    assert [len(passage) for passage in passages] == [4, 4, 4]
    assert passages[0] == ["word 0 a.", "word 1 a.", "word 2 a.", "word 3 a."]
    with pytest.raises(DataError, match="has 4 passages"):
        choose_passages(texts, ShuffledSettings(passages=5, sentences=4))

    found = measure(_InOrder(), passages)
    assert found["bytes"] == [4 * len(" word 0 a.")] * 3
    assert set(found["nats"]["in order"]) == {16, 32}
    in_order, shuffled = (np.array(found["nats"][order][32]) for order in ORDERS)
    assert in_order.tolist() == [0.0, 10.0, 0.0]  # the second passage begins another document
    assert shuffled.sum() > in_order.sum()


class _InOrder:
    """Knows every byte of a sentence that follows the one before it in the text, and none of another."""

    config = SimpleNamespace(context=32)
    tokenizer = SimpleNamespace(encode=lambda text: list(text.encode()), start_of_text=0)

    @property
    def scorer(self) -> Any:
        return self

    def token_scores(self, pairs: list[tuple[list[int], list[int]]]) -> list[Any]:
        lengths = [len(continuation) for _, continuation in pairs]
        lines = bytes(token for _, continuation in pairs for token in continuation).decode().split(" word ")[1:]
        costs = [0.0]
        for before, after in itertools.pairwise(lines):
            follows = int(after[0]) == int(before[0]) + 1 and before[2] == after[2]
            costs.append(0.0 if follows else -1.0)
        scores = np.repeat(np.array(costs, dtype=np.float32), [len(" word ") + len(line) for line in lines])
        return [SimpleNamespace(log_probability=part) for part in np.split(scores, np.cumsum(lengths)[:-1])]


@pytest.mark.slow
def test_samples_are_shown_on_one_line_each(done: Path) -> None:
    notes = json.loads((done / "gpt2_samples" / "results.json").read_text())["notes"]
    assert len(notes) == 2
    assert all("\n" not in note and "The book:" in note for note in notes)


def test_a_text_known_by_heart_is_counted_word_by_word() -> None:
    written = "testing whether that nation; or ANY nation then goes elsewhere"
    lm: Any = SimpleNamespace(generate=lambda prompt, **options: written if prompt == BEGINNING else "")
    assert recited(lm, BEGINNING, REST, 40) == (7, written)
    assert recited(lm, "Another beginning", REST, 40) == (0, "")
    often = " ".join(f"word{n}" for n in range(40))
    texts = [f"{often}\n\nA short one.", f"A short one.\n\n{often.replace(' ', chr(10), 3)}", "other " * 50]
    assert copies("word3 word4", texts) == 2


def test_translations_are_french_quotations_with_context() -> None:
    text = (
        "He said in French, “Je vous remercie de tout mon cœur,” that is, he thanked her. She said, “I am not the "
        'one, and you are not.” Then: "Le roi est mort et la reine aussi." The end.'
    )
    rain = " It rained." * 40
    text += f'{rain} "Mais oui, mon ami, c\'est la vie." {rain}'
    found = list(quotations(text))
    assert [one.french.partition(" ")[0] for one in found] == ["Je", "Le", "Mais"]
    assert [one.named for one in found] == [True, True, False]


def test_a_last_word_is_looked_for_among_the_words_before_it() -> None:
    passages = ["The Bell rang. He heard the bell", "A bell, and then the bells rang", "She said \"don't\", don't"]
    assert share_outside(passages) == pytest.approx(100 / 3)  # "rang" alone
