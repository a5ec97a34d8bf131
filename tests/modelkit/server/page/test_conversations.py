"""Conversations are kept, found and changed, and every other way that one took is a branch."""

import re
from typing import Any
from urllib.parse import urlsplit

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import HELLO, STATS, Event, Fake, finish, text

pytestmark = NEEDS_BROWSER
HOLD: Event = {"type": "hold"}
NOTHING_LEFT = "Object.keys(localStorage).every((key) => !key.includes('left'))"


def test_stop_continue_and_regenerate(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()], [*text(" three"), finish()], HELLO]
    tab.say("Count")
    tab.said("One two").wait_for()
    tab.page.keyboard.press("Escape")
    answer = tab.answered()
    expect(answer.locator(".stats")).to_contain_text("stopped")
    fake.wait_for_leaving(1)
    answer.get_by_role("button", name="Continue").click()
    tab.said("One two three").wait_for()
    assert fake.asked[1]["continue_final"] is True
    assert fake.asked[1]["messages"][-1] == {"role": "assistant", "content": "One two"}
    tab.answered().get_by_role("button", name="Regenerate").click()
    tab.said("Hello there.").wait_for()
    assert len(fake.asked[2]["messages"]) == 1
    expect(tab.answered().locator(".branches")).to_have_text(re.compile("^2 of 2"))


def test_an_answer_whose_page_was_left_says_so_and_is_asked_for_again(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()], HELLO]
    tab.say("Count")
    tab.said("One two").wait_for()
    tab.page.reload()
    tab.page.get_by_text("The page was left in the middle of this answer.").wait_for()
    fake.wait_for_leaving(1)
    tab.page.get_by_role("button", name="Try again").click()
    tab.said("Hello there.").wait_for()
    tab.answered()
    expect(tab.page.get_by_text("The page was left")).to_have_count(0)


def test_what_had_come_when_the_page_was_left_is_kept_and_gone_on_with(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()], [*text(" three"), finish()]]
    tab.say("Count")
    tab.said("One two").wait_for()
    tab.page.reload()
    tab.said("One two").wait_for()
    tab.page.get_by_text("The page was left in the middle of this answer.").wait_for()
    expect(tab.page.locator(".message.assistant .stats")).to_contain_text("stopped")
    tab.page.get_by_role("button", name="Continue").click()
    tab.said("One two three").wait_for()
    assert fake.asked[1]["continue_final"] is True
    assert fake.asked[1]["messages"][-1] == {"role": "assistant", "content": "One two"}
    tab.answered()
    expect(tab.page.get_by_text("The page was left")).to_have_count(0)
    tab.reload()
    tab.said("One two three").wait_for()
    tab.until(NOTHING_LEFT)


def test_what_was_thought_before_the_page_was_left_is_no_part_of_the_next_try(tab: Tab, fake: Fake) -> None:
    thought: Event = {"type": "thinking", "text": "Let me count"}
    read: Event = {"type": "progress", "read_tokens": 3, "total_tokens": 9}
    fake.answers = [[thought, HOLD, finish()], [read, HOLD, {"type": "thinking", "text": "Anew"}, *HELLO]]
    tab.say("Count")
    tab.page.locator(".thinking").wait_for()
    tab.page.reload()
    tab.page.get_by_role("button", name="Try again").click()
    tab.page.get_by_text("3 of 9 tokens").wait_for()
    expect(tab.page.locator(".thinking")).to_have_count(0)
    fake.let_go(2)
    tab.said("Hello there.").wait_for()
    answer = tab.answered()
    expect(answer.locator(".branches")).to_have_count(0)
    answer.locator(".thinking summary").click()
    expect(answer.locator(".thinking .prose")).to_have_text("Anew")


