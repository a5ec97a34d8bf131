"""How an answer is shown while it comes, once it is whole, and where it fails."""

import re

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import HELLO, STATS, Event, Fake, finish, text

pytestmark = NEEDS_BROWSER
HOLD: Event = {"type": "hold"}


def test_an_answer_comes_with_its_form_and_its_numbers(tab: Tab, fake: Fake) -> None:
    words = "A **bold** word.\n\n```python\nprint(1)  # one\n```\n\n| a |\n|--|\n| 1 |\n\n"
    words += "H<sub>2</sub>O, $e^{i\\pi}$ and $5 or $6"
    thought = [{"type": "thinking", "text": one} for one in ("I ", "think")]
    fake.answers = [[*thought, *text(words, 3), finish(cut="num_predict", reason="length")]]
    answer = tab.ask("Hi")
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer.locator(".hljs-comment")).to_have_text("# one")
    expect(answer.locator(".katex")).to_have_count(1)
    expect(answer.locator(".prose").last).to_contain_text("$5 or $6")
    expect(answer.locator("td")).to_have_text("1")
    expect(answer.locator("sub")).to_have_text("2")
    expect(answer.locator(".thinking summary")).to_have_text(re.compile(r"^Thought for \d"))
    expect(answer.locator(".thinking .prose")).to_be_hidden()
    stats = answer.locator(".stats")
    for part in ("20.0 tok/s", "41 tokens", "prompt 512", "reused 480 of 512 tokens", "2.50 tokens a pass"):
        expect(stats).to_contain_text(part)
    expect(stats).to_contain_text("drafts 24 of 48 accepted")
    expect(stats).to_contain_text("num_predict reached")
    context = tab.page.locator("#context")
    expect(context).to_have_attribute("aria-valuetext", "553 of 2,048 tokens of context")
    expect(tab.page.locator("#memory-text")).to_have_text("12.4 MB in memory")
    assert fake.asked == [
        {"model": "island:latest", "messages": [{"role": "user", "content": "Hi"}], "parameters": {}}
    ]


def test_passes_are_told_where_something_was_guessed(tab: Tab, fake: Fake) -> None:
    """Without guesses a pass is a token, and the last ones of an answer are for nothing."""
    plain = {**STATS, "generated_tokens": 10, "rounds": 11, "drafted_tokens": 0, "accepted_tokens": 0}
    fake.answers = [[*text("Hello."), finish(stats=plain)]]
    stats = tab.ask("Hi").locator(".stats")
    expect(stats).to_contain_text("10 tokens")
    expect(stats).not_to_contain_text("a pass")
    expect(stats).not_to_contain_text("drafts")


def test_only_the_last_block_is_drawn_anew(tab: Tab, fake: Fake) -> None:
    reading: Event = {"type": "progress", "read_tokens": 1024, "total_tokens": 4096}
    fake.answers = [
        [reading, HOLD, *text("First.\n\nSecond"), HOLD, *text(" goes on.\n\n- third"), HOLD, finish()]
    ]
    tab.say("Hi")
    tab.said("Reading the prompt… 1,024 of 4,096 tokens").wait_for()
    fake.let_go(1)
    tab.said("Second").wait_for()
    expect(tab.page.locator(".message.assistant")).to_have_attribute("aria-busy", "true")
    first = tab.page.locator(".prose p").first.element_handle()
    fake.let_go(1)
    expect(tab.page.locator(".prose li")).to_have_text("third")
    assert first.evaluate("e => e.isConnected")
    assert tab.page.locator(".prose").inner_text() == "First.\n\nSecond goes on.\n\nthird"
    fake.let_go(1)
    tab.answered()


def test_a_line_of_a_megabyte_is_shown_as_it_is(tab: Tab, fake: Fake) -> None:
    line = "*[`$<b>" * 150_000
    fake.answers = [[*text(line, 100_000), finish()]]
    answer = tab.ask("Hi")
    tab.until("length => document.querySelector('.plain')?.textContent.length === length", len(line))
    assert answer.locator(".plain").count() == 1


