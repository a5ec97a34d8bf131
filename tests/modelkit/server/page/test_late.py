"""What comes late: an answer of the server or the database to something that a person has left since."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import HELLO, Event, Fake, finish, text

pytestmark = NEEDS_BROWSER
HOLD: Event = {"type": "hold"}
OTHER = "a-model-with-a-rather-long-name:70b"
SHOWN = """
    globalThis.shown = [];
    const see = (changes) => shown.push(...changes.map(({ target }) => target.placeholder));
    new MutationObserver(see).observe(document, { subtree: true, attributeFilter: ["placeholder"] });
"""


def test_no_general_value_stands_for_a_models_own_before_that_is_known(tab: Tab, fake: Fake) -> None:
    tab.page.add_init_script(SHOWN)
    tab.reload()
    expect(tab.page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.7")
    assert "0.8" not in tab.page.evaluate("shown")


def test_general_values_hold_where_the_server_says_nothing_of_the_model(tab: Tab, fake: Fake) -> None:
    tab.allow("500")
    tab.page.route("**/api/show", lambda route: route.fulfill(status=500))
    tab.reload()
    expect(tab.page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.8")


def test_what_is_said_late_of_another_model_is_not_shown(tab: Tab, fake: Fake) -> None:
    temperature, model = tab.page.get_by_label("Temperature"), tab.page.locator("#model")
    with held(tab, "api/show") as late:
        model.select_option(OTHER)
    model.select_option("island:latest")
    expect(temperature).to_have_attribute("placeholder", "0.7")
    late[0](json={"parameters": "temperature 0.1", "adapters": ["foreign"]})
    ask_the_server(tab)
    expect(temperature).to_have_attribute("placeholder", "0.7")
    expect(tab.page.get_by_label("foreign")).to_have_count(0)
    model.select_option(OTHER)
    expect(temperature).to_have_attribute("placeholder", "0.1")


def test_a_list_of_what_is_loaded_that_comes_late_is_not_shown(tab: Tab, fake: Fake) -> None:
    with held(tab, "modelkit/v1/ps", answered=True) as late:
        tab.button("Models").click()
    tab.button("Unload island:latest").click()
    tab.button("Load island:latest").wait_for()
    late[0]()
    ask_the_server(tab)
    expect(tab.button("Load island:latest")).to_be_visible()


def test_a_conversation_that_is_read_late_does_not_take_the_place_of_a_new_one(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("One")
    tab.button("New conversation").click()
    # In one task of the page: the conversation is read from the database behind it.
    tab.page.evaluate("for (const one of ['.chat', '#new-chat']) document.querySelector(one).click()")
    tab.ask("Two")
    expect(tab.page.locator("#title")).to_have_text("Two")
    assert fake.asked[1]["messages"] == [{"role": "user", "content": "Two"}]


def test_what_is_set_as_soon_as_a_conversation_is_new_is_set_for_it(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("One")
    tab.page.evaluate("""() => {
        document.querySelector("#new-chat").click();
        const system = document.querySelector("#system");
        system.value = "Be brief.";
        system.dispatchEvent(new Event("input"));
    }""")
    tab.ask("Two")
    assert [one["content"] for one in fake.asked[1]["messages"]] == ["Be brief.", "Two"]


def test_a_second_message_waits_in_its_box_for_the_answer_to_the_first(tab: Tab, fake: Fake) -> None:
    fake.answers = [[HOLD, *text("First."), finish()], HELLO]
    tab.page.evaluate("""() => {
        const box = document.querySelector("#message");
        const enter = { key: "Enter", bubbles: true, cancelable: true };
        for (const words of ["One", "Two"]) {
            box.value = words;
            box.dispatchEvent(new KeyboardEvent("keydown", enter));
        }
    }""")
    fake.let_go(1)
    tab.said("First.").wait_for()
    tab.answered()
    expect(tab.page.locator("#message")).to_have_value("Two")
    tab.page.locator("#message").press("Enter")
    tab.said("Hello there.").wait_for()
    assert [one["content"] for one in fake.asked[1]["messages"]] == ["One", "First.", "Two"]


def test_a_new_name_does_not_bring_back_what_another_tab_has_deleted(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("One")
    other = Tab(tab.page.context.new_page(), tab.url).open(f"/#{urlsplit(tab.page.url).fragment}")
    tab.button("New conversation").click()
    tab.button("Rename One").press("Enter")
    tab.page.locator("#ask-text").fill("Ones")
    other.button("Delete One").press("Enter")
    other.page.locator("#ask-ok").click()
    tab.page.get_by_text("No conversations yet").wait_for()
    tab.page.keyboard.press("Enter")
    tab.ask("Two")
    expect(tab.page.locator(".chat")).to_have_text(["Two"])
    assert other.noise == []


@contextmanager
def held(tab: Tab, path: str, answered: bool = False) -> Iterator[list[Any]]:
    """The request for this that is made in the block is answered where the test calls what is given then;
    answered: as the server has answered it at once."""
    late = list[Any]()

    def hold(route: Any) -> None:
        late.append(partial(route.fulfill, response=route.fetch()) if answered else route.fulfill)

    tab.page.route(f"**/{path}", hold, times=1)
    yield late
    while not late:
        tab.page.wait_for_timeout(10)


def ask_the_server(tab: Tab) -> None:
    """What was answered before this is in the page when it is answered."""
    tab.page.evaluate("fetch('api/tags').then((answer) => answer.json())")
