"""How an answer is shown while it comes, once it is whole, and where it fails."""

import re

from tests.support.browser import NEEDS_BROWSER, Tab
from tests.support.fake_chat import HELLO, STATS, Event, Fake, finish, text

pytestmark = NEEDS_BROWSER
HOLD: Event = {"type": "hold"}


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


def test_passes_are_told_where_something_was_guessed(tab: Tab, fake: Fake) -> None:
    """Without guesses a pass is a token, and the last ones of an answer are for nothing."""
    plain = {**STATS, "generated_tokens": 10, "rounds": 11, "drafted_tokens": 0, "accepted_tokens": 0}
    fake.answers = [[*text("Hello."), finish(stats=plain)]]
    said = tab.ask("Hi").locator(".stats").inner_text()
    assert "10 tokens" in said
    assert "a pass" not in said
    assert "drafts" not in said


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


def test_a_line_of_a_megabyte_is_shown_as_it_is(tab: Tab, fake: Fake) -> None:
    line = "*[`$<b>" * 150_000
    fake.answers = [[*text(line, 100_000), finish()]]
    answer = tab.ask("Hi")
    assert answer.locator(".plain").evaluate("e => e.textContent.length") == len(line)


def test_what_takes_long_to_draw_is_drawn_seldom(tab: Tab, fake: Fake) -> None:
    """Whoever types while an answer comes must not wait for each of its frames."""
    fake.answers, fake.pause_s = [[*text("x" * 60, 1), finish()]], 0.02
    drawn = """async () => {
        const { Answering } = await import("/page/js/answering.js");
        const messages = [{ role: "user", content: "Hi" }];
        const request = { model: "island:latest", messages, parameters: {} };
        const conversation = { tree: { before: () => [] }, request: () => request, keep: async () => {} };
        let count = 0;
        const slow = () => {
            count += 1;
            for (const end = performance.now() + 50; performance.now() < end; );
        };
        const answering = new Answering(conversation, { id: "m", content: "" }, slow);
        answering.begin(false);
        await answering.run();
        return count;
    }"""
    assert 2 <= tab.page.evaluate(drawn) <= 11


def test_many_formulas_are_drawn_in_pieces_and_a_paragraph_has_so_many(tab: Tab, fake: Fake) -> None:
    lines = "\n\n".join(f"$a_{{{number}}}$" for number in range(250))
    paragraph = " ".join(f"$b_{{{number}}}$" for number in range(700))
    words = f"{lines}\n\n{paragraph}"
    fake.answers = [[*text(words, 2_000), finish()]]
    answer = tab.ask("Hi")
    answer.locator(".katex").nth(549).wait_for()
    last = answer.locator("p").last
    assert last.locator(".katex").count() == 300
    assert last.inner_text().endswith("b_{698} b_{699}")
    at_once = """async (words) => {
        const { showMarkdown } = await import("/page/js/markdown.js");
        const box = document.body.appendChild(document.createElement("div"));
        showMarkdown(box, words);
        return box.querySelectorAll(".katex").length;
    }"""
    assert tab.page.evaluate(at_once, words) == 100


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


def test_what_fails_is_said_and_can_be_tried_again(tab: Tab, fake: Fake) -> None:
    fake.pause_s = 0.02  # what is still on its way when a connection breaks is lost
    failures: list[tuple[list[Event], str]] = [
        ([*text("Half"), HOLD, {"error": {"message": "it broke\nSay less"}}], "It broke. Say less."),
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
    assert "All places are taken. Try again in 7 seconds." in answer.get_by_role("alert").inner_text()
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


def test_what_looks_like_the_address_of_a_link_and_is_none_is_shown(tab: Tab, fake: Fake) -> None:
    words = "[Alice]: Hello\n\nSo it was[^1].\n\n[^1]: Indeed.\n\nA [place].\n\n[place]: https://a.b/c"
    fake.answers = [[*text(words), finish()]]
    answer = tab.ask("Hi")
    assert answer.locator(".prose").inner_text().split("\n\n") == [
        "[Alice]: Hello",
        "So it was[^1].",
        "[^1]: Indeed.",
        "A place.",
    ]
    assert answer.get_by_role("link").get_attribute("href") == "https://a.b/c"
