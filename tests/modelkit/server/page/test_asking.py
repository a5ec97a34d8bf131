"""What goes with a message: tools and their results, forms, parameters, files, the model that is asked."""

import json
import re

from tests.support.browser import NEEDS_BROWSER, Tab, expect
from tests.support.fake_chat import HELLO, Fake, call, finish, text

pytestmark = NEEDS_BROWSER


def test_tools_are_cards_that_take_results(tab: Tab, fake: Fake) -> None:
    page = tab.page
    tools = '[{"name": "weather", "parameters": {"type": "object"}}, {"name": "time"}]'
    fake.answers = [[*call(0, "weather", {"city": "Paris"}), *call(1, "time", {}), finish()], HELLO]
    tab.button("Settings of this conversation").click()
    page.locator("#tools").fill('[{"name": "weather"')
    expect(page.locator("#tools-note")).to_have_text(re.compile("^Line 1, column"))
    page.locator("#tools").fill(tools)
    expect(page.locator("#tools-note")).to_have_text("The model may call weather, time")
    page.locator("#tool-choice").select_option("weather")
    page.keyboard.press("Escape")
    tab.ask("Weather?")
    assert [one["function"]["name"] for one in fake.asked[0]["tools"]] == ["weather", "time"]
    assert fake.asked[0]["tool_choice"] == "weather"
    expect(page.get_by_label("Arguments of weather")).to_contain_text('"city": "Paris"')
    page.get_by_label("Result of weather").fill("Sunny")
    page.get_by_label("Call of time").get_by_label("error").check()
    tab.button("Send results").click()
    tab.said("Hello there.").wait_for()
    first, second = fake.asked[1]["messages"][-2:]
    assert first == {"role": "tool", "content": "Sunny", "tool_call_id": "call_0", "name": "weather"}
    assert second["content"].startswith("Error: ")
    assert fake.asked[1]["messages"][-3]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
    expect(page.locator(".result.failed")).to_have_count(1)


