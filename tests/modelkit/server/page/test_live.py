"""The web page in a browser, in front of the real server with a tiny model."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import modelkit
from modelkit.server.log import Log
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.live_server import Running, running
from tests.support.tiny import TEMPLATE, write_model

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(home / "weights", template=TEMPLATE)
    recipe = Path(home / "Modelfile")
    for name, temperature in (("tiny", 0.5), ("twin", 0.5), ("other", 0.6)):
        text = f"FROM {folder}\nPARAMETER num_predict 12\nPARAMETER temperature {temperature}\n"
        recipe.write_text(text, encoding="utf-8")
        modelkit.create(recipe, name=name, home=home)
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    serving = Serving(Pool(StoredModels(settings)), settings, log=Log(io.StringIO()))
    with running(serving) as here:  # loaded, whichever of the tests comes first
        httpx.post(f"{here.url}/modelkit/v1/load", json={"model": "tiny"}).raise_for_status()
        yield here


@pytest.fixture(scope="module")
def tab(server: Running, browser: Any) -> Iterator[Tab]:
    page: Any = browser.new_page()
    tab = Tab(page, server.url)
    yield tab.open()
    assert tab.noise == []
    page.close()


def test_a_conversation_with_a_model(tab: Tab, server: Running) -> None:
    page = tab.page
    tab.button("New conversation").click()
    page.locator("#model").select_option("tiny:latest")
    tab.button("Settings of this conversation").click()
    # The package's own are asked for once it is chosen.
    expect(page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.5")
    expect(page.get_by_label("Most tokens")).to_have_attribute("placeholder", "12")
    expect(page.get_by_label("Top k")).to_have_attribute("placeholder", re.compile("."))
    page.get_by_label("Ask for the probabilities").check()
    page.get_by_label("Seed").fill("7")
    page.keyboard.press("Escape")
    answer = tab.ask("a" * 60)
    stats = answer.locator(".stats")
    expect(stats).to_have_text(re.compile(r"\d tok/s.*first after.*prompt \d+", re.DOTALL))
    answer.get_by_role("button", name="Probabilities").click()
    expect(answer.locator(".token[data-place]")).to_have_count(12)
    first = answer.locator(".tokens").text_content()
    answer.get_by_role("button", name="Regenerate").click()
    again = tab.answered()
    again.get_by_role("button", name="Probabilities").click()
    expect(again.locator(".tokens")).to_have_js_property("textContent", first)  # the same seed
    expect(again.locator(".branches")).to_have_text(re.compile(r"reused [5-9]\d of \d\d tokens"))
    expect(page.locator("#context-text")).to_contain_text("of 256 tokens of context")
    again.get_by_role("button", name="Continue").click()
    tab.answered()
    assert [shown.name for shown in server.serving.pool.shown()] == ["tiny:latest"]


def test_a_stopped_answer_leaves_the_engine(tab: Tab, server: Running) -> None:
    page = tab.page
    tab.button("New conversation").click()
    page.locator("#model").select_option("tiny:latest")
    tab.button("Settings of this conversation").click()
    page.get_by_label("Most tokens").fill("200")
    page.keyboard.press("Escape")
    tab.say("Go on and on")
    page.locator(".message.assistant").locator(".prose p, .foot").first.wait_for()  # it is read, or over
    page.keyboard.press("Escape")
    tab.answered()
    page.wait_for_function("fetch('modelkit/v1/ps').then(r => r.json()).then(v => v.models[0].running === 0)")


def test_models_come_and_go(tab: Tab, server: Running) -> None:
    tab.button("Models").click()
    tab.button("Unload twin:latest").wait_for()  # the same package as tiny
    tab.button("Load other:latest").click()
    tab.button("Unload other:latest").wait_for()
    assert {shown.name for shown in server.serving.pool.shown()} == {"other:latest", "tiny:latest"}
    tab.button("Unload other:latest").click()
    tab.button("Load other:latest").wait_for()
    tab.page.keyboard.press("Escape")


def test_what_the_server_refuses_is_said(tab: Tab) -> None:
    page = tab.page
    tab.allow("400")
    tab.button("New conversation").click()
    tab.button("Settings of this conversation").click()
    page.locator("#format").fill('{"type": "string", "pattern": "("}')
    page.keyboard.press("Escape")
    answer = tab.ask("Hi")
    expect(answer.get_by_role("alert")).to_contain_text("a group is not closed")
