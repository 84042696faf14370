"""The example page of docs/serving.md on another port, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"


class Silent(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """The origin of a web server for examples/serving."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(EXAMPLES))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(page: Page, site: str, server: str, prompt: str) -> None:
    page.goto(f"{site}/page.html")
    page.fill("[name=server]", server)
    page.fill("[name=prompt]", prompt)
    page.click("button")


def test_a_page_of_an_allowed_origin_streams_a_completion(
    browser: Browser, site: str, server: Any, http: httpx.Client, base_folder: Path, start_server: Any
) -> None:
    allowed = start_server("--model", str(base_folder), "--allow-origin", site)
    page = browser.new_page()
    try:
        bodies: list[Any] = []
        page.on("request", lambda one: bodies.append(one.post_data_json) if one.method == "POST" else None)
        # No random text: the example leaves the seed to the server.
        page.route("**/v1/completions", lambda route: route.continue_(post_data={**bodies[0], "temperature": 0}))
        ask(page, site, allowed.url, "the river")
        asked = {"prompt": "the river", "max_tokens": 40, "temperature": 0, "echo": True}
        expected = http.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        expect(page.locator("#text")).to_have_text(expected, use_inner_text=False)
        assert bodies[0]["stream"] is True
        assert page.locator("#problem").text_content() == ""
        page.unroute("**/v1/completions")
        ask(page, site, allowed.url, "the river " * 60)
        expect(page.locator("#problem")).to_contain_text("context")  # the server's own message

        # A server without the option: the browser refuses, and the page names the option.
        ask(page, site, server.url, "the river")
        expect(page.locator("#problem")).to_contain_text(f"--allow-origin {site}")
        assert page.locator("#text").text_content() == "the river"
    finally:
        page.close()
        assert allowed.stop() == 0
