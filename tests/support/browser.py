"""A browser for the page's tests: the one that is installed, or none; and the page as a person uses it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")


def find_browser() -> str | None:
    """The path of Chromium or Chrome."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


NEEDS_BROWSER = pytest.mark.skipif(
    find_browser() is None, reason="no browser: Chromium or Chrome must be on the path"
)


@contextmanager
def launched(path: str) -> Iterator[Any]:
    """A headless one, driven by playwright, which brings none of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page, and what it did that it should not."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.noise: list[str] = []
        host = urlsplit(url).netloc
        page.set_default_timeout(30_000)
        page.on("console", lambda one: self._hear(one.type, one.text))
        page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        page.on("request", lambda one: self._see(one.url, host))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective))"
        )

    def _hear(self, kind: str, said: str) -> None:
        if kind in ("error", "warning"):
            self.noise.append(said)

    def _see(self, url: str, host: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != host:
            self.noise.append(f"asked for {url}")

    def open(self, place: str = "") -> "Tab":
        self.page.goto(self.url + place)
        self.page.wait_for_selector(":root[data-ready]")
        return self

    def say(self, words: str) -> None:
        self.page.locator("#message").fill(words)
        self.page.keyboard.press("Enter")

    def ask(self, words: str) -> Any:
        """Say it, and wait for the end of the answer, which is given."""
        answers = self.page.locator(".message.assistant")
        before = answers.count()
        self.say(words)
        answers.nth(before).wait_for()  # until then the latest answer is an earlier one, and at its end
        return self.answered()

    def answered(self) -> Any:
        self.page.locator("#send[aria-label=Send]").wait_for()
        answer = self.page.locator(".message.assistant").last
        answer.locator(".foot").wait_for()
        return answer

    def said(self, words: str) -> Any:
        """Where that stands among the messages."""
        return self.page.locator("#log").get_by_text(words)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)