def test_what_takes_long_to_draw_is_drawn_seldom(tab: Tab, fake: Fake) -> None:
    """Whoever types while an answer comes must not wait for each of its frames."""
    fake.answers, fake.pause_s = [[*text("x" * 60, 1), finish()]], 0.02
    drawn = """async () => {
        const { Answering } = await import("/page/js/answering.js");
        const messages = [{ role: "user", content: "Hi" }];
        const request = { model: "island:latest", messages, parameters: {} };
        const conversation = { tree: { before: () => [] }, request: () => request, keep: async () => {} };
        let drawings = 0;
        const slow = () => {
            drawings += 1;
            for (const end = performance.now() + 50; performance.now() < end; );
        };
        const answering = new Answering(conversation, { id: "m", content: "" }, slow);
        const begun = performance.now();
        answering.begin(false);
        await answering.run();
        return [drawings, performance.now() - begun];
    }"""
    drawings, took_ms = tab.page.evaluate(drawn)
    # One in 200 ms, beside the last one and those before it is known how long one takes.
    assert 1 <= drawings <= 4 + took_ms / 200


def test_many_formulas_are_drawn_in_pieces_and_a_paragraph_has_so_many(tab: Tab, fake: Fake) -> None:
    lines = "\n\n".join(f"$a_{{{number}}}$" for number in range(250))
    paragraph = " ".join(f"$b_{{{number}}}$" for number in range(700))
    words = f"{lines}\n\n{paragraph}\n\n$c$"
    fake.answers = [[*text(words, 2_000), finish()]]
    answer = tab.ask("Hi")
    answer.locator("p").last.locator(".katex").wait_for()  # the last one that is drawn
    assert answer.locator(".katex").count() == 551
    long = answer.locator("p").nth(250)
    assert long.locator(".katex").count() == 300
    expect(long).to_have_text(re.compile(r"\$b_\{698\}\$ \$b_\{699\}\$$|b_\{698\} b_\{699\}$"))
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
    levels = ["token sure-0", "token sure-1", "token sure-4"]
    expect(page.locator(".tokens .token")).to_have_class(levels)
    page.locator(".tokens").press("End")
    expect(page.locator(".token-detail")).to_contain_text("no 5.0 %")
    expect(page.locator(".token-detail")).to_contain_text("maybe 60.7 %")


def test_what_fails_is_said_and_can_be_tried_again(tab: Tab, fake: Fake) -> None:
    tab.allow("503|ERR_INCOMPLETE_CHUNKED")
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
        expect(answer.get_by_role("alert")).to_contain_text(said)
        expect(answer.locator(".prose")).to_have_text("Half")
        answer.get_by_role("button", name="Try again").click()
        tab.said("Hello there.").nth(place).wait_for()
        tab.answered()
    fake.status = 503
    alert = tab.ask("Hi").get_by_role("alert")
    expect(alert).to_contain_text("All places are taken. Try again in 7 seconds.")


def test_a_server_that_is_away_is_said_and_found_again(tab: Tab, fake: Fake) -> None:
    tab.allow("ERR_INTERNET_DISCONNECTED")
    tab.ask("Hi")
    tab.page.context.set_offline(True)
    tab.ask("Are you there?").get_by_text("cannot be reached").wait_for()
    tab.page.context.set_offline(False)
    tab.button("Try again").click()
    tab.said("Hello there.").nth(1).wait_for()
    expect(tab.answered().locator(".branches")).to_have_count(0)


def test_what_looks_like_the_address_of_a_link_and_is_none_is_shown(tab: Tab, fake: Fake) -> None:
    words = "[Alice]: Hello\n\nSo it was[^1].\n\n[^1]: Indeed.\n\nA [place].\n\n[place]: https://a.b/c"
    fake.answers = [[*text(words), finish()]]
    answer = tab.ask("Hi")
    paragraphs = ["[Alice]: Hello", "So it was[^1].", "[^1]: Indeed.", "A place."]
    expect(answer.locator(".prose > *")).to_have_text(paragraphs)
    expect(answer.get_by_role("link")).to_have_attribute("href", "https://a.b/c")
