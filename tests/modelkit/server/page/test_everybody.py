"""The page without a mouse, on a phone, with a screen reader, and as an audit sees it."""

from typing import Any

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import HELLO, Fake, call, finish, text

pytestmark = NEEDS_BROWSER


def test_the_keyboard_is_enough(tab: Tab, fake: Fake) -> None:
    page = tab.page
    press = page.keyboard.press
    message = page.locator("#message")
    expect(message).to_be_focused()
    page.keyboard.type("One")
    press("Shift+Enter")
    page.keyboard.type("Two")
    press("Enter")
    tab.answered()
    assert fake.asked[0]["messages"][0]["content"] == "One\nTwo"
    expect(message).to_be_focused()
    names = []
    for _ in range(12):
        press("Shift+Tab")
        names.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
            )
        )
        if names[-1] == "Regenerate":
            break
    assert names[-1] == "Regenerate", names
    press("Enter")
    page.get_by_text("2 of 2").wait_for()
    press("Control+k")
    expect(page.locator("#search")).to_be_focused()
    press("Control+Shift+O")
    page.locator("#welcome").wait_for()
    page.locator("#search").focus()
    press("Control+b")
    page.locator("#sidebar").wait_for(state="hidden")
    expect(page.locator("#toggle-sidebar")).to_be_focused()


def test_an_enter_that_ends_a_word_sends_nothing(tab: Tab, fake: Fake) -> None:
    tab.page.locator("#message").fill("にほん")
    enter = "new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true })"
    tab.page.evaluate(f"document.querySelector('#message').dispatchEvent({enter})")
    expect(tab.page.locator("#message")).to_have_value("にほん")
    tab.page.keyboard.press("Enter")
    tab.answered()
    assert [body["messages"][0]["content"] for body in fake.asked] == ["にほん"]


def test_a_phone_has_the_list_over_the_page(tab: Tab, fake: Fake) -> None:
    code = "```\n" + "long line " * 40 + "\n```\n\n"
    fake.answers = [[*text(code + "| a | b | c |\n|-|-|-|\n" + "| wide cell | " * 9), finish()]]
    page = tab.page
    page.set_viewport_size({"width": 320, "height": 600})
    page.locator("#sidebar").wait_for(state="hidden")
    tab.ask("A rather long question without an end " * 4)
    for selector in ("html", "#scroll", "#log"):
        over = page.locator(selector).evaluate("e => e.scrollWidth - e.clientWidth")
        assert over <= 0, selector
    tab.button("Conversations").click()
    page.locator("#sidebar").wait_for()
    expect(page.locator("#main")).to_have_js_property("inert", True)
    page.keyboard.press("Escape")
    page.locator("#sidebar").wait_for(state="hidden")


def test_a_low_window_has_room_for_what_was_said(tab: Tab) -> None:
    """320 by 256 is what 400 % leaves of an ordinary screen."""
    page = tab.page
    tab.ask("Hi")
    page.set_viewport_size({"width": 320, "height": 256})
    page.locator("#sidebar").wait_for(state="hidden")
    page.locator("#message").fill("line\n" * 30)
    height = "e => e.clientHeight"
    assert page.locator("#scroll").evaluate(height) > 256 / 4
    tab.button("Conversations").click()
    page.locator(".chat", has_text="Hi").scroll_into_view_if_needed()
    assert page.locator("#chats").evaluate(height) > 0
    assert page.locator("#sidebar").evaluate("e => e.scrollHeight > e.clientHeight")
    page.locator(".chat", has_text="Hi").click()


def test_an_audit_finds_nothing(tab: Tab, fake: Fake) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page, axe = tab.page, Axe()
    words = (
        "# Head\n\n```python\nx = 'a'  # b\n```\n\n> said\n\n| a |\n|--|\n| [b](https://c.d) |\n\n$x^2$ `y`"
    )
    tokens = [{"text": "a", "logprob": value, "top": []} for value in (-0.01, -0.3, -0.8, -2, -5)]
    fake.answers = [
        [
            {"type": "thinking", "text": "hm"},
            *text(words),
            {"type": "text", "text": "", "tokens": tokens},
            finish(reason="length"),
        ],
        [*call(0, "weather", {"city": "Paris"}), {"error": "it broke"}],
    ]

    def audit(where: str, *variants: str) -> None:
        for variant in variants:
            page.set_viewport_size({"width": 320 if variant == "phone" else 1100, "height": 700})
            page.emulate_media(color_scheme="dark" if variant == "dark" else "light", reduced_motion="reduce")
            found = axe.run(page).response["violations"]
            said = [(one["id"], node["html"], node["any"][:1]) for one in found for node in one["nodes"]]
            assert not said, (where, variant, said)

    audit("welcome", "light")
    tab.ask("Hi").locator(".hljs-comment").wait_for()
    page.locator(".thinking summary").click()
    tab.ask("Call")
    audit("conversation", "dark", "phone", "light")
    page.locator(".message.assistant").first.get_by_role("button", name="Probabilities").click()
    audit("probabilities", "dark", "light")
    tab.button("Models").click()
    tab.button("Unload island:latest").wait_for()
    audit("models", "dark")
    page.keyboard.press("Escape")
    tab.button("Settings of this conversation").click()
    audit("settings", "dark", "phone")
    page.keyboard.press("Escape")
    tab.button("Conversations").click()
    audit("list", "phone")


