"""Take the screenshots of the server's page: every view on a desktop, on a phone and in dark colours.

python tools/screenshots.py docs/page [--classifier FOLDER] [--views VIEW…] [--chromium PATH]

This starts `headwater serve` with the models that ship, and controls the system's Chromium. Without a classifier,
the view "classify" is left out. The same models, prompts and seeds give the same texts.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
READY = "body[data-ready=true]:not([data-running=true])"
STORY = "#inside-shown[aria-busy=false]"
COLOURS = 128
WRITTEN = "#view=write&prompt=The%20river&tokens=60&temperature=0.7&top_k=40&seed=1"
ADDRESSES = {
    "write": WRITTEN,
    "branches": WRITTEN,
    "inside": "#view=inside&prompt=The%20river%20runs%20through%20the%20old%20town%20and&token=5",
    "compare": "#view=compare&prompt=The%20river&a=gpt2-mini&b=gpt1-mini&tokens=40&seed=1",
    "classify": "#view=classify",
}


@contextmanager
def served(models: list[str]) -> Iterator[str]:
    """Start a server of the models and yield its address."""
    options = [part for model in models for part in ("--model", model)]
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"at (http://\S+:\d+)", line):
                yield found[1]
                return
        raise SystemExit("the server did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def bring(page: Page, view: str) -> None:
    """Bring a view into the state of the screenshot."""
    page.wait_for_selector(READY)
    if view == "write":
        page.locator("#write-text .token >> nth=9").click()
    elif view == "branches":
        page.locator("#write-text .token >> nth=9").click()
        page.locator("#card button.choice:not([aria-current])").first.click()
        page.wait_for_selector(READY)
        page.locator("#branch-tree button[aria-pressed=false]").last.click()
        page.locator("#branches").scroll_into_view_if_needed()
    elif view == "inside":
        page.wait_for_selector(STORY)
    elif view == "compare":
        page.get_by_text("40 tokens written.").nth(1).wait_for()
        page.click("#take-a")
        page.wait_for_selector("#scores:not([hidden])")
    elif view == "classify":
        page.fill("#classify-fields textarea", "a funny and warm film with a dull ending")
        page.click("#classify-form .main")
        page.wait_for_selector("#classified .piece")
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)  # the card fades in


def shrink(path: Path) -> None:
    """Reduce the image's colours, which saves two thirds of its bytes."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Write VIEW-LOOK.png for each view and look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--classifier", type=Path)
    parser.add_argument("--views", nargs="+", choices=list(ADDRESSES), default=list(ADDRESSES))
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = ["gpt2-mini", "gpt1-mini"]
    views = [view for view in arguments.views if view != "classify" or arguments.classifier]
    if arguments.classifier:
        models.append(f"classes={arguments.classifier}")
    with served(models) as url, sync_playwright() as playwright, tempfile.TemporaryDirectory() as work:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        for look, options in LOOKS.items():
            for view in views:
                with browser.new_context(locale="en-US", **options) as context:
                    page = context.new_page()
                    page.set_default_timeout(120_000)
                    page.goto(f"{url}/{ADDRESSES[view]}")
                    bring(page, view)
                    taken = Path(work) / f"{view}-{look}.png"
                    page.screenshot(path=taken, full_page=view in {"branches", "inside", "compare"})
                    shrink(taken)
                    shutil.move(taken, arguments.out / taken.name)
                    print(taken.name, flush=True)


if __name__ == "__main__":
    main()
