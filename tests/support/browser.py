"""A browser for the page's tests: the one that is installed, or a reason why there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")


def find_browser() -> str | None:
    """The path of Chromium or Chrome."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


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
