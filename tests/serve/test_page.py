"""The page in a real Chromium, without a screen, driven through its own protocol over a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.serve.api import PAGE

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
]


class Browser:
    """One tab. What the console or a script complains about is kept in `complaints`, requests in `requested`."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        # The protocol's pipe is descriptors 3 and 4 of the browser; here its ends get numbers out of their way.
        ends = [end for pipe in (os.pipe(), os.pipe()) for end in pipe]
        read_theirs, self._write, self._read, write_theirs = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in ends)
        for end in ends:
            os.close(end)
        command = f'exec "$0" "$@" 3<&{read_theirs} 4>&{write_theirs} {read_theirs}<&- {write_theirs}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_theirs, write_theirs),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._number, self._held = 0, b""
        self.complaints: list[str] = []
        self.requested: list[str] = []
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        self._session: str | None = None
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, session: str | None = "", **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            more = os.read(self._read, 65_536)
            assert more, "the browser has gone"
            self._held += more
        message, _, self._held = self._held.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(about["entry"]["text"])

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, (expression, found)
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        for _ in range(300):
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(
            f"never true: {expression}; {self.complaints} {self.evaluate('document.body.innerText')}"
        )

    def open(self, url: str) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.until("document.body && document.body.dataset.ready === 'true'")

    def key(self, key: str, modifiers: int = 0) -> None:
        codes = {
            "Enter": 13,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Tab": 9,
        }
        about: dict[str, Any] = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": codes[key],
            "modifiers": modifiers,
        }
        if key == "Enter":
            about["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def close(self) -> None:
        os.close(self._write)
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._read)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: install Debian's package chromium")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def page(browser: Browser, server: Any) -> Iterator[Browser]:
    browser.complaints.clear()
    browser.requested.clear()
    browser.open(server.url + "/")
    yield browser
    assert browser.complaints == []
    assert {re.match(r"\w+://[^/]*", url)[0] for url in browser.requested if not url.startswith("about:")} == {  # type: ignore[index]
        server.url
    }


WRITTEN = "document.getElementById('stop').disabled && document.querySelectorAll('.token:not(.given)').length"
TEXT = "document.querySelector('.pane .text').textContent"


def write(page: Browser, prompt: str, **fields: object) -> int:
    for name, value in {"max-tokens": 12, "seed": 4, **fields}.items():
        page.evaluate(f"document.getElementById('{name}').value = {json.dumps(value)}")
    page.evaluate("document.getElementById('prompt').value = ''; document.getElementById('prompt').focus()")
    page.type(prompt)
    page.key("Enter", modifiers=2)
    return page.until(WRITTEN)


def test_a_prompt_streams_and_is_what_the_api_gives(page: Browser, http: httpx.Client) -> None:
    write(page, "the river")
    asked = {"prompt": "the river", "max_tokens": 12, "seed": 4, "top_k": 40, "echo": True}
    assert page.evaluate(TEXT) == http.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    shares = page.evaluate(
        "[...document.querySelectorAll('.token')].map(t => +t.style.getPropertyValue('--share'))"
    )
    assert shares[0] == 0
    assert max(shares) > 0.2


def test_a_token_shows_its_alternatives_and_branches_by_keyboard(page: Browser) -> None:
    write(page, "the river")
    before = page.evaluate(TEXT)
    page.evaluate("document.querySelectorAll('.token.given')[0].focus()")
    given = page.evaluate("document.querySelectorAll('.token.given').length")
    for _ in range(given + 1):
        page.key("ArrowRight")
    assert page.evaluate("document.querySelectorAll('#card button').length") == 9
    other = "document.querySelectorAll('#card button:not([aria-current]):not(.plain)')"
    wanted = page.evaluate(f"[...document.querySelectorAll('#card button')].indexOf({other}[0])")
    for _ in range(wanted + 1):
        page.key("ArrowDown")
    page.key("Enter")
    page.until(f"{WRITTEN} && {TEXT} !== {json.dumps(before)}")
    assert page.evaluate("document.querySelectorAll('.token.given').length") == given + 2
    page.evaluate("document.querySelector('.pane header button').click()")
    assert page.evaluate(TEXT) == before


