from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.evaluation import DETOKENIZERS, Detokenizer
from headwater.tokenizer import Tokenizer

WIKITEXT, PTB, ONE_BILLION, LAMBADA, CBT = DETOKENIZERS.values()

EXAMPLES = [
    (WIKITEXT, ' He had a guest @-@ starring role ( 12 @,@ 500 people , 3 @.@ 5 % ) as " Craig " . ',
     'He had a guest-starring role (12,500 people, 3.5%) as "Craig".'),
    (WIKITEXT, " = = = Film = = = ", "=== Film ==="),
    (WIKITEXT, " = River = ", "= River ="),
    (WIKITEXT, " ", ""),
    (WIKITEXT, " Teddy 's Story by Dr. U.S. Grant ; it cost $ 5 ", "Teddy's Story by Dr. U.S. Grant; it cost $5"),
    (WIKITEXT, " They don 't go to Xi 'an ; the ships ' hulls , the ' citadel ' and the ' 90s at 5 ° C ",
     "They don't go to Xi'an; the ships' hulls, the 'citadel' and the '90s at 5° C"),
    (PTB, " no it was n't black monday N % of $ N <unk> ", "no it wasn't black monday N% of $N <unk>"),
    (ONE_BILLION, 'It doesn \'t " work " , he said ( yes ) .', 'It doesn\'t "work", he said (yes).'),
    (LAMBADA, "`` no need to change . we wo n't be that long . '' i 'll go , shane",
     '"No need to change. We won\'t be that long." I\'ll go, shane'),
    (CBT, "`` No matter , '' said Toomai -LRB- the boy 's name -RRB- , `` you ca n't ! ''",
     '"No matter," said Toomai (the boy\'s name), "you can\'t!"'),
]  # fmt: skip


@pytest.mark.parametrize(("detokenizer", "tokens", "text"), EXAMPLES)
def test_text_reads_as_people_write_it_and_comes_back(detokenizer: Detokenizer, tokens: str, text: str) -> None:
    assert detokenizer.detokenize(tokens) == text
    assert detokenizer.retokenize(text) == tokens


_TOKENS = """
a the rick 's n't 't 'm . , ; : ! ? ( ) [ ] " `` '' ` ' @-@ @,@ @.@ - -- -LRB- -RRB- % $ # U.S. Mr.
e.g. ... 12 3.5 1,000 <unk> N = § – “ é i boys of it ?! 're 'S £ ° 90s don 'an as
"""
TOKENS = st.sampled_from(_TOKENS.split())


@pytest.mark.parametrize("name", DETOKENIZERS)
@given(tokens=st.lists(TOKENS, min_size=1, max_size=12))
def test_all_that_is_glued_can_be_undone(name: str, tokens: list[str]) -> None:
    detokenizer = DETOKENIZERS[name]
    if detokenizer.lower_case:
        tokens = [token.lower() for token in tokens]
    # A token that the tokenizer takes apart cannot stand alone: those are the exceptions.
    tokens = [token for token in tokens if came_back(detokenizer, token)]
    line = " ".join(tokens)
    if tokens and all(detokenizer.retokenize(token).strip() == token for token in tokens):
        assert came_back(detokenizer, line)


def came_back(detokenizer: Detokenizer, tokens: str) -> bool:
    line = f" {tokens} " if detokenizer.padded else tokens
    return detokenizer.retokenize(detokenizer.detokenize(line)) == line


# Exceptions on the whole files, all of them tokens that end in a full stop which is theirs ("Alex.") or the like.
FILES = [
    ("wikitext2/wiki.test.tokens", WIKITEXT, 1),
    ("wikitext2/wiki.test.raw", WIKITEXT, 32),
    ("ptb/ptb.test.txt", PTB, 0),
    ("lambada/lambada_test_plain_text.txt", LAMBADA, 25),
]


@pytest.mark.parametrize(("name", "detokenizer", "most"), FILES)
def test_whole_test_files_come_back(data: Path, name: str, detokenizer: Detokenizer, most: int) -> None:
    lines = (data / "eval-zeroshot" / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert detokenizer.count_exceptions(lines)["lines that do not come back"] <= most
    changed = sum(detokenizer.detokenize(line) != line for line in lines)
    assert changed > len(lines) / 3  # it does something


def test_the_childrens_books_come_back(data: Path) -> None:
    yaml = pytest.importorskip("yaml")
    stories = yaml.safe_load((data / "eval-zeroshot" / "fixtures" / "cbt_test.yml").read_text(encoding="utf-8"))
    sentences = [line for (act,) in stories["acts"] for line in act["text"].split("\n")[1:]]
    assert len(sentences) > 50
    assert CBT.count_exceptions(sentences)["lines that do not come back"] == 0


# GPT-2's tokens of the whole file; lm-evaluation-harness's de-tokenizer, which cannot be undone, leaves 278,365.
def test_wikitext_has_as_few_tokens_as_with_a_common_detokenizer(data: Path) -> None:
    text = (data / "eval-zeroshot" / "wikitext2" / "wiki.test.tokens").read_text(encoding="utf-8")
    tokenizer = Tokenizer.load("gpt2")
    written = "\n".join(map(WIKITEXT.detokenize, text.removesuffix("\n").split("\n")))
    assert len(tokenizer.encode(text)) == 295_877
    assert len(tokenizer.encode(written)) == pytest.approx(278_365, rel=1e-4)
    assert "n 't" not in written
    assert not any(line.startswith((" ", "= =")) or line.endswith(" ") for line in written.split("\n"))
