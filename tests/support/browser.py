"""A browser for the page's tests: the one that is installed, or none; and the page as a person uses it.

What follows from what a person does comes a little later: an answer of the server, a record of the database,
a frame. So nothing is read off the page and compared at once: `expect` and `Tab.until` wait for what is
claimed, and what must not be there is looked for behind something that comes later than it would have come.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")
PATIENCE_MS = 60_000
"""How long a test waits for what it claims: the machine may be busy."""


def find_browser() -> str | None:
    """The path of Chromium or Chrome."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


NEEDS_BROWSER = pytest.mark.skipif(
    find_browser() is None, reason="no browser: Chromium or Chrome must be on the path"
)


@contextmanager
def launched(path: str) -> Iterator[Any]:
    """A headless one, driven by playwright, which brings none of its own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


def expect(found: Any) -> Any:
    """Playwright's own, for this locator: what is claimed of it may become true a little later."""
    from playwright.sync_api import expect

    return expect(found)


class Tab:
    """One page, and what it did that it should not."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self._heard: list[str] = []
        self._allowed: list[str] = []
        host = urlsplit(url).netloc
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda one: self._hear(one.type, one.text))
        page.on("pageerror", lambda error: self._heard.append(f"error: {error}"))
        page.on("request", lambda one: self._see(one.url, host))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective))"
        )

    def _hear(self, kind: str, said: str) -> None:
        if kind in ("error", "warning"):
            self._heard.append(said)

    def _see(self, url: str, host: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != host:
            self._heard.append(f"asked for {url}")

    @property
    def noise(self) -> list[str]:
        """What nobody has allowed."""
        return [said for said in self._heard if not any(re.search(one, said) for one in self._allowed)]

    def allow(self, pattern: str) -> None:
        """What is heard of this is part of the test, whenever the browser says it."""
        self._allowed.append(pattern)

    def open(self, place: str = "") -> "Tab":
        self.page.goto(self.url + place)
        return self.ready()

    def reload(self) -> "Tab":
        self.page.reload()
        return self.ready()

    def ready(self) -> "Tab":
        """Once all is there that the page shows in the beginning."""
        self.page.wait_for_selector(":root[data-ready]")
        return self

    def until(self, claim: str, given: Any = None) -> None:
        """Wait until this expression or function of the page gives something true."""
        self.page.wait_for_function(claim, arg=given)

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