def test_all_of_a_conversation_is_printed(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.answers = [[*text("```\n" + "line\n" * 90 + "wide " * 90 + "\n```\n\nThe end."), finish()]]
    page.locator("#theme").click(click_count=2)
    tab.ask("Long")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    for selector in ("#scroll", ".code pre"):
        clipped = "e => [e.scrollWidth - e.clientWidth > 1, e.scrollHeight - e.clientHeight > 1]"
        assert page.locator(selector).evaluate(clipped) == [False, False], selector
    seen = [one for one in page.locator("button, select, textarea, .stats").all() if one.is_visible()]
    assert seen == []
    assert tab.said("The end.").is_visible()
    assert page.pdf().count(b"/Type /Page\n") > 1  # sheets
    page.emulate_media(media="screen")


def test_a_person_with_colours_of_their_own_sees_what_colours_tell(tab: Tab, fake: Fake) -> None:
    page = tab.page
    tokens = [{"text": "a", "logprob": value, "top": []} for value in (-0.01, -5)]
    fake.answers = [[{"type": "text", "text": "aa", "tokens": tokens}, finish()]]
    answer = tab.ask("Hi")
    answer.get_by_role("button", name="Probabilities").click()
    page.emulate_media(forced_colors="active")
    line = "e => getComputedStyle(e).textDecorationLine"
    assert [answer.locator(f".tokens .sure-{n}").evaluate(line) for n in (0, 4)] == ["none", "underline"]
    assert page.locator(".bubble").evaluate("e => getComputedStyle(e).borderTopStyle") == "solid"
    chosen = page.locator("#chats li:has([aria-current])")
    assert chosen.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.emulate_media(forced_colors="none")


def test_a_screen_reader_finds_its_way(tab: Tab) -> None:
    tab.ask("Hi")
    tree = tab.page.locator("body").aria_snapshot()
    for line in (
        '- complementary "Conversations"',
        '- button "New conversation"',
        '- navigation "Earlier conversations"',
        "- main:",
        '- heading "Hi" [level=1]',
        '- combobox "Model"',
        '- log "Messages"',
        '- article "You"',
        '- article "Answer of island:latest"',
        '- form "New message"',
        '- textbox "Message"',
        '- button "Send"',
    ):
        assert line in tree, tree
    expect(tab.page.locator("#log")).to_have_attribute("aria-live", "off")
    expect(tab.page.locator("#announcer")).to_have_text("Hello there.")


def test_the_focus_stays_where_it_was_when_something_is_drawn_anew(tab: Tab, fake: Fake) -> None:
    page = tab.page

    def pressed(button: Any, key: str = "Enter") -> None:
        button.focus()
        page.keyboard.press(key)

    tab.ask("One")
    tab.button("New conversation").click()
    fake.answers = [[*text("Well "), {"type": "hold"}, *text("then."), finish()], HELLO]
    tab.say("Two")
    tab.said("Well").wait_for()
    chat = page.locator(".chat", has_text="One")
    drawn = chat.element_handle()
    chat.focus()
    fake.let_go(1)
    tab.answered()
    tab.until("one => !one.isConnected", drawn)
    expect(chat).to_be_focused()
    pressed(tab.button("Regenerate"))
    tab.said("Hello there.").wait_for()
    tab.answered()
    expect(tab.button("Send")).to_be_focused()
    pressed(tab.button("Earlier version"))
    tab.said("Well then.").wait_for()
    expect(tab.button("Later version")).to_be_focused()
    pressed(tab.button("Rename Two"))
    page.locator("#ask-text").fill("Three")
    page.keyboard.press("Enter")
    tab.button("Rename Three").wait_for()
    expect(tab.button("Rename Three")).to_be_focused()
    pressed(tab.button("Delete One"))
    page.locator("#ask-ok").press("Enter")
    tab.button("Delete One").wait_for(state="detached")
    expect(tab.button("Delete Three")).to_be_focused()
    pressed(tab.button("Models"))
    pressed(tab.button("Unload island:latest"))
    expect(tab.button("Load island:latest")).to_be_focused()


def test_a_phone_that_is_turned_leaves_the_focus_alone(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 400, "height": 700})
    tab.page.locator("#sidebar").wait_for(state="hidden")
    expect(tab.page.locator("#message")).to_be_focused()


def test_a_text_is_read_from_the_side_where_its_first_letter_begins(tab: Tab, fake: Fake) -> None:
    words = "مرحبا `code`!\n\n- واحد\n\n| عمود | b |\n|--|--|\n| 1 | 2 |\n\nAnd English.\n\n```\nx = 1\n```"
    fake.answers = [[*text(words), finish()]]
    answer = tab.ask("שלום, you")
    way = "e => getComputedStyle(e).direction"
    for selector in ("p >> nth=0", ".prose li", "table"):
        assert answer.locator(selector).evaluate(way) == "rtl", selector
    assert answer.locator("pre").evaluate(way) == "ltr"
    assert answer.locator("p", has_text="English").evaluate(way) == "ltr"
    assert answer.locator("p code").evaluate(way) == "ltr"
    for selector in (".asked", "#title", ".chat"):
        assert tab.page.locator(selector).evaluate(way) == "rtl", selector
    for typed, direction in (("1. שלום", "rtl"), ("a שלום", "ltr"), ("", "ltr")):
        tab.page.locator("#message").fill(typed)
        assert tab.page.locator("#message").evaluate(way) == direction
