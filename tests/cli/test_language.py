"""The command line in Korean: help, stages and errors, by --lang or the locale; English is the source."""

from __future__ import annotations

import ast
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import headwater
import headwater.errors
from headwater.cli.main import COMMANDS, app, main
from headwater.evaluation import TASKS
from headwater.language import Catalogue, catalogue, language_of_locale, translated_page, use_language

PACKAGE = Path(headwater.__file__).parent
HANGUL = re.compile("[\uac00-\ud7a3]")
ENTRIES: dict[str, str] = tomllib.loads((PACKAGE / "locale" / "ko.toml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _english_again() -> Any:
    yield
    use_language("en")


def helps(command: Any, is_outermost: bool = False) -> list[str]:
    """Return what the help of a command says in whole sentences, and of the commands in it."""
    said = [] if is_outermost else (command.help or "").split("\n\n")
    for parameter in command.params:
        said += [parameter.help or "", *(d for d in [parameter.show_default] if isinstance(d, str))]
    for inner in getattr(command, "commands", {}).values():
        said += helps(inner)
    return [" ".join(one.split()) for one in said]


@pytest.mark.parametrize("name", COMMANDS)
def test_all_help_is_in_the_catalogue(name: str) -> None:
    command = get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    sentences = [COMMANDS[name], *helps(command)]
    missing = [
        one for one in sentences if one and one not in ENTRIES and " " in one and not one.startswith("headwater ")
    ]
    assert missing == []


@pytest.mark.parametrize("width", [80, *(pytest.param(one, marks=pytest.mark.slow) for one in (100, 120))])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_help_drops_no_letter(language: str, width: int, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich cut a line of Hangul that ended in a space, and names of options that were too wide."""
    commands = [(name, get_command(app).get_command(None, name)) for name in COMMANDS]  # type: ignore[attr-defined]
    lines = [
        [name, *inner] for name, one in commands for inner in [[], *([i] for i in getattr(one, "commands", {}))]
    ]
    monkeypatch.setenv("COLUMNS", str(width))
    for line in lines:
        assert main(["--lang", language, *line, "--help"]) == 0
        said = capsys.readouterr().out
        assert "…" not in re.sub(r"[A-Z]\]?…|gpt2-mini, …", "", said), line
        if language == "ko":
            assert re.findall("Usage:|Arguments|Options|default:|required", said) == [], line


WORDS = {
    "ㄹ": "글 1 1,207 0.8 model table LR L runs/first.jsonl r (a)글 int8 '서울'",
    "other": "말뭉치들은 bf16 token LSTM N json 10 stories/pack step fine-tune metric 토큰(둘) size-3 --out input",
    "": "말뭉치 분류기 2 fp32 gpt2 steps probe A.csv folder report 95% head 데이터 size 'x' /tmp/a",
}


@pytest.mark.parametrize(("final", "word"), [(final, word) for final in WORDS for word in WORDS[final].split()])
def test_the_particle_is_that_of_the_words_end(final: str, word: str) -> None:
    korean = Catalogue({"a {} b": "{}이(가)", "c {} d": "{}(으)로", "e {} f": '"{}"와(과)'})
    assert korean.translate(f"a {word} b") == word + ("이" if final else "가")
    assert korean.translate(f"c {word} d") == word + ("으로" if final == "other" else "로")
    assert korean.translate(f"e {word} f") == f'"{word}"' + ("과" if final else "와")


@pytest.mark.parametrize("word", ["parquet", "web", "type", "日本", "→"])
def test_an_unknown_end_keeps_both_particles(word: str) -> None:
    assert Catalogue({"a {} b": "{}이(가)"}).translate(f"a {word} b") == f"{word}이(가)"


def test_all_text_of_the_report_is_in_the_catalogue() -> None:
    missing = []
    for name in ("report/report.html.j2", "report/corpus.html.j2", "finetuning/results/report.html.j2"):
        text = (PACKAGE / name).read_text(encoding="utf-8").partition("</style>")[2]
        nodes = re.findall(r">([^<>{}]*[A-Za-z][^<>{}]*)<", re.sub(r"<footer>.*?</footer>", "", text, flags=re.S))
        missing += [
            one.strip() for one in nodes if one.strip() not in ENTRIES and one.strip() not in {"from", "p", "F1"}
        ]
    assert missing == []


def test_a_translation_has_the_values_of_its_message() -> None:
    for english, korean in ENTRIES.items():
        assert english.count("{") == korean.count("{"), english


def test_a_message_of_the_catalogue_is_one_of_the_source() -> None:
    """Errors and notes are looked up by their text: one that has changed would silently be English."""
    texts = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(" ".join(node.value.split()))
            elif isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                texts.add(" ".join("".join(map(str, parts)).split()))
    everything = "\n".join(texts)
    text = (PACKAGE / "locale" / "ko.toml").read_text(encoding="utf-8")
    errors = text.partition("# Errors")[2].partition("\n")[2]
    said = list(tomllib.loads(errors))
    assert said
    assert [one for one in said if max(re.split(r"\{n?\}", one), key=len).strip() not in everything] == []


ERRORS = {name for name in vars(headwater.errors) if name.endswith("Error")}
NOTES = {"say", "note", "start", "finish", "warn"}
# Errors of calls in Python alone: the library speaks English.
OF_PYTHON = {
    "finetuning/estimator.py",
    "finetuning/estimators.py",
    "finetuning/rows/arrays.py",
    "inference/language_model.py",
    "model/lstm.py",
}
STAY_ENGLISH = {  # of Python's calls too, or of the API
    "not a list",
    "a model of class {} was given",
    "a Transformer or an LSTM",
    "the {} is {}",
    "a string",
    "the prompt is {}",
    "a string, or a list of strings",
    "the pairs have {}",
    'a list of two texts each: [("The river", " flows")]',
    "bias names token {}",
    "Load the model again, with headwater.load",
    "pair {} has {}, more than the model's context",
    "a tokenizer of kind {} has no byte ranks",
    "the tokenizer of a fine-tuned model, or tokenizer.with_task_tokens()",
    "a single text was given",
    "a list of texts",
    "Use encode, or [text]",
}
FEW = 7  # letters: of a template with fewer, such as "{} on {}", the values are what is translated


def templates(node: ast.expr) -> list[str]:
    """Return the texts that an expression can be, `{}` in place of each value; none if it has none of its own."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)]
    if isinstance(node, ast.IfExp):
        return templates(node.body) + templates(node.orelse)
    if isinstance(node, ast.BinOp):
        return [a + b for a in templates(node.left) or ["{}"] for b in templates(node.right) or ["{}"]]
    return []


def messages(path: Path) -> set[str]:
    """Return the templates of a module's errors and notes."""
    said = set()
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        parts = call.args[:1] if name in ERRORS | NOTES else []
        if name in ERRORS:
            parts += [keyword.value for keyword in call.keywords if keyword.arg in {"expected", "repair"}]
        said |= {" ".join(text.split()) for part in parts for text in templates(part)}
    return said


def test_every_message_has_its_korean() -> None:
    known = {re.sub(r"\{n?\}", "{}", english) for english in ENTRIES} | STAY_ENGLISH
    missing = [
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).as_posix() not in OF_PYTHON
        for text in sorted(messages(path) - known)
        if len(re.findall("[A-Za-z]", text.replace("{}", ""))) >= FEW and not text.startswith("pip install ")
    ]
    assert missing == []


def test_a_folder_named_as_a_stage_keeps_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        assert main(["pack", "report", "--tokenizer", "gpt2", "--out", "tokens", "--lang", "ko"]) == 1
    assert capsys.readouterr().err.startswith("오류: report가 없습니다")
    assert main(["tokenizer", "train", "x", "--out", "y", "--kind", "bert", "--lang=ko"]) == 2
    assert "'bert'는 'gpt2', 'gpt1' 가운데 하나가 아닙니다. 도움말: headwater" in capsys.readouterr().err


def test_parts_of_a_message_are_translated() -> None:
    korean = Catalogue({"pack": "토큰", "{n} tokens": "토큰 {}개", "{n} s": "{}초", "{} of {}": "{2}의 {1}"})
    assert korean.translate("pack …") == "토큰 …"
    assert korean.translate("pack: 1,200 tokens, 3 others (0.3 s)") == "토큰: 토큰 1,200개, 3 others (0.3초)"
    assert korean.translate("one of two") == "two의 one"
    assert korean.translate("nothing is known") == "nothing is known"
    assert korean.translate("12 tokens of /a/pack: b") == "/a/pack: b의 토큰 12개"


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LC_MESSAGES": "ko_KR", "LANG": "de_DE"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({}, "en"),
    ],
)
def test_the_locale_chooses_the_language(environment: dict[str, str], language: str) -> None:
    assert language_of_locale(environment) == language