def test_a_page_opens_whatever_lies_in_the_browsers_storage(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.page.evaluate("""() => {
        const texts = ["{", "null", "7", "[]", '{"chat": {}, "id": []}'];
        for (const [at, text] of texts.entries()) localStorage.setItem(`modelkit.left.${at}`, text);
        for (const name of ["settings", "model", "theme"]) localStorage.setItem(`modelkit.${name}`, "{");
    }""")
    tab.reload()
    tab.until(NOTHING_LEFT)
    tab.ask("Hi")
    tab.said("Hello there.").wait_for()


def test_a_page_works_where_the_browser_allows_no_local_storage(tab: Tab, fake: Fake, context: Any) -> None:
    fake.answers = [HELLO]
    other = Tab(context.new_page(), tab.url)
    other.page.add_init_script("""Object.defineProperty(window, "localStorage", {
        get() { throw new DOMException("no storage", "SecurityError"); },
    });""")
    other.open().ask("Hi")
    other.said("Hello there.").wait_for()
    other.button("Colours: Auto").click()
    other.button("Colours: Light").wait_for()
    expect(other.page.locator("html")).to_have_attribute("data-theme", "light")
    assert other.noise == []


def test_what_had_come_when_the_tab_was_closed_is_in_the_next_one(tab: Tab, fake: Fake, context: Any) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()], HELLO]
    tab.say("Count")
    tab.said("One two").wait_for()
    url = tab.page.url
    tab.page.close(run_before_unload=True)
    fake.wait_for_leaving(1)
    tab.page = context.new_page()
    tab.page.goto(url)
    tab.said("One two").wait_for()
    tab.page.get_by_role("button", name="Try again").click()
    tab.said("Hello there.").wait_for()
    expect(tab.answered().locator(".branches")).to_have_text(re.compile("^2 of 2"))


def test_an_edit_makes_a_branch_that_says_what_was_reused(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO, [*text("Second answer"), finish(stats={**STATS, "cached_tokens": 500})]]
    tab.ask("First question")
    asked = tab.page.locator(".message.user")
    asked.hover()
    asked.get_by_role("button", name="Edit").click()
    box = tab.page.get_by_label("Edit the message")
    expect(box).to_have_value("First question")
    box.fill("Another question")
    box.press("Enter")
    tab.said("Second answer").wait_for()
    expect(asked.locator(".branches")).to_contain_text("reused 500 of 512 tokens")
    asked.get_by_role("button", name="Earlier version").click()
    tab.said("First question").wait_for()
    tab.said("Hello there.").wait_for()
    tab.open(f"/#{urlsplit(tab.page.url).fragment}")
    tab.page.reload()
    tab.page.get_by_text("First question").first.wait_for()
    asked.get_by_role("button", name="Later version").click()
    tab.said("Second answer").wait_for()


def test_what_is_typed_into_an_edit_stays_while_an_answer_comes_and_ends(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO, [*text("One two"), HOLD, finish()], HELLO]
    tab.ask("First question")
    tab.say("Count")
    tab.said("One two").wait_for()
    asked = tab.page.locator(".message.user").first
    asked.hover()
    asked.get_by_role("button", name="Edit").click()
    box = tab.page.get_by_label("Edit the message")
    box.fill("Another")
    box.press("Enter")  # not while an answer comes
    fake.let_go(1)
    tab.answered()
    tab.page.keyboard.type(" question")
    tab.page.keyboard.press("Enter")
    tab.said("Another question").wait_for()
    tab.said("Hello there.").wait_for()
    assert fake.asked[2]["messages"] == [{"role": "user", "content": "Another question"}]


