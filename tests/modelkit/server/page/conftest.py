"""The web page in a browser, in front of a server that does what a test says.

Each test ends with the same question: was there an error in the console, something that the page's policy
had to stop, or a request to another host? One browser serves all tests of this folder.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.browser import Tab, find_browser, launched
from tests.support.fake_chat import HELLO, Fake, served


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that fails says what the page showed: what it waited for says little."""
    report: Any = yield
    tab = getattr(item, "funcargs", {}).get("tab")
    if report.when == "call" and report.failed and tab is not None:
        try:
            said = [tab.page.url, tab.page.inner_text("body"), f"Noise: {tab.noise}", tab.page.evaluate(KEPT)]
        except Exception as error:  # noqa: BLE001 - the test's own failure counts
            said = [f"The page says nothing: {error}"]
        report.sections.append(("The page", "\n".join(said)))
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    path = find_browser()
    assert path is not None
    with launched(path) as browser:
        yield browser


@pytest.fixture
def fake() -> Fake:
    return Fake([HELLO])


@pytest.fixture(scope="package")
def place() -> Iterator[tuple[str, Callable[[Fake], None]]]:
    """One address for all fakes: (url, what makes a fake the one behind it)."""
    current: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await current[-1](scope, receive, send)

    with served(app) as url:
        yield url, lambda fake: current.append(fake.app())


@pytest.fixture(scope="package")
def context(browser: Any, place: tuple[str, Callable[[Fake], None]]) -> Iterator[Any]:
    """One for all tests: what the browser has fetched once, it asks for again in a millisecond.

    Its first tab shows a picture of the page's server and stays: with the last tab of a server the browser
    forgets what it has made of the page's scripts, and the next one takes twice as long.
    """
    context = browser.new_context(viewport={"width": 1100, "height": 760})
    url, serve = place
    serve(Fake())
    context.new_page().goto(f"{url}/page/icon.svg")
    yield context
    context.close()


KEPT = """async () => {
    const { Conversations } = await import("/page/js/database.js");
    return JSON.stringify(await (await Conversations.open()).list());
}"""

FORGET = """async () => {
    localStorage.clear();
    sessionStorage.clear();
    for (const { name } of await indexedDB.databases()) await new Promise((done) => {
        indexedDB.deleteDatabase(name).onsuccess = done;
    });
}"""


@pytest.fixture
def tab(context: Any, fake: Fake, place: tuple[str, Callable[[Fake], None]]) -> Iterator[Tab]:
    place[1](fake)
    with opened(context, place[0]) as tab:
        yield tab


@contextmanager
def opened(context: Any, url: str) -> Iterator[Tab]:
    """A tab; at its end nothing is left of what it kept."""
    tab = Tab(context.new_page(), url)
    try:
        yield tab.open()
        assert tab.noise == []
    finally:
        tab.page.evaluate(FORGET)
        for page in context.pages[1:]:
            page.close()
