"""Make docs/images/page.png: the web page with a conversation with the example model, in a real browser.

python -m tests.support.page_picture
"""

import io
import tempfile
from pathlib import Path
from typing import Any

import modelkit
from modelkit.server.log import Log
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.browser import Tab, find_browser, launched
from tests.support.live_server import running

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "page.png"
SIZE = {"width": 1120, "height": 720}
ASKED = ("Who lives in the lighthouse?", "Tell me a story about the harbour.")
INSTEAD = "Tell me a story about the boat."


def _talk(tab: Tab) -> None:
    """Two questions, the second of them edited: so there is a branch, and most of the prompt is reused."""
    tab.button("Settings of this conversation").click()
    tab.page.get_by_label("Seed").fill("7")
    tab.page.keyboard.press("Escape")
    for question in ASKED:
        tab.ask(question)
    asked = tab.page.locator(".message.user").last
    asked.hover()
    asked.get_by_role("button", name="Edit").click()
    tab.page.get_by_label("Edit the message").fill(INSTEAD)
    tab.page.keyboard.press("Enter")
    tab.page.locator(".branches").first.wait_for()
    tab.answered()
    tab.page.locator("#message").focus()
    tab.page.wait_for_timeout(500)


def main() -> None:
    path = find_browser()
    assert path is not None, "Chromium or Chrome must be on the path"
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_environment({"MODELKIT_HOME": folder})
        modelkit.create(ROOT / "Modelfile.example", name="island", quantize_draft="q4", home=folder)
        serving = Serving(Pool(StoredModels(settings)), settings, log=Log(io.StringIO()))
        with running(serving) as here, launched(path) as browser:
            page: Any = browser.new_page(viewport=SIZE, color_scheme="light")
            _talk(Tab(page, here.url).open())
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