def test_conversations_are_kept_found_renamed_moved_and_deleted(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.answers = [[*text("About <tigers> & ants"), finish()]]
    tab.ask("Animals?")
    tab.button("New conversation").click()
    fake.answers = [HELLO]
    tab.ask("Plants?")
    tab.reload()
    expect(page.locator(".asked")).to_have_text("Plants?")
    page.keyboard.press("Control+k")
    page.keyboard.type("tigers")
    page.locator("#chats li").filter(has_text="Plants?").wait_for(state="detached")
    page.locator(".chat").click()
    page.locator("#title").filter(has_text="Animals?").wait_for()  # the message box has the focus by then
    page.locator("#search").fill("")
    page.locator("#chats li").filter(has_text="Plants?").wait_for()
    tab.button("More about this conversation").click()
    tab.button("Rename").click()
    page.locator("#ask-text").fill("Beasts")
    page.keyboard.press("Enter")
    page.locator("#title").filter(has_text="Beasts").wait_for()
    tab.button("More about this conversation").click()
    with page.expect_download() as markdown:
        tab.button("Export as Markdown").click()
    written = markdown.value.path().read_text(encoding="utf-8")
    assert written.startswith("# Beasts\n\n## You\n\nAnimals?\n\n## island:latest\n\nAbout <tigers> & ants")
    with page.expect_download() as whole:
        tab.button("Export all").click()
    tab.button("More about this conversation").click()
    tab.button("Delete").click()
    page.locator("#ask-ok").click()
    page.locator("#chats li").filter(has_text="Beasts").wait_for(state="detached")
    page.locator("#import-file").set_input_files(whole.value.path())
    page.locator("#chats li").filter(has_text="Beasts").wait_for()
    page.locator("#chats li").nth(2).wait_for()  # Plants? once more
    page.locator("#import-file").set_input_files({"name": "x.json", "mimeType": "a/b", "buffer": b"{]"})
    page.get_by_text("x.json: it holds no JSON").wait_for()


def test_a_conversation_that_opens_late_leaves_the_focus_where_one_went(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("Animals?")
    tab.button("New conversation").click()
    # In one task of the page: the conversation is read from the database behind it.
    tab.page.evaluate("document.querySelector('.chat').click(); document.querySelector('#search').focus()")
    expect(tab.page.locator("#title")).to_have_text("Animals?")
    expect(tab.page.locator("#search")).to_be_focused()
    tab.button("New conversation").click()
    expect(tab.page.locator("#message")).to_be_focused()


def test_two_tabs_make_two_branches_and_lose_nothing(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("Start")
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    fake.answers = [[*text("In the other"), finish()]]
    other.ask("Other tab")
    tab.said("In the other").wait_for()
    tab.answered()
    fake.answers = [[*text("In the first"), finish()]]
    tab.ask("First tab")
    other.said("In the first").wait_for()
    assert [one["content"] for one in fake.asked[-1]["messages"]][::2] == ["Start", "Other tab", "First tab"]
    assert other.noise == []


def test_another_tab_says_who_writes_and_shows_how_far_it_is(tab: Tab, fake: Fake) -> None:
    writes = "Another tab is writing this answer…"
    fake.answers = [[*text("One two"), HOLD, *text(" three"), HOLD, finish()]]
    tab.say("Count")
    tab.said("One two").wait_for()
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    other.page.get_by_text(writes).wait_for()
    other.say("And I")
    other.page.locator("#banner").filter(has_text="Another tab is writing the answer before this").wait_for()
    expect(other.page.locator("#message")).to_have_value("And I")
    tab.page.evaluate(
        "() => { const now = performance.now(); performance.now = () => now + 2000; }"
    )  # an answer is kept once a second
    asked = other.page.locator(".asked").element_handle()
    fake.let_go(1)
    other.said("One two three").wait_for()
    assert asked.evaluate("(one) => one.isConnected")  # what has not grown is not drawn anew
    fake.let_go(1)
    other.answered()
    expect(other.page.get_by_text(writes)).to_have_count(0)
    assert other.noise == []


def test_an_answer_whose_tab_has_crashed_was_left(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()]]
    tab.say("Count")
    tab.said("One two").wait_for()
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    other.page.get_by_text("Another tab is writing this answer…").wait_for()
    other.page.evaluate("""async () => {
        for (const { name } of (await navigator.locks.query()).held)
            await navigator.locks.request(name, { steal: true }, () => {});
    }""")
    other.page.get_by_text("The page was left in the middle of this answer.").wait_for()
    other.page.get_by_role("button", name="Try again").wait_for()
    fake.let_go(1)


def test_what_had_come_when_a_tab_was_closed_is_in_another_at_once(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()]]
    tab.say("Count")
    tab.said("One two").wait_for()
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    other.page.get_by_text("Another tab is writing this answer…").wait_for()
    tab.page.close(run_before_unload=True)
    other.page.get_by_text("The page was left in the middle of this answer.").wait_for()
    other.said("One two").wait_for()
    tab.page = other.page
    assert other.noise == []


def test_what_the_browser_has_no_room_for_is_said_and_answered(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("Hi")
    tab.page.evaluate("""() => {
        IDBObjectStore.prototype.put = function () {
            this.transaction.abort();
            throw new DOMException("full", "QuotaExceededError");
        };
    }""")
    tab.say("Hi again")
    expect(tab.page.locator("#banner")).to_contain_text("no more room for conversations")
    expect(tab.said("Hello there.")).to_have_count(2)


def test_a_long_text_is_not_measured_at_each_key(tab: Tab) -> None:
    """Two layouts of 300 KB took longer than the key itself."""
    box = tab.page.locator("#message")
    box.evaluate("""(box) => {
        globalThis.measured = 0;
        const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
        Object.defineProperty(box, "scrollHeight", { get() { measured += 1; return get.call(box); } });
    }""")
    box.evaluate("(box) => (box.value = 'words '.repeat(5000))")
    box.focus()
    tab.page.keyboard.type("abc")
    expect(box).to_have_value("words " * 5000 + "abc")
    assert tab.page.evaluate("measured") == 0
    assert box.bounding_box()["height"] > 200
    box.fill("a\nb")
    tab.until("measured > 0")
    assert 40 < box.bounding_box()["height"] < 100


def test_a_conversation_keeps_its_model_while_the_list_of_models_comes(tab: Tab, fake: Fake) -> None:
    own = "a-model-with-a-rather-long-name:70b"
    fake.answers = [HELLO]
    tab.page.locator("#model").select_option(own)
    tab.ask("Start")
    tab.page.evaluate(
        "localStorage.setItem('modelkit.model', JSON.stringify('island:latest'))"
    )  # another tab's
    fake.lists.clear()
    tab.page.reload()
    tab.said("Hello there.").wait_for()
    tab.ask("More")
    assert fake.asked[-1]["model"] == own
    fake.lists.set()
    tab.ready()
    expect(tab.page.locator("#model")).to_have_value(own)


def test_settings_of_two_tabs_are_one_conversations(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("Start")
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    set_to(tab, "Temperature", "0.25")
    expect(other.page.get_by_label("Temperature")).to_have_value("0.25")
    set_to(other, "Seed", "5")
    other.ask("More")
    assert fake.asked[-1]["parameters"] == {"temperature": 0.25, "seed": 5}
    assert other.noise == []


def set_to(tab: Tab, label: str, value: str) -> None:
    tab.button("Settings of this conversation").click()
    tab.page.get_by_label(label).fill(value)
    tab.page.keyboard.press("Escape")


def test_a_conversation_is_renamed_and_deleted_anywhere_while_its_answer_comes(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, *text(" three"), finish()]]
    row = tab.page.locator("#chats li")
    tab.say("Count")
    tab.said("One two").wait_for()
    other = Tab(tab.page.context.new_page(), tab.url).open()
    tab.button("New conversation").click()
    rename(tab, "Count", "Numbers")
    fake.let_go(1)
    row.filter(has_text="Numbers").get_by_role("button", name="Numbers", exact=True).click()
    tab.said("One two three").wait_for()
    tab.answered()
    tab.page.locator("#title").filter(has_text="Numbers").wait_for()
    tab.say("More")
    tab.said("One two").nth(1).wait_for()
    rename(other, "Numbers", "Figures")
    tab.page.locator("#title").filter(has_text="Figures").wait_for()
    fake.let_go(1)
    tab.answered()
    tab.page.reload()
    row.filter(has_text="Figures").wait_for()
    tab.say("And more")
    tab.said("One two").nth(2).wait_for()
    other.page.locator("#chats li").filter(has_text="Figures").hover()
    other.page.get_by_role("button", name="Delete Figures").click()
    other.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    fake.wait_for_leaving(1)
    tab.page.get_by_text("No conversations yet").wait_for()
    tab.page.reload()
    tab.page.get_by_text("No conversations yet").wait_for()
    assert other.noise == []


def rename(tab: Tab, old: str, new: str) -> None:
    tab.page.locator("#chats li").filter(has_text=old).hover()
    tab.page.get_by_role("button", name=f"Rename {old}").click()
    tab.page.get_by_label("Title").fill(new)
    tab.page.get_by_role("button", name="Rename", exact=True).click()


def test_what_is_typed_and_not_sent_stays_with_its_conversation(tab: Tab, fake: Fake) -> None:
    page, box = tab.page, tab.page.locator("#message")
    tab.ask("One")
    box.fill("about one")
    tab.button("New conversation").click()
    page.locator("#welcome").wait_for()
    expect(box).to_have_value("")
    box.fill("a new one")
    tab.reload()
    expect(box).to_have_value("a new one")
    page.locator(".chat").click()
    tab.said("One").wait_for()
    expect(box).to_have_value("about one")
    tab.reload()
    expect(box).to_have_value("about one")
    tab.ask("Two")
    tab.reload()
    expect(box).to_have_value("")
    box.fill("about one, again")
    tab.button("Delete One").press("Enter")
    page.locator("#ask-ok").click()
    page.locator("#welcome").wait_for()
    expect(box).to_have_value("a new one")
    tab.reload()
    expect(box).to_have_value("a new one")
    assert "about one" not in page.evaluate("sessionStorage['modelkit.drafts']")


def test_messages_that_stay_as_they_are_are_not_drawn_anew(tab: Tab, fake: Fake) -> None:
    """What is selected in them would be lost, and a long conversation would stand still at each end."""
    tab.ask("One")
    fake.answers = [[*text("Well "), HOLD, *text("then."), finish()]]
    tab.say("Two")
    tab.said("Well").wait_for()
    first = tab.said("Hello there.").element_handle()
    first.evaluate("e => getSelection().selectAllChildren(e)")
    fake.let_go(1)
    tab.answered()
    assert first.evaluate("e => e.isConnected && getSelection().toString()") == "Hello there."
