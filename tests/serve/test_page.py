"""The page in a real Chromium without a screen: what a reader does with the mouse, the keyboard and a finger."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

import headwater as hw
from headwater.serve.api import PAGE

STORY = "#inside-shown[aria-busy=false]"  # all panels are about the step that is named
WRITTEN = "body[data-ready=true][data-running=false]"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, server: Any) -> Iterator[Open]:
    """Open the page once its first text is written. At the end nothing has complained or gone elsewhere."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []
    requested: set[str] = set()

    def start(address: str = "", *, url: str = server.url, ready: str = WRITTEN, **options: Any) -> Page:
        options = {"viewport": DESKTOP, "locale": "en-US", **options}
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requested.add(request.url.split("/", 3)[2]))
        page.goto(f"{url}/{address}")
        page.wait_for_selector(ready)
        return page

    yield start
    for context in contexts:
        context.close()
    # The browser reports every answer above 399; a test that asks for one expects it.
    assert [text for text in complaints if "Failed to load resource" not in text] == []
    assert {host.rpartition(":")[0] for host in requested} <= {"127.0.0.1"}


def write(page: Page, prompt: str, **settings: object) -> None:
    for name, value in {"tokens": 12, **settings}.items():
        page.evaluate(f"document.getElementById('write-{name}').value = {json.dumps(value)}")
    page.fill("#prompt", prompt)
    page.press("#prompt", "Control+Enter")
    page.wait_for_selector(WRITTEN)


def text_of(page: Page) -> str:
    """The whole text, as it is copied: on the screen, what cannot be printed is shown as its code."""
    page.click("#copy-text")
    return page.evaluate("navigator.clipboard.readText()")


def screen_text(page: Page) -> str:
    return page.evaluate("document.querySelector('#write-text .text').textContent")


def token(page: Page, index: int) -> Any:
    return page.locator(f"#write-text .token >> nth={index}")


def focused(page: Page) -> str:
    """What has the focus, which is never the body."""
    found = page.evaluate("document.activeElement.id || document.activeElement.className || 'BODY'")
    assert page.evaluate("document.activeElement !== document.body"), "the focus is lost"
    return found


