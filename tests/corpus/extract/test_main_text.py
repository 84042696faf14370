"""What stays of a page: its prose, without what stands around it, and something where the template is unknown."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("resiliparse")

from headwater.corpus.extract.main_text import is_prose, main_text

FIRST = "The river ran over the stones, and nobody could say how long it had done so."
SECOND = "In summer the children of the village swim below the bridge until it is dark."


def page(body: str) -> str:
    return f"<html><head><title>t</title></head><body>{body}</body></html>"


def test_text_around_the_prose_is_removed() -> None:
    around = page(
        "<nav><a href='/'>Home of the river and of everything that lives in it or near to it.</a></nav>"
        f"<article><h1>The river</h1><p>12 May</p><p>{FIRST}</p><h2>Summer</h2><p>{SECOND}</p>"
        "<p>Share</p><p>More stories</p></article>"
        "<aside><p>Another story that has nothing to do with the one that is told on this page.</p></aside>"
        "<footer><p>All rights are reserved by those who have written and drawn what is here.</p></footer>"
    )
    assert [line for line in main_text(around).split("\n") if line] == [FIRST, "Summer", SECOND]


def test_a_repeated_line_is_kept_once() -> None:
    twice = page(f"<article><p>{FIRST}</p><p>{SECOND}</p><p>{FIRST}</p><p>Yes.</p><p>{SECOND} Yes.</p></article>")
    assert [line for line in main_text(twice).split("\n") if line] == [FIRST, SECOND, "Yes.", f"{SECOND} Yes."]


def test_a_template_that_hides_the_story_does_not_lose_it() -> None:
    """Class names that usually mean something else stand around the whole story."""
    story = "".join(f"<p>{FIRST} {SECOND} That was {number} years ago.</p>" for number in range(20))
    hidden = page(f"<div class='sidebar comments footer'>{story}</div><main><p>Subscribe now</p></main>")
    text = main_text(hidden)
    assert text.count(FIRST) == 20


@pytest.mark.parametrize(
    "box",
    [
        "<div class='author-box'><p>Anna writes about rivers, and the people who live next to them.</p></div>",
        "<div id='cookieNotice'><p>We use cookies to make this page better, as every page does.</p></div>",
        "<form><p>Your address will not be published, and we will not give it to anybody else.</p></form>",
    ],
)
def test_a_named_box_inside_an_article_is_left_out(box: str) -> None:
    text = main_text(page(f"<article><p>{FIRST}</p>{box}<p>{SECOND}</p></article>"))
    assert [line for line in text.split("\n") if line] == [FIRST, SECOND]


def test_an_article_ends_with_its_element_or_at_a_heading() -> None:
    story = "".join(f"<p>{FIRST} That was {number} years ago.</p>" for number in range(9))
    other = "<p>Another story that has nothing to do with the one that is told on this page.</p>"
    for body in (
        f"<div><div class='entry-content'>{story}</div><div>{other}</div></div>",
        f"<div>{story}<h3>Related articles</h3>{other}</div>",
        f"<div>{story}<h3>관련 기사</h3>{other}</div>",
    ):
        text = main_text(page(body))
        assert "Another story" not in text
        assert text.count(FIRST) == 9
    assert "Another story" in main_text(page(f"<div><h3>Related articles</h3>{other}{story}</div>"))


def test_a_named_wrapper_of_the_page_does_not_lose_it() -> None:
    story = "".join(f"<div>{FIRST} {SECOND} That was {number} years ago.</div>" for number in range(20))
    assert main_text(page(f"<div class='share-page'>{story}</div>")).count(FIRST) == 20


def test_a_long_paragraph_is_kept_each_time() -> None:
    long = f"{FIRST} {SECOND} " * 3
    assert main_text(page(f"<article><p>{long}</p><p>{FIRST}</p><p>{long}</p></article>")).count(long.strip()) == 2


def test_code_verse_and_rows_keep_their_repetitions() -> None:
    code = ["assert response.status_code == 200, response.text", "print(len(pages))"]
    refrain = "Oh the wind is in the west and the tide is running high,"
    rows = "<tr><td>The harbour at the western sea</td><td>eleven ships came</td></tr>"
    body = (
        f"<p>{FIRST}</p><pre><code>def fetch(page):\n    {code[0]}\n    page += 1\n    {code[0]}\n</code></pre>"
        f"<p>{refrain}<br>and we go.</p><p>She had red hair.<br>{refrain}<br/>and we go.</p>"
        f"<table>{rows}{rows}</table><p>{SECOND}</p><pre>for page in pages:\n    {code[1]}\n</pre>"
    )
    text = main_text(page(f"<article>{body}</article><footer>Imprint</footer>"))
    assert [text.count(line) for line in (code[0], refrain, "eleven ships")] == [2, 2, 2]
    assert text.endswith(f"for page in pages:\n    {code[1]}")


def test_a_page_of_open_brackets_is_read_in_linear_time() -> None:
    assert main_text(page(f"<p>{FIRST}<br>{'a > b ' * 200_000}</p>")).startswith(FIRST)


def test_lines_without_prose_stay_where_there_is_nothing_else() -> None:
    assert main_text(page("<p>Ho!</p><p>The river</p><p>runs</p>")).split() == ["Ho!", "The", "river", "runs"]
    assert main_text("") == ""


def test_notices_inside_an_article_are_left_out() -> None:
    notices = [
        "Advertisement",
        "Read also: A dam for the old river",
        "Zobacz też:",
        "Follow the Gazette on Twitter and Instagram for more of this.",
        "To read on, please subscribe to our newsletter.",
    ]
    prose = "He reads also what others do not. Follow the river, she said, and you will come to us."
    body = "".join(f"<p>{notice}</p>" for notice in notices)
    left_out: Counter[str] = Counter()
    text = main_text(page(f"<article><p>{FIRST}</p>{body}<p>{FIRST}</p><p>{prose}</p></article>"), left_out)
    assert [line for line in text.split("\n") if line] == [FIRST, prose]
    assert left_out == {"repeated lines": 1, "notices": 5}


def test_the_first_paragraph_of_an_article_may_be_in_its_header() -> None:
    lead = "Where the water comes from that turns the wheel of the mill, day and night."
    story = "".join(f"<p>{FIRST} That was {number} years ago.</p>" for number in range(9))
    header = f"<div id='header'><p class='lead'>{lead}</p>"
    assert main_text(page(f"{header}</div><article>{story}</article>")).startswith(f"{lead}\n\n{FIRST}")
    several = f"{header}<p class='lead'>{SECOND}</p></div>"  # leads of other articles
    assert main_text(page(f"{several}<article>{story}</article>")).startswith(FIRST)


def test_an_article_for_readers_without_scripts_is_read() -> None:
    story = "".join(f"<p>{FIRST} That was {number} years ago.</p>" for number in range(9))
    notice = "<p>Your browser has JavaScript turned off, so that this page cannot show all that it has.</p>" * 4
    text = main_text(page(f"<noscript>{notice}</noscript><div><noscript>{story}</noscript></div>"))
    assert text.count(FIRST) == 9
    assert "JavaScript" not in text


def test_a_sentence_is_one_in_every_script() -> None:
    assert is_prose("강물은 북쪽 산에서 시작하여 흐른다.")
    assert is_prose("川は北の山から町まで流れている。")
    assert not is_prose("Share on Facebook")


@pytest.mark.parametrize(
    "page",
    ["<body>{}</body>", "<main><article>{}</article></main>", "<div>{}</div>", "<div><section>{}</section></div>"],
)
def test_a_list_of_an_article_is_text_a_menu_is_not(page: str) -> None:
    prose = "The keeper baked twice a week, on the days when the boat brought flour and the wind allowed a fire."
    item = "<li>salt<ul><li>from the <a href=/r>roof</a></li></ul></li>"
    items = f"<ul class=list><li>five pounds of rye flour</li>{item}</ul>"
    menu = "<ul><li><a href=/>Home</a></li><li><a href=/bread>All our bread</a></li></ul>"
    lines = [
        line.strip()
        for line in main_text(page.format(f"{menu}<p>{prose}</p>{items}<p>{prose} Then he slept.</p>")).split("\n")
    ]
    assert [line for line in lines if line] == [
        prose,
        "five pounds of rye flour",
        "salt",
        "from the roof",
        f"{prose} Then he slept.",
    ]
