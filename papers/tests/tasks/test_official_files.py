"""Traps of the official files: each on the real file, where it is there, and on made-up lines of the same form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.errors import DataError
from headwater.evaluation import (
    RequestEncoder,
    all_tasks,
)
from headwater.tokenizer import Tokenizer
from headwater_papers.tasks.pronouns import read_blocks


@pytest.fixture(scope="module", params=["gpt1", "gpt2"])
def encoder(request: pytest.FixtureRequest) -> RequestEncoder:
    return RequestEncoder(Tokenizer.load(request.param), 1024)


def answer_texts(encoder: RequestEncoder, protocol: str, place: Path) -> list[tuple[list[str], list[str]]]:
    """(what is scored, the answers) of each example."""
    task = all_tasks()[protocol]
    found = []
    for example in task.read({"test": place}, encoder):
        try:
            asked = task.requests(example, encoder)
        except DataError:
            continue
        scored = [encoder.tokenizer.decode(request.continuation) for request in asked]
        found.append((scored, list(example.content["answers"])))
    return found


def assert_answers_alone(encoder: RequestEncoder, found: Sequence[tuple[list[str], list[str]]]) -> None:
    for scored, answers in found:
        alone = [encoder.tokenizer.decode(encoder.tokenizer.encode(answer)) for answer in answers]
        assert [text.strip() for text in scored] == [text.strip() for text in alone]
        assert not any(text.startswith("\n") for text in scored)


def test_race_scores_the_answer_without_the_newline_before_it(encoder: RequestEncoder, tmp_path: Path) -> None:
    article = {"article": "The river flows.", "questions": ["Where to?", "It is _ ."], "answers": ["A", "B"]}
    article["options"] = [["To the lake.", "North", "Up", "A stream"], ["wide", "very slow", "a", "old and cold"]]
    (tmp_path / "1.txt").write_text(json.dumps(article), encoding="utf-8")
    found = answer_texts(encoder, "race-high.mean", tmp_path)
    assert len(found) == 2
    assert_answers_alone(encoder, found)


@pytest.mark.slow  # thousands of articles
def test_race_and_story_cloze_score_only_the_answer_on_real_data(data: Path) -> None:
    encoder = RequestEncoder(Tokenizer.load("gpt2"), 1024)
    for protocol, file in (
        ("race-middle.mean", "race/race_middle_test.jsonl"),
        ("story-cloze.mean", "storycloze/cloze_test_test__spring2016.csv"),
    ):
        found = answer_texts(encoder, protocol, data / "finetune" / file)
        assert len(found) > 1_000
        assert_answers_alone(encoder, found)


def blocks(path: Path, lines: Sequence[tuple[str, str, str, str]]) -> Path:
    path.write_text("".join("\n".join((*line, "", "")) for line in lines), encoding="utf-8")
    return path


def test_a_candidate_for_a_possessive_pronoun_is_possessive(tmp_path: Path) -> None:
    path = blocks(
        tmp_path / "wsc273.txt",
        [
            ("Nora lifted Ida onto  [MASK]  shoulders. ", "[MASK]", " Nora , Ida ", " Nora"),
            ("Patting  [MASK]  back, the nurse smiled. ", "[MASK]", " The nurse , The man ", " The man"),
            ("The smiths left the men because of  [MASK]  work. ", "[MASK]", "The smiths ,The men ", "The men"),
            ("Nora waved at Ida until  [MASK]  waved back. ", "[MASK]", " Nora , Ida ", " Ida"),
        ],
    )  # fmt: skip
    assert [(before + candidates[0] + after) for _, before, after, candidates, _ in read_blocks(path)] == [
        "Nora lifted Ida onto Nora's shoulders.",
        "Patting the nurse's back, the nurse smiled.",
        "The smiths left the men because of the smiths' work.",
        "Nora waved at Ida until Nora waved back.",
    ]


def possessive_rows(path: Path) -> list[int]:
    found = enumerate(read_blocks(path), start=1)
    return [number for number, block in found if all(name.endswith(("'s", "s'")) for name in block[3])]


def test_possessive_pronouns_of_the_real_files_are_matched(data: Path) -> None:
    wsc = data / "eval-zeroshot" / "wsc"
    expected = [209, 210, *range(217, 223), *range(229, 239), *range(241, 247), 270, 271]
    assert possessive_rows(wsc / "wsc273.txt") == expected
    assert possessive_rows(wsc / "PDP.txt") == [4, 7, 11, 13, 26, 28, 31, 33, 34, 40, 46, 50, 55, 60]
    assert possessive_rows(data / "finetune/dprd/test.c.txt") == [57, 58, 59, 60, 82, 317, 318, 323, 324]


def test_the_first_pronoun_after_the_conjunction_is_resolved(tmp_path: Path) -> None:
    path = blocks(
        tmp_path / "test.c.txt",
        [
            ("A crow pecked at a worm and it ate it.", "it", "A crow,a worm", "A crow"),
            ("We asked the smiths they knew, since they needed advice.", "they", "We,the smiths", "We"),
            ("It seems that Ann thanked Eve.", "It", "It,Eve", "Eve"),
        ],
    )  # fmt: skip
    starts = [(before, after) for _, before, after, _, _ in read_blocks(path)]
    assert starts[0] == ("A crow pecked at a worm and ", " ate it.")
    assert starts[1] == ("We asked the smiths they knew, since ", " needed advice.")


def test_the_pronoun_to_resolve_on_the_real_file(data: Path) -> None:
    found = read_blocks(data / "finetune/dprd/test.c.txt")
    twice = {
        95: " ate it.",
        371: " conducted the tests themselves.",
        437: " wants to ensure he develops into a fine captain one day.",
        447: " needed to quote holy words to rid the evil.",
        551: " did not delete it.",
    }
    assert {row: found[row - 1][2] for row in twice} == twice
    repeated = [row for row, (text, before, after, _, _) in enumerate(found, 1) if _repeats(text, before, after)]
    assert len(repeated) == 14


def _repeats(text: str, before: str, after: str) -> bool:
    pronoun = text[len(before) : len(text) - len(after)].strip()
    return f" {pronoun} " in f" {before} {after} ".replace(".", " ").replace(",", " ")


def test_the_baseline_by_question_type_excludes_the_question(tmp_path: Path) -> None:
    rows = [
        ("who won", "Ann"),
        ("who ran", "ann"),
        ("who sat", "Bo"),
        ("when was it", "1900"),
        ("Who is it", "Ann"),
    ]
    path = tmp_path / "NQ-open.dev.jsonl"
    lines = [json.dumps({"question": question, "answer": [answer]}) for question, answer in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    encoder = RequestEncoder(Tokenizer.load("gpt2"), 1024)
    task = all_tasks()["natural-questions.question-type"]
    examples = task.read({"dev": path}, encoder)
    assert [task.score(example, [], encoder)["exact match"] for example in examples] == [1, 1, 0, 0, 1]
    assert [example.content["text"] for example in examples] == ["ann", "ann", "ann", "", "ann"]