def test_numbers_of_a_call_stay_as_they_were_written(tab: Tab, fake: Fake) -> None:
    written = {"id": 12345678901234567890, "parts": [1.50, {}], "said": 'a "b": {c}, \u00e9'}
    fake.answers = [[*call(0, "find", written), finish()], HELLO]
    tab.ask("Find it")
    shown = json.dumps(written, indent=2, ensure_ascii=False)
    expect(tab.page.get_by_label("Arguments of find")).to_have_js_property("textContent", shown)
    tab.page.get_by_label("Result of find").fill("Found")
    tab.button("Send result").click()
    tab.said("Hello there.").wait_for()
    sent = fake.asked[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == written


def test_form_parameters_and_thinking_are_sent_once_they_are_sound(tab: Tab, fake: Fake) -> None:
    page = tab.page
    fake.answers = [[*text('{"a": 1}'), finish()], [*text('{"a": '), finish(cut="num_predict")]]
    tab.button("Settings of this conversation").click()
    expect(page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.7")
    expect(page.get_by_label("Top k")).to_have_attribute("placeholder", "40")
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_label("Stop texts").fill("END\n\nSTOP")
    page.get_by_label("System text").fill("Be brief.")
    for wrong, said in [
        ('{"type": "objekt"}', "schema.type"),
        ("[1]", "A schema is"),
        ('{"type": ', "Line 1"),
    ]:
        page.locator("#format").fill(wrong)
        expect(page.locator("#format-note")).to_have_text(re.compile(f"^{said}"))
        expect(page.locator("#format")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Escape")
    tab.ask("Hi")
    tab.said("Schema: Line 1").wait_for()
    assert fake.asked == []
    tab.button("Settings of this conversation").click()
    page.locator("#format").fill('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    page.keyboard.press("Escape")
    page.locator("#think").select_option("high")
    tab.button("Try again").click()
    page.get_by_text("valid JSON").wait_for()
    sent = fake.asked[0]
    assert sent["parameters"] == {"temperature": 0.2, "stop": ["END", "STOP"], "think": "high"}
    assert sent["format"]["properties"] == {"a": {"type": "integer"}}
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    tab.ask("Again")
    page.get_by_text("no whole JSON").wait_for()


def test_models_are_loaded_and_unloaded(tab: Tab, fake: Fake) -> None:
    tab.button("Models").click()
    tab.button("Load a-model-with-a-rather-long-name:70b").click()
    tab.button("Unload a-model-with-a-rather-long-name:70b").wait_for()
    tab.button("Unload island:latest").click()
    tab.button("Load island:latest").wait_for()
    assert fake.loaded == {"a-model-with-a-rather-long-name:70b"}
    said = "12.4 MB in memory · 2,048 tokens of context · drafts by island-draft"
    expect(tab.page.locator(".loaded")).to_contain_text(said)


def test_a_package_that_takes_a_models_name_brings_its_own_parameters(tab: Tab, fake: Fake) -> None:
    temperature = tab.page.get_by_label("Temperature")
    expect(temperature).to_have_attribute("placeholder", "0.7")
    fake.temperature = 0.9
    tab.button("Models").click()
    expect(temperature).to_have_attribute("placeholder", "0.9")


def test_a_model_that_writes_no_text_is_not_asked(tab: Tab) -> None:
    """It is in the list of models, and says what it is for."""
    choice = tab.page.locator("#model option")
    expect(choice).to_have_text(["island", "a-model-with-a-rather-long-name:70b"])
    tab.button("Models").click()
    tab.page.get_by_text("vectors:latest").wait_for()
    tab.page.get_by_text("makes embeddings").wait_for()


def test_a_new_visitor_asks_the_model_that_is_loaded(tab: Tab, fake: Fake) -> None:
    """Where one for embeddings is loaded beside it, too: the first of the list would have to be loaded."""
    own = "a-model-with-a-rather-long-name:70b"
    fake.loaded = {"vectors:latest", own}
    tab.reload()
    expect(tab.page.locator("#model")).to_have_value(own)


def test_text_files_go_with_the_message(tab: Tab, fake: Fake) -> None:
    page = tab.page
    files = [
        {"name": "a.py", "mimeType": "text/x-python", "buffer": b"x = '''```'''"},
        {"name": "b.png", "mimeType": "image/png", "buffer": b"\x89PNG\x00\xff"},
        {"name": "e.txt", "mimeType": "text/plain", "buffer": b"e" * 1_000_001},
    ]
    page.locator("#file").set_input_files(files)
    page.get_by_text("b.png: not a text in UTF-8 · e.txt: larger than 1.0 MB, the most").wait_for()
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
    expect(page.locator(".file summary")).to_have_text(["a.py", "d.txt"])


def test_how_tools_are_used_is_each_conversations_own(tab: Tab, fake: Fake) -> None:
    page = tab.page

    def bring_a_tool() -> None:
        tab.button("Settings of this conversation").click()
        page.locator("#tools").fill('[{"name": "weather"}]')

    bring_a_tool()
    page.locator("#tool-choice").select_option("required")
    page.keyboard.press("Escape")
    tab.ask("One")
    tab.button("New conversation").click()
    page.locator("#welcome").wait_for()
    bring_a_tool()
    expect(page.locator("#tool-choice")).to_have_value("auto")
    page.keyboard.press("Escape")
    tab.ask("Two")
    assert [body["tool_choice"] for body in fake.asked] == ["required", "auto"]


def test_adapters_of_a_package_are_chosen(tab: Tab, fake: Fake) -> None:
    page = tab.page
    tab.ask("All")
    tab.button("Settings of this conversation").click()
    expect(page.locator("#system")).to_have_attribute("placeholder", "You are terse.")
    page.get_by_label("law").uncheck()
    page.keyboard.press("Escape")
    tab.ask("One")
    page.locator("#model").select_option("a-model-with-a-rather-long-name:70b")
    tab.ask("Another model's")
    page.locator("#model").select_option("island:latest")
    tab.button("Settings of this conversation").click()
    page.get_by_label("verse").uncheck()
    page.keyboard.press("Escape")
    tab.ask("None")
    assert [body.get("adapters") for body in fake.asked] == [None, ["verse"], None, []]
    there_and_back = """async () => {
        const { Conversations } = await import("/page/js/database.js");
        const { fromFile, toJson } = await import("/page/js/portable.js");
        const store = await Conversations.open();
        const [record] = await store.list();
        const text = toJson([{ record, messages: await store.messages(record.id) }]);
        return (await fromFile(new File([text], "a.json")))[0].record.settings.adapters;
    }"""
    assert page.evaluate(there_and_back) == {"island:latest": []}
