"""What a model or a file says does nothing in the page, and a key stays where it belongs."""

import json
import re

import pytest

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import Fake, finish, text

pytestmark = NEEDS_BROWSER
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


@pytest.mark.parametrize(
    "written",
    [
        r"$\frac{a$ and $\def\a{\a\a}\a$",
        r"$\pmb{x}$ $\fcolorbox{red}{blue}{w}$",
        f"${'x^{' * 150}y{'}' * 150}$",
        f"$${'{' * 2400}x{'}' * 2400}$$",
        r"$$\def\a{" + "x" * 4000 + "}" + r"\a" * 300 + "$$",
        ">" * 5000 + " so",
        ">" * 400 + " so",
        "".join("  " * level + "- so\n" for level in range(190)),
    ],
    ids=["broken", "decorated", "tower", "braces", "bomb", "quotes", "fewer quotes", "lists"],
)
def test_what_cannot_be_drawn_is_shown_as_it_is(written: str, tab: Tab, fake: Fake) -> None:
    """Each of these has ended the tab, the answer or the quiet of the console, and again at every reload."""
    fake.answers = [[*text(written, 500), *text("\n\nAnd **then**."), finish()], [*text("Fine."), finish()]]
    answer = tab.ask("Hi")
    answer.get_by_text("then").wait_for()
    tab.reload()
    tab.said("then").wait_for()
    expect(tab.page.locator(".katex-error")).to_have_count(0)
    tab.say("Again")
    tab.said("Fine.").wait_for()


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
    expect(tab.page.locator(".call-name")).to_have_text(calls[0]["name"])
    assert tab.page.evaluate("window.pwned") is None


def test_a_key_is_asked_for_once_and_kept_for_the_tab(tab: Tab, fake: Fake) -> None:
    page = tab.page
    tab.allow("401")
    fake.key = "open sesame"
    page.reload()
    page.get_by_label("API key").fill("wrong")
    tab.button("Go on").click()
    page.get_by_text("The server refused that key").wait_for()
    page.get_by_label("API key").fill(fake.key)
    page.keyboard.press("Enter")
    tab.ready().ask("Hi").get_by_text("there").wait_for()
    tab.reload().ask("Again")
    assert page.evaluate("JSON.stringify(localStorage)").find(fake.key) < 0
    assert page.evaluate("document.cookie") == ""