def tap(page: Browser, element: str) -> None:
    box = page.evaluate(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({element}.getBoundingClientRect())")
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": box[0], "y": box[1]}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def test_a_finger_opens_a_token_and_branches(page: Browser) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    write(page, "the river")
    before = page.evaluate(TEXT)
    token = "document.querySelectorAll('.token:not(.given)')[2]"
    page.evaluate(f"{token}.scrollIntoView({{block: 'center'}})")
    tap(page, token)
    page.until("!document.getElementById('card').hidden")
    tap(page, "document.querySelector('#card button:not([aria-current])')")
    page.until(f"{WRITTEN} && {TEXT} !== {json.dumps(before)}")
    tap(page, "document.querySelector('.pane header button')")
    page.until(f"{TEXT} === {json.dumps(before)}")
    page.call("Emulation.setTouchEmulationEnabled", enabled=False)
    page.call("Emulation.clearDeviceMetricsOverride")


def test_two_models_write_side_by_side_and_can_be_stopped(page: Browser) -> None:
    write(page, "the river", **{"model-b": "classes"})
    assert page.evaluate("document.querySelectorAll('.pane').length") == 2
    assert page.evaluate("[...document.querySelectorAll('.pane strong')].map(e => e.textContent)") == [
        "base",
        "classes",
    ]
    page.evaluate("document.getElementById('max-tokens').value = 100000")
    page.evaluate("document.getElementById('go').click(); document.getElementById('prompt').focus()")
    page.until("!document.getElementById('stop').disabled")
    page.key("Escape")
    page.until("document.getElementById('stop').disabled")


def test_the_inside_of_a_written_token_is_shown(page: Browser) -> None:
    write(page, "the river")
    page.evaluate("document.querySelectorAll('.token')[3].click()")
    page.evaluate("document.querySelector('#card .plain').click()")
    page.until("document.querySelectorAll('#inside-tokens .chosen').length")
    assert page.evaluate("document.querySelector('#inside-tokens .chosen').dataset.index") == "3"
    layers = page.evaluate("document.querySelectorAll('#layers tr').length")
    assert layers == page.evaluate("document.querySelectorAll('#layer option').length")
    tokens = "[...document.querySelectorAll('#inside-tokens .token')]"
    shades = f"{tokens}.map(token => token.style.getPropertyValue('--share')).join()"
    before = page.evaluate(shades)
    page.evaluate("head.value = '1'; head.dispatchEvent(new Event('change'))")
    assert page.evaluate(shades) != before
    page.evaluate("document.querySelector('#inside-tokens .chosen').focus()")
    page.key("ArrowRight")
    page.until("document.querySelector('#inside-tokens .chosen').dataset.index === '4'")


def test_a_fine_tuned_model_classifies_and_says_why(page: Browser) -> None:
    page.evaluate("document.getElementById('tab-classify').click()")
    page.evaluate("document.querySelector('#classify-fields textarea').focus()")
    page.type("the river runs to the sea")
    page.key("Enter", modifiers=2)
    page.until("document.querySelectorAll('.word').length")
    assert page.evaluate("document.querySelector('#classified .label').textContent") in {"sea", "stone"}
    assert page.evaluate("document.querySelectorAll('.word').length") == 6
    assert page.evaluate("document.querySelectorAll('#classified .bar').length") == 2


def test_an_error_of_the_server_is_told(browser: Browser, server: Any) -> None:
    browser.open(server.url + "/")
    browser.evaluate("document.getElementById('prompt').value = 'river '.repeat(200)")
    browser.evaluate("document.getElementById('go').click()")
    browser.until("document.getElementById('problem').textContent.includes('context')")


def test_the_address_can_carry_a_prompt(page: Browser, server: Any) -> None:
    page.open(f"{server.url}/#prompt=a%20stone&seed=9&b=classes")
    fields = ["prompt", "seed", "model-b"]
    assert [page.evaluate(f"document.getElementById('{name}').value") for name in fields] == [
        "a stone",
        "9",
        "classes",
    ]


def test_a_key_is_asked_for_where_one_is_needed(
    browser: Browser, base_folder: Path, tmp_path: Path, start_server: Any
) -> None:
    (tmp_path / "keys").write_text("open sesame\n".replace(" ", "-"), encoding="utf-8")
    running = start_server("--model", str(base_folder), "--api-key-file", str(tmp_path / "keys"))
    try:
        browser.call("Page.navigate", url=running.url)
        browser.until("document.getElementById('key-dialog')?.open")
        browser.type("open-sesame")
        browser.key("Enter")
        browser.until("document.body.dataset.ready === 'true'")
        assert write(browser, "the river") > 0
    finally:
        browser.call("Page.navigate", url="about:blank")
        running.stop()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(page: Browser, width: int) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500
    )
    write(page, "the river", **{"model-b": "classes"})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    controls = "[...document.querySelectorAll('button, input, select')].filter(e => e.offsetParent)"
    assert page.evaluate(f"{controls}.filter(e => e.offsetHeight < 30).map(e => e.id)") == []
    page.call("Emulation.clearDeviceMetricsOverride")


def test_the_page_is_small_and_asks_for_nothing_outside() -> None:
    files = [path for path in PAGE.iterdir() if path.suffix in {".html", ".js", ".css", ".svg"}]
    assert sum(path.stat().st_size for path in files) < 150_000
    for path in files:
        links = re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"']*""", path.read_text(encoding="utf-8"))
        assert [link for link in links if "www.w3.org" not in link] == []