@pytest.mark.parametrize(
    ("english", "korean"),
    [
        (
            "Warning: runs/a is better on the same rows: accuracy 0.900, now 0.800",
            "주의: 같은 행에서 runs/a가 더 낫습니다: 정확도 0.900, 지금은 0.800",
        ),
        (
            "fine-tuning a: 2 of 9 updates, loss 4.012, validation loss 0.7682",
            "미세 조정 a: 업데이트 9번 가운데 2번, 손실 4.012, 검증 손실 0.7682",
        ),
        ("row 3: predicted 'label', labelled 'text': \"text\"", "3행: 예측 'label', 라벨 'text': \"text\""),
        ("reading the rows: 60 to train on", "행 읽기: 학습용 60행"),
    ],
)
def test_a_line_of_a_fine_tuning_is_wholly_korean(english: str, korean: str) -> None:
    assert catalogue("ko").translate(english) == korean


def test_the_cells_of_a_table_keep_their_columns() -> None:
    english = (
        "report\nrows          60 for train, 6 for validation\nper update    1,024 tokens\nother         report"
    )
    korean = "report\n행            학습용 60, 검증용 6\n업데이트마다  토큰 1,024개\nother         report"
    assert catalogue("ko").result(english) == korean
    narrow = Catalogue({"a  ": "가나다라", "{n} documents": "문서 {}개"})
    assert (
        narrow.result("  a   5 documents  x\n  b  15 documents  y")
        == "  가나다라     문서 5개  x\n  b           문서 15개  y"
    )