def test_the_first_example_is_written_at_once(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    prompt = page.locator("#prompt").input_value()
    assert page.locator("#examples button").all_text_contents()[0] == prompt
    asked = {"prompt": prompt, "max_tokens": 60, "seed": 1, "temperature": 0.7, "top_k": 40, "echo": True}
    expected = http.post("/v1/completions", json={**asked, "return_token_ids": True}).json()["choices"][0]
    written = len(expected["prompt_token_ids"]) + len(expected["token_ids"])
    assert text_of(page) == expected["text"]
    assert page.locator("#context-used").text_content() == f"{written} / 64 tokens of context"
    shares = page.evaluate(
        "[...document.querySelectorAll('.token')].map(t => +t.style.getPropertyValue('--share'))"
    )
    assert shares[0] == 0
    assert max(shares) > 0.2


def test_a_prompt_that_is_typed_shows_how_much_context_it_takes(open_page: Open) -> None:
    page = open_page()
    page.fill("#prompt", "the river " * 40)
    expect(page.locator("#context-bar")).to_have_class(re.compile("over"))


def tab_to(page: Page, selector: str) -> None:
    for _ in range(60):
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
        page.keyboard.press("Tab")
        focused(page)
    raise AssertionError(f"Tab never reaches {selector}")


ACTIVE = "document.activeElement.getAttribute('aria-activedescendant')"


def test_a_journey_by_keyboard_alone(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    tab_to(page, "#prompt")
    page.keyboard.press("Control+a")
    page.keyboard.type("a stone lies")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(WRITTEN)
    assert focused(page) == "prompt"
    first = screen_text(page)
    assert first.startswith("a stone lies")

    # Along the text; a token says its probability and rank; another choice branches.
    tab_to(page, "#write-text .text")
    page.keyboard.press("End")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    active = page.locator(f"#{page.evaluate(ACTIVE)}")
    assert re.search(r", [\d.]+ %, rank (above )?\d+$", active.get_attribute("aria-label") or "")
    place, chosen = page.evaluate(ACTIVE), active.text_content()
    page.keyboard.press("ArrowDown")
    if page.locator(".choice.marked[aria-current]").count():
        page.keyboard.press("ArrowDown")
    assert page.locator("#announced").text_content() == page.locator(".choice.marked").get_attribute("aria-label")
    page.keyboard.press("Enter")
    page.wait_for_selector(WRITTEN)
    assert page.evaluate(ACTIVE) == place
    assert page.locator(f"#{place}").text_content() != chosen
    assert screen_text(page) != first
    # The model's words before the branch are still the model's.
    assert page.locator("#write-text .token.model").count() > 0
    assert page.locator("#write-text .token.you").count() == 1

    # Both branches are kept: name one, show the other.
    tab_to(page, "#branch-tree .name")
    page.keyboard.type(" kept")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert screen_text(page) == first
    focused(page)
    assert page.locator("#branch-tree .name").count() == 2

    # Into the card and its story.
    page.keyboard.press("Shift+Tab")
    while not page.evaluate("document.activeElement.matches('#write-text .text')"):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert "choice" in focused(page)
    page.keyboard.press("Escape")
    assert focused(page) == "text"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    tab_to(page, "#card .story")
    page.keyboard.press("Enter")
    page.wait_for_selector(STORY)
    assert focused(page) == "story-title"

    # A head, chosen by arrow keys and switched off; the focus stays on the switch.
    tab_to(page, ".head")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    tab_to(page, "#head-switch")
    page.keyboard.press("Enter")
    page.wait_for_selector("#off h4")
    assert focused(page) == "head-switch"
    tab_to(page, "#lens button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#lens button[aria-pressed=true]")
    assert page.evaluate("document.activeElement.matches('#lens button')")
    tab_to(page, "#choice-temperature")
    page.keyboard.press("Home")
    assert page.locator("#choice-temperature-shown").text_content() == "0.00"

    # Another view, and back.
    page.keyboard.press("Shift+Tab")
    while not page.evaluate("document.activeElement.matches('[role=tab]')"):
        page.keyboard.press("Shift+Tab")
        focused(page)
    page.keyboard.press("ArrowRight")
    assert focused(page) == "tab-compare"
    tab_to(page, "#compare-prompt")
    page.keyboard.type("the river")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(WRITTEN)
    expect(page.locator("#compare-status-b")).to_contain_text("written")


@pytest.mark.slow
def test_two_branches_are_shown_next_to_each_other(open_page: Open) -> None:
    page = open_page()
    fork, whole, first = 9, text_of(page), screen_text(page)
    token(page, fork).click()
    page.locator("#card button.choice:not([aria-current])").first.click()
    page.wait_for_selector(WRITTEN)
    second = screen_text(page)
    assert page.locator("#branch-pair").is_hidden()
    compare = page.locator("#branch-tree").get_by_text("Compare", exact=True)
    compare.focus()
    page.keyboard.press("Enter")
    sides = page.locator("#branch-pair .text")
    assert page.evaluate("document.activeElement.textContent") == "Compare"
    assert [side.text_content() for side in sides.all()] == [second, first]
    first_box, second_box = (side.bounding_box() for side in sides.all())
    assert first_box is not None
    assert second_box is not None
    assert first_box["y"] == second_box["y"]
    for side in sides.all():  # what both have is grey, what differs is not
        assert side.locator(".future").count() == fork
        assert side.locator(".token.future").last.get_attribute("data-index") == str(fork - 1)
    sides.nth(1).locator(".token").nth(fork).click()
    page.click("#card .story")
    page.wait_for_selector(STORY)
    assert page.locator("#inside-text").input_value() == whole
    page.click("#tab-write")
    page.locator("#branch-tree").get_by_text("Show", exact=True).click()
    assert [side.text_content() for side in sides.all()] == [first, second]
    page.locator("#branch-tree").get_by_text("Compare", exact=True).click()
    assert page.locator("#branch-pair").is_hidden()


# A stream of completions that yields one event and then nothing until it is aborted.
HELD = """
(event) => {
  const real = window.fetch;
  window.fetch = (path, options = {}) => {
    if (!options.body?.includes('"stream":true')) return real(path, options);
    const start = (stream) => {
      stream.enqueue(new TextEncoder().encode(event));
      options.signal.addEventListener("abort", () => stream.error(new DOMException("", "AbortError")));
    };
    return Promise.resolve(new Response(new ReadableStream({ start })));
  };
}
"""
SCORES = {"tokens": ["x"], "token_logprobs": [-1.0], "top_logprobs": [{}], "top_token_ids": [{}]}
CHOICE = {"index": 0, "text": "x", "token_ids": [1], "finish_reason": None, "logprobs": SCORES}
EVENT = f"data: {json.dumps({'choices': [CHOICE]})}\n\n"


def test_a_stopped_branch_keeps_its_tokens_and_its_own_note(open_page: Open) -> None:
    page = open_page()
    status, show = page.locator("#write-status"), page.locator("#branch-tree").get_by_text("Show", exact=True)
    whole = status.text_content()
    page.evaluate(HELD, EVENT)
    token(page, 5).click()
    page.click("#card .again")
    expect(status).to_contain_text(re.compile("^1 token,"))
    show.click()
    page.wait_for_selector(WRITTEN)
    assert status.text_content() == whole
    show.click()
    assert status.text_content() == "Stopped."
    assert page.locator("#branch-tree .current .hint").text_content() == "1 token, -1.00"


@pytest.mark.slow
def test_a_stopped_comparison_has_no_note_of_the_one_before(open_page: Open) -> None:
    page = open_page("#view=compare&prompt=the%20river&a=base&b=classes&tokens=9")
    expect(page.locator("#compare-status-a")).to_contain_text("written")
    page.evaluate(HELD, EVENT)
    page.click("#compare-go")
    page.wait_for_selector("body[data-running=true]")
    page.click("#compare-stop")
    page.wait_for_selector(WRITTEN)
    assert page.locator("#compare-status-a").text_content() == ""


@pytest.mark.slow
def test_a_late_count_does_not_replace_that_of_a_newer_prompt(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    page.evaluate(
        """() => {
          const real = window.fetch;
          const mark = (state) => (document.body.dataset.late = state);
          window.fetch = async (path, options) => {
            const answer = await real(path, options);
            if (!options?.body?.includes("a stone lies")) return answer;
            await new Promise((done) => { window.release = done; mark("held"); });
            const read = answer.json.bind(answer);
            answer.json = async () => {
              const found = await read();
              setTimeout(() => mark("read"));  // after the page has used it
              return found;
            };
            return answer;
          };
        }"""
    )
    page.fill("#prompt", "a stone lies here")
    page.wait_for_selector("body[data-late=held]")
    page.fill("#prompt", "the")
    count = len(http.post("/tokenize", json={"prompt": "the"}).json()["tokens"])
    expect(page.locator("#context-used")).to_contain_text(f"{count} /")
    page.evaluate("release()")
    page.wait_for_selector("body[data-late=read]")
    assert f"{count} /" in (page.locator("#context-used").text_content() or "")


def test_a_finger_opens_a_sheet_and_branches(open_page: Open) -> None:
    page = open_page(viewport=PHONE, is_mobile=True, has_touch=True)
    before = text_of(page)
    token(page, 8).tap()
    card = page.locator("#card").bounding_box()
    assert card is not None
    assert (card["x"], card["width"]) == (0, 390)
    assert card["y"] + card["height"] == pytest.approx(844, abs=1)
    box = token(page, 8).bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < card["y"]  # the token stays in sight
    page.locator("#card button.choice:not([aria-current])").first.tap()
    page.wait_for_selector(WRITTEN)
    assert text_of(page) != before
    page.locator("#branch-tree button").first.tap()
    assert text_of(page) == before


def test_the_story_is_about_the_token_that_was_chosen(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    given = page.locator("#write-text .token.prompt").count()
    for index in (given, given + 7):
        token(page, index).click()
        shown = page.locator("#card .fact").text_content() or ""
        page.click("#card .story")
        page.wait_for_selector(STORY)
        expect(page.locator("#story-where")).to_contain_text(f"predicts token {index + 1}.")
        came = page.locator("#choice tr", has=page.locator(".mark >> text=came"))
        rank, probability = shown.split(" · ")[1], shown.split(" · ")[0]
        place = int(came.locator("td").nth(0).text_content() or 0)
        assert place == int(rank.removeprefix("rank ")) if "above" not in rank else place > 8
        assert came.locator("td").nth(1).text_content() == probability
        assert probability in (page.locator("#lens-token").text_content() or "")
        page.click("#tab-write")


@pytest.mark.parametrize(("temperature", "top_k"), [("1.3", 30), pytest.param("5", 250, marks=pytest.mark.slow)])
def test_the_page_draws_as_the_server_did(open_page: Open, temperature: str, top_k: int) -> None:
    settings = f"tokens=14&temperature={temperature}&top_k={top_k}&top_p=0.9&seed=7"
    page = open_page(f"#prompt=the%20river&{settings}")
    count = page.locator("#write-text .token").count()
    token(page, page.locator("#write-text .token.prompt").count()).click()
    page.click("#card .story")
    for index in range(page.locator("#write-text .token.prompt").count(), count):
        page.wait_for_selector(STORY)
        drawn = page.locator("#choice tr.drawn .mark").all_text_contents()
        assert drawn == ["came", "drawn"], index
        assert page.locator("#choice-temperature-shown").text_content() == f"{float(temperature):.2f}"
        assert page.locator("#choice-top-k-shown").text_content() == str(top_k)
        page.click("#story-after")
    expect(page.locator("#story-title")).to_have_text("What comes next")
    page.wait_for_selector(STORY)
    page.evaluate("s = document.getElementById('choice-top-k'); s.value = 1; s.dispatchEvent(new Event('input'))")
    final = page.locator("#choice tbody tr").first.locator("td").nth(3)
    assert final.text_content() == "100 %"


@pytest.mark.slow
def test_every_token_of_a_full_context_can_be_inspected(open_page: Open) -> None:
    page = open_page()
    write(page, "the river", tokens=5000, temperature=0)
    assert page.locator("#write-text .token").count() == 65
    assert "You asked for 5,000" in (page.locator("#write-status").text_content() or "")
    token(page, 64).click()
    page.click("#card .story")
    page.wait_for_selector(STORY)
    expect(page.locator("#story-where")).to_contain_text("predicts token 65.")
    assert page.locator("#problem").is_hidden()
    assert "earlier ones" in (page.locator("#head-window").text_content() or "")
    page.locator("#inside-tokens .token >> nth=0").click()
    expect(page.locator("#story-where")).to_contain_text("Nothing comes before")


def test_a_head_that_is_switched_off_changes_prediction_and_text(open_page: Open, http: httpx.Client) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs", ready=STORY)
    page.click(".head >> nth=0")
    assert page.locator("#head-name").text_content() == "Layer 1, head 1"
    page.click("#head-switch")
    page.wait_for_selector("#off-effect .own")
    asked = {"prompt": "the river runs", "continuation": 16}
    for column, off in enumerate([[], [[0, 0]]]):
        expected = http.post("/inspect", json={**asked, "heads_off": off}).json()
        part = page.locator("#off-effect > div").nth(column)
        assert part.locator(".own").text_content() == f"… {expected['continuation']['text']}"
    page.click("#all-on")
    expect(page.locator("#off")).to_be_hidden()


def test_a_step_that_fails_does_not_stay_busy(open_page: Open) -> None:
    page = open_page()
    page.route("**/inspect", lambda route: route.fulfill(status=500, body="{}"))
    token(page, 5).click()
    page.click("#card .story")
    expect(page.locator("#problem")).to_be_visible()
    assert page.locator("#inside-shown").get_attribute("aria-busy") == "false"
    assert page.locator("#story-panels").is_hidden()
    page.unroute("**/inspect")
    page.click("#story-after")
    expect(page.locator("#story-panels")).to_be_visible()


def test_the_lens_follows_any_cell(open_page: Open) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs", ready=STORY)
    cell = page.locator("#lens button >> nth=7")
    name = cell.locator("code").text_content()
    cell.click()
    expect(page.locator("#lens-token")).to_contain_text(f"Rank of {name} ")
    assert page.locator("#lens-curve circle").count() == page.locator("#lens tbody tr").count()


def test_every_token_is_visible_and_text_selects_across_lines(open_page: Open) -> None:
    page = open_page()
    prompt = "Ünïcödé 日本語 🙂 \u200b \x07 end " + "the river runs to the sea " * 3
    write(page, prompt, tokens=1)
    assert page.evaluate("[...document.querySelectorAll('.token')].filter(t => !t.offsetWidth).length") == 0
    assert page.locator(".token.chip").count() > 10
    page.click("#copy-text")
    assert page.evaluate("navigator.clipboard.readText()") == prompt + text_of(page)[-1:]
    write(page, "the river runs to the sea and on " * 4, tokens=8)
    first, last = token(page, 1).bounding_box(), token(page, 60).bounding_box()
    assert first is not None
    assert last is not None
    assert last["y"] > first["y"] + 20
    page.mouse.move(first["x"] + 1, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + 1, last["y"] + 10, steps=5)
    page.mouse.up()
    assert len(page.evaluate("getSelection().toString()")) > 40


def test_settings_links_and_copies_give_the_same_text(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    prompt = "a 'stone' \"lies\" \U0001f35c é\u2028"
    write(page, prompt, temperature=0.75, seed=9, tokens=10)
    expected = text_of(page)
    page.click("#copy-link")
    again = open_page(page.evaluate("navigator.clipboard.readText()").partition("/#")[2].join(["#", ""]))
    assert text_of(again) == expected
    page.click("#copy-python")
    said: list[str] = []
    code = page.evaluate("navigator.clipboard.readText()")
    exec(compile(code, "copied", "exec"), {"print": said.append})
    assert said == [expected.removeprefix(prompt)]
    if shutil.which("curl"):
        page.click("#copy-curl")
        shell = page.evaluate("navigator.clipboard.readText()")
        ran = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
        assert json.loads(ran.stdout)["choices"][0]["text"] == said[0]
    page.reload()
    page.wait_for_selector(WRITTEN)
    page.click("#history summary")
    page.locator("#history-list button", has_text="stone").first.click()
    page.wait_for_selector(WRITTEN)
    assert text_of(page) == expected


def test_an_empty_prompt_adds_nothing_to_the_text(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    write(page, "", seed=4, tokens=8)
    assert token(page, 0).text_content() == "<|endoftext|>"
    asked = {"prompt": "", "max_tokens": 8, "seed": 4, "temperature": 0.7, "top_k": 40}
    assert text_of(page) == http.post("/v1/completions", json=asked).json()["choices"][0]["text"]


def test_two_models_write_with_their_own_settings(open_page: Open, http: httpx.Client) -> None:
    page = open_page("#view=compare&prompt=the%20river&a=base&b=classes&seed=3&b_seed=4&b_temperature=0&tokens=9")
    for side, name, seed, temperature in (("a", "base", 3, 0.7), ("b", "classes", 4, 0)):
        body = {"model": name, "prompt": "the river", "max_tokens": 9, "seed": seed, "temperature": temperature}
        expected = http.post("/v1/completions", json={**body, "top_k": 40, "echo": True, "logprobs": 0}).json()
        names = expected["choices"][0]["logprobs"]["tokens"]
        texts = "async (names) => names.map((await import('/page/tokens.js')).decoder()).map((one) => one.text)"
        tokens = page.locator(f"#compare-text-{side} .token")
        assert tokens.all_text_contents() == page.evaluate(texts, names)


def test_a_fine_tuned_model_classifies_and_explains_by_words(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    assert page.locator("#write-model optgroup option").all_text_contents()[0] == "classes"
    page.click("#tab-classify")
    page.fill("#classify-fields textarea", "the river runs to the sea")
    page.press("#classify-fields textarea", "Control+Enter")
    page.wait_for_selector("#classified .piece")
    asked = {"model": "classes", "input": "the river runs to the sea", "explain": True}
    expected = http.post("/classify", json=asked).json()["data"][0]
    assert page.locator("#classified-label").text_content() == expected["label"]
    shares = "[...document.querySelectorAll('.piece')].map(e => +e.style.getPropertyValue('--share') * sign(e))"
    shown = page.evaluate(f"() => {{ const sign = (e) => (e.matches('.for') ? 1 : -1); return {shares}; }}")
    assert shown == pytest.approx([word["change"] for word in expected["words"]], abs=6e-4)
    for task, fields in {"entail": 2, "similarity": 2, "choice": 3}.items():
        page.select_option("#classify-model", task)
        assert page.locator("#classify-fields textarea").count() == fields


@pytest.mark.slow
def test_the_shown_answer_is_the_one_that_is_meant(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    page.click("#tab-classify")
    page.select_option("#classify-model", "choice")
    fields = page.locator("#classify-fields textarea")
    parts = ["the river runs", "where?", "to the sea", "a stone", "in the river"]

    def shown(answers: list[str]) -> str | None:
        for place, text in enumerate([*parts[:2], "\n".join(answers)]):
            fields.nth(place).fill(text)
        with page.expect_response("**/classify"):
            fields.last.press("Control+Enter")
        expect(page.locator("#classify-form .main")).to_be_enabled()
        return page.locator("#classified-label").text_content()

    # The numbers of the answers count from 0, unless the training data counted otherwise.
    for answers in (parts[2:], parts[:1:-1]):
        row = http.post("/classify", json={"model": "choice", "input": [[*parts[:2], *answers]]}).json()["data"][0]
        assert list(row["probabilities"]) == ["0", "1", "2"]
        assert shown(answers) == answers[row["label"]]
    row |= {"label": 3, "probabilities": {"1": 0.2, "2": 0.3, "3": 0.5}, "words": []}
    page.route("**/classify", lambda route: route.fulfill(json={"data": [row]}))
    assert shown(parts[2:]) == parts[4]


def test_an_empty_and_a_certain_row_are_explained(open_page: Open) -> None:
    page = open_page()
    page.click("#tab-classify")
    page.select_option("#classify-model", "classes")
    page.click("#classify-form .main")
    expect(page.locator("#classified-hint")).to_have_text("There is no text to label.")
    answer = {"index": 0, "label": "sea", "probabilities": {"sea": 0.99999, "stone": 0.00001}, "tokens_cut": 0}
    changes = {"river": (0.00001, 0.5), "stone": (0.0, -0.25)}
    answer["words"] = [
        {"segment": 0, "text": text, "change": change, "log_odds": odds}
        for text, (change, odds) in changes.items()
    ]
    answer["saturated"] = True
    page.route("**/classify", lambda route: route.fulfill(json={"data": [answer]}))
    page.click("#classify-form .main")
    expect(page.locator("#classified-hint")).to_contain_text(
        "No word alone changes this answer: the model is so certain (100 %)"
    )
    expect(page.locator("#classified-hint")).to_contain_text("log-odds")
    assert page.locator("#classified-strongest .number").all_text_contents() == ["+0.50", "−0.25"]
    shares = page.evaluate(
        "[...document.querySelectorAll('.piece')].map((e) => e.style.getPropertyValue('--share'))"
    )
    assert shares == ["1.000", "0.500"]
    expect(page.locator("#problem")).to_be_hidden()


def test_the_words_of_a_regression_change_its_score(open_page: Open) -> None:
    page = open_page()
    word = {"segment": 0, "text": "river", "change": 1.5}
    row = {"index": 0, "label": 3.5, "probabilities": {"1": 0.2, "5": 0.8}, "tokens_cut": 0, "words": [word]}
    page.route("**/classify", lambda route: route.fulfill(json={"data": [row]}))
    page.click("#tab-classify")
    page.fill("#classify-fields textarea", "river")
    page.press("#classify-fields textarea", "Control+Enter")
    page.wait_for_selector("#classified .piece")
    assert page.locator("#classified-strongest .number").text_content() == "+1.50"
    assert (
        page.locator("#classified-hint")
        .text_content()
        .startswith("Each word was left out in turn. Blue: the score")
    )
    assert page.evaluate("document.querySelector('.piece').style.getPropertyValue('--share')") == "0.375"


def test_a_masked_model_fills_blanks(open_page: Open, http: httpx.Client) -> None:
    page = open_page()
    for menu in ("write-model", "compare-model-a", "compare-model-b"):
        assert "blanks" not in page.locator(f"#{menu} option").all_text_contents()
    page.click("#tab-fill")
    page.fill("#fill-text", "the [MASK] is [MASK] .")
    page.click("#fill-form .main")
    page.wait_for_selector("#filled mark")
    asked = {"model": "blanks", "input": "the [MASK] is [MASK] .", "top": 8}
    blanks = http.post("/v1/fill", json=asked).json()["data"]
    (first, second, *_), (other, *_) = ([one["text"].strip() for one in blank["tokens"]] for blank in blanks)
    assert page.locator("#filled-text").text_content() == f"the {first} is {other} ."
    page.locator("#filled-masks button").nth(1).click()
    assert page.locator("#filled-text").text_content() == f"the {second} is {other} ."
    assert second in page.evaluate("document.activeElement.textContent")


def test_a_server_of_a_masked_model_alone_shows_the_blanks(
    open_page: Open, masked_folder: Path, start_server: Any
) -> None:
    running = start_server("--model", str(masked_folder))
    try:
        page = open_page(url=running.url, ready="body[data-ready=true][data-view=fill]")
        assert page.locator("#tab-write").is_hidden()
        page.fill("#fill-text", "no blank")
        page.click("#fill-form .main")
        expect(page.locator("#problem")).to_contain_text("[MASK]")
    finally:
        assert running.stop() == 0


def test_problems_are_shown_and_lose_no_text(open_page: Open, base_folder: Path, start_server: Any) -> None:
    running = start_server("--model", str(base_folder))
    page = open_page(url=running.url)
    before = text_of(page)
    write(page, "river " * 200)
    expect(page.locator("#problem")).to_contain_text("context")
    assert text_of(page) == before
    # A stream that ends before it is complete keeps what came.
    choice = {"index": 0, "text": "x", "token_ids": [1], "finish_reason": None, "logprobs": None}
    cut = f"data: {json.dumps({'choices': [choice]})}\n\n"
    page.route(
        "**/v1/completions",
        lambda route: (
            route.fulfill(body=cut, content_type="text/event-stream")
            if (route.request.post_data_json or {}).get("stream")
            else route.continue_()
        ),
    )
    write(page, "the sea")
    expect(page.locator("#problem")).to_contain_text("broke before the text was complete")
    assert text_of(page) == "the sea"
    page.unroute("**/v1/completions")
    assert running.stop() == 0
    write(page, "the stone")
    expect(page.locator("#problem")).to_contain_text("does not answer")
    assert text_of(page) == "the sea"
    focused(page)


def test_a_model_that_is_not_here_is_named(open_page: Open) -> None:
    for name in ("nosuch", "the"):  # also one that equals the prompt
        page = open_page(f"#a={name}&prompt=the", ready="#problem:not([hidden])")
        assert f"no model {name}" in (page.locator("#problem").text_content() or "")
        assert page.locator("#prompt").input_value() == "the"


@pytest.mark.slow
def test_the_history_of_a_model_that_is_not_here_is_named(open_page: Open) -> None:
    page = open_page()
    kept = [{"prompt": "the", "model": "gone", "settings": {"temperature": 1, "seed": 2}, "text": "the sea"}]
    page.evaluate("kept => localStorage.setItem('headwater.history', kept)", json.dumps(kept))
    page.reload()
    page.wait_for_selector(WRITTEN)
    page.click("#history summary")
    page.locator("#history-list button", has_text="gone").click()
    expect(page.locator("#problem")).to_contain_text("no model gone")
    assert page.locator("#prompt").input_value() == "the"
    assert page.locator("#write-model").input_value() == "base"


def test_a_browser_that_stores_nothing_shows_the_page(open_page: Open) -> None:
    page = open_page()
    page.add_init_script(
        """for (const area of ["localStorage", "sessionStorage"])
          Object.defineProperty(window, area, { get() { throw new DOMException("", "SecurityError"); } });"""
    )
    page.reload()
    page.wait_for_selector(WRITTEN)
    assert text_of(page)
    items = page.locator("#history-list li")
    before = items.count()
    page.fill("#prompt", "a stone lies")
    page.click("#go")
    expect(items).to_have_count(before + 1)  # the history lasts as long as the page is open


def test_the_page_prompts_for_a_key_until_it_is_right(
    open_page: Open, base_folder: Path, tmp_path: Path, start_server: Any
) -> None:
    (tmp_path / "keys").write_text("open-sesame\n", encoding="utf-8")
    running = start_server("--model", str(base_folder), "--api-key-file", str(tmp_path / "keys"))
    try:
        page = open_page(url=running.url, ready="#key-dialog[open]")
        assert page.locator("#key-refused").is_hidden()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-refused:not([hidden])")
        page.keyboard.type("open-sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector(WRITTEN)
        assert text_of(page)
    finally:
        running.stop()


def test_the_page_speaks_the_browsers_language(open_page: Open) -> None:
    page = open_page(locale="ko-KR")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("#go").text_content() == "쓰기"
    token(page, 8).click()
    expect(page.locator("#card .story")).to_contain_text("들여다보기")
    page.select_option("#language", "en")
    assert page.locator("#go").text_content() == "Write"
    page.reload()
    page.wait_for_selector(WRITTEN)
    assert page.locator("#go").text_content() == "Write"
    words = page.evaluate("""async () => {
        const all = await Promise.all(["en", "ko"].map((name) => import(`/page/words_${name}.js`)));
        const about = ([key, value]) => [key, typeof value, value.length];
        return all.map((one) => Object.entries(one.default).map(about));
    }""")
    kinds = [{key: (kind, length if kind == "function" else 0) for key, kind, length in one} for one in words]
    assert kinds[0] == kinds[1]
    source = "".join(
        path.read_text(encoding="utf-8") for path in PAGE.iterdir() if path.suffix in {".js", ".html"}
    )
    used = set(re.findall(r"""\bt\("([\w.]+)\"""", source)) | set(
        re.findall(r'data-t(?:-\w+)?="([\w.]+)"', source)
    )
    assert used <= set(kinds[0])


VIEWS = [
    "write",
    "card",
    "branches",
    "pair",
    "inside",
    "off",
    "next",
    "compare",
    "classify",
    "classified",
    "fill",
    "key",
]


def show(page: Page, view: str) -> None:
    """Bring one view or state of the page onto the screen."""
    if view == "card":
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        token(page, 8).click()
    elif view == "branches":
        token(page, 8).click()
        page.locator("#card button.choice:not([aria-current])").first.click()
        page.wait_for_selector(WRITTEN)
        page.wait_for_selector("#branches:not([hidden])")
    elif view == "pair":
        page.locator("#branch-tree button[aria-pressed=false]").last.click()
        page.wait_for_selector("#branch-pair .token")
    elif view == "inside":
        token(page, 12).click()
        page.click("#card .story")
        page.wait_for_selector(STORY)
    elif view == "off":
        page.click("#head-switch")
        page.wait_for_selector("#off-effect .own")
    elif view == "next":
        page.fill("#inside-text", "the river")
        page.click("#inside-form .main")
        page.wait_for_selector("#story-after:disabled")
        page.wait_for_selector(STORY)
    elif view == "compare":
        page.click("#tab-compare")
        page.fill("#compare-prompt", "the river")
        page.click("#compare-go")
        page.wait_for_selector(WRITTEN)
        expect(page.locator("#compare-status-b")).not_to_be_empty()
    elif view == "classify":
        page.click("#tab-classify")
    elif view == "classified":
        page.fill("#classify-fields textarea", "the river runs")
        page.click("#classify-form .main")
        page.wait_for_selector("#classified .piece")
    elif view == "fill":
        page.click("#tab-fill")
        page.click("#fill-form .main")
        page.wait_for_selector("#filled mark")
    elif view == "key":
        page.evaluate("document.getElementById('key-refused').hidden = false")
        page.evaluate("document.getElementById('key-dialog').showModal()")


LOOKS: list[dict[str, Any]] = [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}]
PLAIN_LOOK: dict[str, Any] = {"color_scheme": "light", "forced_colors": "none"}
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
CONTROLS = "[...document.querySelectorAll('button, input, select, summary')].filter(e => e.checkVisibility())"
SMALL = f"{CONTROLS}.filter(e => e.offsetHeight < 24 || e.offsetWidth < 24).map(e => e.outerHTML)"


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en-US", "ko-KR"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_view_is_accessible_and_fits_the_screen(open_page: Open, size: str, language: str) -> None:
    phone: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
    page = open_page(locale=language, **(phone if size == "phone" else {}))
    axe = Axe()
    for view in VIEWS:
        show(page, view)
        page.wait_for_timeout(150)  # the card has appeared
        for look in LOOKS:
            page.emulate_media(**{**PLAIN_LOOK, **look})
            found = axe.run(page, options={"runOnly": RULES}).response["violations"]
            said = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
            assert said == [], (view, look)
        page.emulate_media(**PLAIN_LOOK)
        assert page.evaluate(SMALL) == [], view
        whole = PHONE if size == "phone" else DESKTOP
        for width in (768, 320, whole["width"]):
            page.set_viewport_size({"width": width, "height": whole["height"]})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
            assert page.evaluate("tabs.scrollWidth <= tabs.clientWidth"), ("a tab is out of sight", width)


def event_of(names: list[str], ids: list[int]) -> str:
    """Some tokens as one event of a stream."""
    logprobs = {
        "tokens": names,
        "token_logprobs": [-1.0] * len(names),
        "top_logprobs": [{name: -1.0, "a": -2.0} for name in names],
        "top_token_ids": [{name: one, "a": 1} for name, one in zip(names, ids, strict=True)],
    }
    choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": None, "logprobs": logprobs}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


@pytest.mark.slow
def test_five_thousand_tokens_are_shown_with_little_work(open_page: Open, base_folder: Path) -> None:
    page = open_page()
    tokenizer = hw.Tokenizer.load(base_folder)
    ids = (tokenizer.encode("the river runs to the sea. ") * 1000)[:5000]
    parts = [ids[start : start + 5] for start in range(0, 5000, 5)]
    body = "".join(event_of([tokenizer.decode([one]) for one in part], part) for part in parts)

    def answer(route: Route) -> None:
        if (route.request.post_data_json or {}).get("stream"):
            route.fulfill(body=body + "data: [DONE]\n\n", content_type="text/event-stream")
        else:
            route.continue_()

    page.route("**/v1/completions", answer)
    page.evaluate("""() => {
        window.batches = window.changes = 0;
        const text = document.querySelector("#write-text .text");
        new MutationObserver(() => window.batches++).observe(text, { childList: true });
        const everything = { attributes: true, childList: true, subtree: true };
        new MutationObserver((all) => (window.changes += all.length)).observe(text, everything);
    }""")
    write(page, "the")
    assert page.locator("#write-text .token").count() > 5000
    assert page.evaluate("window.batches") < 200
    token(page, 2500).click()
    page.evaluate("window.changes = 0")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(ACTIVE).endswith("-2510")
    assert page.evaluate("window.changes") <= 10 * 6


def test_every_panel_links_to_a_section_that_is_served(http: httpx.Client) -> None:
    panels = set(re.findall(r'data-read="(\w+)"', (PAGE / "index.html").read_text(encoding="utf-8")))
    assert len(panels) == 11
    for language, suffix in (("en", ".md"), ("ko", ".ko.md")):
        words = (PAGE / f"words_{language}.js").read_text(encoding="utf-8").partition("  read: {\n")[2]
        links = re.findall(r'^    (\w+): \["(.+)", "(.+)#(.+)"\],$', words, re.M)
        assert {name for name, *_ in links} == panels
        for _, _, file, anchor in links:
            assert file.endswith(suffix)
            answer = http.get(f"/page/reading/{file}", headers={"authorization": ""})
            assert answer.headers["content-type"].startswith("text/html")
            assert f' id="{anchor}"' in answer.text, (file, anchor)


def test_the_links_of_a_served_section_lead_to_served_sections(http: httpx.Client) -> None:
    waiting, seen = {"questions.md", "questions.ko.md"}, {}
    while waiting:
        name = waiting.pop()
        seen[name] = http.get(f"/page/reading/{name}").raise_for_status().text
        links = re.findall(r'href="([^"]+)"', seen[name].partition("<main>")[2])
        waiting |= {unquote(link).partition("#")[0] or name for link in links} - seen.keys()
    assert len(seen) == 14
    for name, text in seen.items():
        for link in map(unquote, re.findall(r'href="([^"]+)"', text.partition("<main>")[2])):
            file, _, anchor = link.partition("#")
            assert not anchor or f' id="{anchor}"' in seen[file or name], (name, link)
    assert http.get("/page/reading/gpt3.md").status_code == 404


@pytest.mark.parametrize(("language", "question"), [("en-US", "What is GELU?"), ("ko-KR", "GELU란 무엇인가요?")])
def test_a_question_of_a_panel_opens_its_section(open_page: Open, language: str, question: str) -> None:
    page = open_page(locale=language)
    with page.context.expect_page() as opened:
        page.locator("[data-read=write]").click()
    reading = opened.value
    reading.wait_for_load_state()
    assert reading.locator("html").get_attribute("lang") == language[:2]
    anchor = unquote(reading.url.partition("#")[2])
    assert reading.evaluate("a => Math.abs(document.getElementById(a).getBoundingClientRect().top) < 80", anchor)
    assert reading.get_by_role("heading", name=question).count() == 1
    for size in (DESKTOP, PHONE):
        reading.set_viewport_size(size)
        assert reading.evaluate("document.documentElement.scrollWidth") <= size["width"]
    found = Axe().run(reading, options={"runOnly": RULES}).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []


def test_the_page_is_small_and_loads_nothing_from_outside() -> None:
    files = [path for path in PAGE.iterdir() if path.suffix in {".html", ".js", ".css", ".svg"}]
    assert sum(path.stat().st_size for path in files) < 190_000
    for path in files:
        links = re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"']*""", path.read_text(encoding="utf-8"))
        assert [link for link in links if "www.w3.org" not in link] == []


@pytest.mark.slow
def test_the_view_inside_opens_with_the_token_chosen_last(open_page: Open) -> None:
    page = open_page()
    title = page.locator("#story-title")
    for index in (4, 7):  # the second time as well
        token(page, index).click()
        chosen = token(page, index).text_content()
        page.click("#tab-inside")
        page.wait_for_selector(STORY)
        assert page.locator("#inside-text").input_value() == text_of_write(page)
        assert chosen in (title.text_content() or "")
    page.click("#tab-inside")
    page.click("#story-before")
    page.wait_for_selector(STORY)
    stepped = title.text_content()
    page.click("#tab-write")
    page.click("#tab-inside")  # nothing else was chosen: the step stays
    assert title.text_content() == stepped
    page.click("#tab-compare")
    page.fill("#compare-prompt", "a stone lies")
    page.click("#compare-go")
    page.wait_for_selector(WRITTEN)
    compared = page.locator("#compare-text-a .token >> nth=6")
    compared.click()
    page.click("#tab-inside")
    expect(title).to_contain_text((compared.text_content() or "").strip())
    assert page.locator("#inside-text").input_value().startswith("a stone lies")


def test_the_list_of_steps_leads_to_each_by_keyboard(open_page: Open) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs%20to%20the%20sea", ready=STORY)
    steps = page.locator("#overview a").evaluate_all("links => links.map((link) => link.hash.slice(1))")
    assert len(steps) == 7
    address = page.url
    for place, step in enumerate(steps):
        page.locator("#overview a").nth(place).press("Enter")
        assert focused(page) == step
    assert page.url == address


def test_a_head_that_is_chosen_while_a_token_loads_is_no_problem(open_page: Open) -> None:
    """A head, then another token before its answer, then a head while that token loads."""
    page = open_page("#view=inside&prompt=the%20river%20runs%20to%20the%20sea", ready=STORY)
    held: list[Route] = []
    page.route("**/inspect", lambda route: held.append(route))
    page.click(".head >> nth=1")
    expect(page.locator("#steps")).to_have_attribute("aria-busy", "true")
    page.click("#story-before")
    page.click(".head >> nth=2", force=True)
    for route in held:
        route.continue_()
    page.unroute("**/inspect")
    page.wait_for_selector(STORY)
    expect(page.locator("#steps")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#problem")).to_be_hidden()


def test_a_head_whose_steps_fail_gives_way_to_the_one_before(open_page: Open) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs%20to%20the%20sea", ready=STORY)
    before = page.locator("#head-name").text_content()
    page.route("**/inspect", lambda route: route.fulfill(status=500, body="{}"))
    page.click(".head[aria-pressed=false] >> nth=0")
    expect(page.locator("#problem")).to_be_visible()
    expect(page.locator("#steps")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#head-name")).to_have_text(before or "")


def test_the_history_has_the_prompt_that_was_written(open_page: Open) -> None:
    page = open_page()
    page.route("**/v1/completions", lambda route: (page.fill("#prompt", "another"), route.continue_()))
    page.fill("#prompt", "the river")
    page.click("#go")
    page.wait_for_selector(WRITTEN)
    kept = json.loads(page.evaluate("localStorage.getItem('headwater.history')"))[0]
    assert (kept["prompt"], kept["text"][:9]) == ("the river", "the river")


def test_the_steps_of_a_head_are_the_servers_numbers(open_page: Open, http: httpx.Client) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs%20to%20the%20sea", ready=STORY)
    page.click(".head >> nth=1")
    expect(page.locator("#qkv-head")).to_have_text("Layer 1, head 2")
    asked = {"prompt": "the river runs to the sea", "head": [0, 1]}
    found = http.post("/inspect", json=asked).json()
    rows = page.locator("#qkv tbody tr")
    for place, one in enumerate(found["head"]["attended"]):
        shown = [cell.replace("−", "-") for cell in rows.nth(place).locator(".number").all_text_contents()]
        assert shown[:2] == [f"{one['product']:.2f}", f"{one['scaled']:.2f}"]
        assert float(shown[2].removesuffix(" %")) == pytest.approx(100 * one["weight"], abs=0.6)
    units = page.locator("#mlp tbody tr")
    assert units.locator("th").all_text_contents() == [str(one["unit"] + 1) for one in found["mlp"]["units"]]
    first = found["mlp"]["units"][0]
    raised = units.first.locator(".shares").first.locator(".number").all_text_contents()
    assert raised[0] == f"+{first['raised'][0]['logit']:.2f}"


def test_the_first_head_looks_at_earlier_tokens(open_page: Open) -> None:
    page = open_page()
    found = page.evaluate("""async () => {
        const { informative } = await import("/page/attention.js");
        const size = 6, bytes = new Uint8Array(2 * 3 * size * size);
        const [itself, first] = [(row) => row, () => 0];
        const back = (count) => (row) => Math.max(0, row - count);
        [itself, back(1), first, back(3), itself, first].forEach((place, head) => {
          const weight = head === 3 ? 150 : 252;
          for (let row = 0; row < size; row++) bytes[(head * size + row) * size + place(row)] = weight;
        });
        const recent = { start: 0, size, data: btoa(String.fromCharCode(...bytes)) };
        const found = { attention: [[[], [], []], [[], [], []]], recent };
        return [informative(found), informative(found, 1)];
    }""")
    assert found == [{"layer": 1, "head": 0}, {"layer": 1, "head": 0}]  # not the diagonals and the first token


@pytest.mark.slow
def test_step_1_begins_at_the_left_with_the_names_of_its_rows(open_page: Open) -> None:
    page = open_page("#view=inside&prompt=the%20river%20runs%20to%20the%20sea", ready=STORY, viewport=PHONE)
    left = "document.getElementById('pieces').parentElement.scrollLeft"
    assert page.evaluate(left) == 0
    page.evaluate(f"{left} = 60")
    name, cell = (page.locator(f"#pieces {one} >> nth=0").bounding_box() for one in ("th", "td"))
    assert name is not None
    assert cell is not None
    assert name["x"] > cell["x"] - 60  # the names stay, the tokens move beneath them
    assert name["x"] >= 0


def text_of_write(page: Page) -> str:
    page.click("#tab-write")
    return text_of(page)


@pytest.mark.slow
def test_the_examples_follow_the_models_language(
    open_page: Open, base_folder: Path, tmp_path: Path, start_server: Any
) -> None:
    shutil.copytree(base_folder, tmp_path / "korean")
    card = "---\nlicense: mit\nlanguage: ko\n---\n# A model\n"
    (tmp_path / "korean" / "README.md").write_text(card, encoding="utf-8")
    running = start_server("--model", str(tmp_path / "korean"), "--model", f"other={base_folder}")
    page = open_page(url=running.url)
    assert page.locator("#prompt").input_value() == "이 영화는"
    page.select_option("#write-model", "other")
    assert page.locator("#examples button >> nth=0").text_content() == "The river"
    assert running.stop() == 0