def test_every_protocol_is_described_in_korean() -> None:
    korean = catalogue("ko")
    assert [task.protocol for task in TASKS.values() if not HANGUL.search(korean.translate(task.summary))] == []


def test_lineage_and_scores_are_in_korean_and_names_stay(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with the name of a stage keeps it in the tree."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tokens, "run")
    assert main(["--lang", "ko", "lineage", "run"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(r"run  \[tokens \w{12}\](  시드 \d+)?", first)
    line = "  heldout.bits-per-byte  bits per byte 0.6709 [0.6657, 0.6761] on 3 of 9 examples, chance 0.25"
    said = "  heldout.bits-per-byte  바이트당 비트 수 0.6709 [0.6657, 0.6761], 예 9개 가운데 3개, 무작위 추측 0.25"
    assert catalogue("ko").result(line) == said


def test_an_error_is_in_korean_and_its_names_stay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["finetune", "--task", "classify", "--train", str(tmp_path / "none.csv"), "--out", str(tmp_path)]
    assert main([*arguments, "--lang", "ko"]) == 1
    assert capsys.readouterr().err.startswith(f"오류: {tmp_path}/none.csv가 없습니다")
    assert main(["generte", "--lang=ko"]) == 2
    assert "'generate'인가요?" in capsys.readouterr().err


def test_an_unknown_language_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lang", "fr", "doctor"]) == 2
    assert "expected en or ko" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "korean"),
    [
        (
            "computes in bf16, 0.1 passes over 739,487 tokens",
            "bf16으로 계산합니다(토큰 739,487개를 0.1번 읽습니다)",
        ),
        (
            "pack: 982 tokens, 46 of them held out (2.4 s)",
            "토큰으로 바꾸기: 토큰 982개, 그 가운데 46개는 검증용 (2.4초)",
        ),
        ("labels: source: 86 examples for training, 8 held out", "라벨: source: 학습용 예 86개, 검증용 8개"),
        (
            "pre-training: 4 of 23 updates, 3,130 tokens/s",
            "사전 학습: 업데이트 23번 가운데 4번, 초당 토큰 3,130개",
        ),
        (
            "heldout.bits-per-byte: bits per byte 2.822 (1.1 s)",
            "heldout.bits-per-byte: 바이트당 비트 수 2.822 (1.1초)",
        ),
    ],
)
def test_progress_is_in_korean(said: str, korean: str) -> None:
    assert catalogue("ko").translate(said) == korean


def test_every_korean_entry_is_read() -> None:
    assert catalogue("ko").translate("Interrupted.") == "중단했습니다."


def test_what_a_build_left_out_is_in_korean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A composed line was cut in the middle of a name, and the rest of the table was English."""
    source = tmp_path / "in"
    source.mkdir()
    rows = ['{"text": "The river runs."}', "not JSON", '{"text": null}', '{"text": "e\\u0301cole \\ufffd"}']
    (source / "a.jsonl").write_text("\n".join([*rows, rows[0]]))
    (source / "photo.png").write_bytes(b"x")
    pages = (
        "<page><title>P</title><ns>10</ns></page>",
        "<page><title>A</title><text>A river. {{zz|q}} It is.</text></page>",
    )
    (source / "w.xml").write_text(f"<mediawiki>{''.join(pages)}</mediawiki>")
    assert main(["--lang", "ko", "corpus", "build", str(source), "--out", str(tmp_path / "corpus")]) == 0
    assert main(["--lang", "ko", "corpus", "stats", str(tmp_path / "corpus")]) == 0
    captured = capsys.readouterr()
    assert "뺀 것: 읽을 수 없는 행 1개(처음 것: a.jsonl의 2번째 줄이 JSON이 아닙니다" in captured.out
    names = r"duplicates: \w+|in/\S+|a\.jsonl|p\d+|source|JSON|row|<UNK>|MB|NFC|U\+FFFD|\b[AP]\b"
    said = re.sub(names, "", captured.out.replace(str(tmp_path / "corpus"), ""))
    assert re.findall("[A-Za-z]{2,}", said) == []


def test_a_page_keeps_the_spaces_around_its_texts() -> None:
    use_language("ko")
    assert translated_page("<body><p>Next: <code>a</code></p>") == "<body><p>다음: <code>a</code></p>"


def test_no_line_of_a_command_is_english(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that were composed of parts were English, or half of them. Names and paths stay."""
    (tmp_path / "a.txt").write_text("The river runs down to the sea. A boat is on it.\n" * 200)
    (tmp_path / "short.txt").write_text("The river runs.")
    (tmp_path / "rows.csv").write_text('text,label\ngood,pos\n"bad,neg\n')
    (tmp_path / "rows.json").write_text('[{"text": "good", "label": "p"},\n{"text": "bad')
    (tmp_path / "few.jsonl").write_text('{"text": "good", "label": "p"}\n{"text": "bad"}\n')
    commands = [
        "corpus build a.txt --out corpus",
        "corpus build short.txt --out short",
        "corpus stats corpus",
        "tokenizer train a.txt --vocab-size 300 --out bpe-1",
        "tokenizer compare bpe-1 gpt2-mini a.txt",
        "pack short --tokenizer bpe-1 --out little",
        "pack corpus --tokenizer bpe-1 --out tokens",
        "lineage gpt2-mini",
        "convert gpt2-mini model.gguf",
        "generate river --model gpt2-mini --seed 1 --max-tokens x",
        "finetune --task classify --train rows.csv --model gpt2-mini --out a",
        "finetune --task classify --train rows.json --model gpt2-mini --out a",
        "finetune --task classify --train few.jsonl --model gpt2-mini --out a",
        "predict few.jsonl --model corpus --out p.csv",
        "evaluate --tokens x",
        "prune corpus",
        "report corpus --out report.html",
        "fill A_[MASK] --model gpt2-mini",
    ]
    names = r"\S*[/_=\d'\"-]\S*|\S+\.\w+|\[\w+|^\s*\w+$"  # options, paths, kinds in brackets; a word alone
    english = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        for command in commands:
            main(["--lang", "ko", *command.split()])
            for line in "\n".join(capsys.readouterr()).splitlines():
                is_english = not HANGUL.search(line) and re.search("[a-z]{3,}", re.sub(names, "", line))
                if is_english or re.search(r"(?<!\S)(?:[a-z]+ ){3}[a-z]", line):
                    english[command] = line
    assert english == {}
