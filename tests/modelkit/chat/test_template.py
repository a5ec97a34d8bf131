import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.message import Message, read_messages
from modelkit.chat.template import ChatTemplate
from modelkit.errors import RequestError, TemplateError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HI = [Message("user", "Hi")]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_messages_become_a_prompt():
    prompt = ChatTemplate(CHATML).render(HI)
    assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_the_generation_prompt_can_be_left_out():
    assert ChatTemplate(CHATML).render(HI, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_tokens_stand_at_hand_and_missing_ones_are_undefined():
    template = ChatTemplate("{{ bos_token }}{{ pad_token is defined }}", bos_token="<s>")
    assert template.render(HI) == "<s>False"


def test_the_goldens_hold_for_messages_read_from_outside(shared_data: Path):
    lines = (shared_data / "templates" / "goldens.jsonl").read_text(encoding="utf-8").splitlines()
    compiled: dict[str, ChatTemplate] = {}
    for golden in map(json.loads, lines):
        if golden["conv"] in ("parts", "empty"):  # parts are joined here, and no message is an error before
            continue
        name, variables = golden["template"], dict(golden["vars"])
        tokens = {key: variables.pop(key) for key in ("bos_token", "eos_token", "pad_token")}
        if name not in compiled:
            source = (shared_data / "templates" / name).read_text(encoding="utf-8")
            compiled[name] = ChatTemplate(source, **tokens)
        template = compiled[name]
        if golden["conv"] == "developer" and not template.habits().developer:
            continue  # it speaks for the system here, and is not passed over
        prompt = template.render(
            read_messages(golden["messages"]),
            tools=golden["tools"],
            add_generation_prompt=golden["add_generation_prompt"],
            variables={key: value for key, value in variables.items() if key in template.variables},
            now=datetime(2026, 1, 2),
        )
        assert prompt == golden["text"], f"{name}, {golden['conv']}"


def test_the_last_message_can_be_continued():
    messages = [*HI, Message("assistant", "Sure, ")]
    prompt = ChatTemplate(CHATML).render(messages, continue_final=True)
    assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nSure, "


def test_a_template_that_strips_strips_what_is_continued():
    messages = [*HI, Message("assistant", "Sure, ")]
    prompt = ChatTemplate("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}").render(
        messages, continue_final=True
    )
    assert prompt == "[Hi][Sure,"


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_message_is_continued_behind_its_head(text: str):
    template = ChatTemplate("{% for m in messages %}<{{ m.role }}>\n\n{{ m.content | trim }}{% endfor %}")
    prompt = template.render([*HI, Message("assistant", text, "Hm.")], continue_final=True)
    assert prompt == "<user>\n\nHi<assistant>\n\n"


def test_only_the_assistant_can_be_continued():
    with pytest.raises(RequestError, match="no last assistant message"):
        ChatTemplate(CHATML).render(HI, continue_final=True)


def test_a_template_that_drops_the_last_message_cannot_continue_it():
    with pytest.raises(TemplateError, match="leaves out"):
        ChatTemplate("{{ messages[0].content }}").render(
            [*HI, Message("assistant", "Sure")], continue_final=True
        )


def test_variables_reach_the_template():
    template = ChatTemplate("{% if enable_thinking is defined and not enable_thinking %}off{% endif %}")
    assert template.variables == {"enable_thinking"}
    assert template.render(HI, variables={"enable_thinking": False}) == "off"


@pytest.mark.parametrize(
    "name",
    ["messages", "tools", "add_generation_prompt", "bos_token", "tokenize", "range", "documents", "other"],
)
def test_a_variable_cannot_take_a_name_that_is_not_its_own(name: str):
    source = "{{ messages }}{{ tools }}{{ bos_token }}{{ documents }}{{ range }}{{ tokenize }}"
    with pytest.raises(RequestError, match="no variable"):
        ChatTemplate(source).render(HI, variables={name: []})


def test_a_name_the_template_sets_itself_is_no_variable():
    source = "{% if tools %}{% set role = 'a' %}{% endif %}{{ role }}{{ date if date is defined }}"
    assert ChatTemplate(source).variables == {"date"}


@pytest.mark.parametrize("tools", [[{}], ["weather"], [{"function": {}}], [TOOL] * 513])
def test_bad_tools_are_refused(tools: Any):
    with pytest.raises(RequestError, match="tool"):
        ChatTemplate(CHATML).render(HI, tools=tools)


def test_no_tools_are_none_for_the_template():
    assert ChatTemplate("{{ tools is none }}").render(HI, tools=[]) == "True"


@pytest.mark.parametrize(
    "source", ["{% if tools|length %}x{% endif %}y", "y{% for t in tools %}x{% endfor %}"]
)
def test_no_tools_are_an_empty_list_for_a_template_that_fails_at_none(source: str):
    template = ChatTemplate(source)
    assert [template.render(HI), template.render(HI, tools=[TOOL]), template.render(HI)][::2] == ["y", "y"]
    with pytest.raises(TemplateError, match="NoneType"):
        ChatTemplate("{{ tools|length }}{{ messages[0].missing.more }}").render(HI)


PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content if part.type == 'text' %}{{ part.text }}"
    "{% endfor %};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
FIRST = "{% for m in messages %}{{ m.role }}:{{ m['content'][0]['text'] }};{% endfor %}"


@pytest.mark.parametrize("source", [PARTS, FIRST])
def test_texts_are_parts_for_a_template_that_reads_no_others(source: str):
    template = ChatTemplate(source)
    talk = [Message("system", "Be brief."), *HI, Message("assistant", "Ho")]
    said = template.render(talk, add_generation_prompt=False)
    assert said == "system:Be brief.;user:Hi;assistant:Ho;"
    assert template.render(talk, continue_final=True) == "system:Be brief.;user:Hi;assistant:Ho"


def test_a_template_that_reads_texts_and_parts_gets_texts():
    said = "m.content if m.content is string else m.content[0].text ~ '!'"
    assert ChatTemplate(f"{{% for m in messages %}}{{{{ {said} }}}}{{% endfor %}}").render(HI) == "Hi"


def test_only_json_values_reach_the_template():
    with pytest.raises(RequestError, match="only JSON values"):
        ChatTemplate("{{ tools }}").render(HI, tools=[{**TOOL, "call": print}])


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("odd", ["5[0]", "'a'()", "1 is divisibleby('x')", "(1)[1:2]"])
def test_what_python_thinks_of_a_template_is_not_printed(odd: str, recwarn: pytest.WarningsRecorder):
    template = ChatTemplate("{% if false %}{{ " + odd + " }}{% endif %}{{ messages[0].content }}")
    assert template.render([Message("user", "Hi")]) == "Hi"
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.parametrize(
    "odd",
    [
        "'%s'.format",
        "''.join",
        "[''.join]",
        "{'a': ['%s'.format]}",
        "cycler('a')",
        "range",
        "raise_exception",
    ],
)
@pytest.mark.parametrize("form", ["{{ %s }}", "{{ %s ~ '' }}", "{{ '%%s' %% (%s,) }}", "{{ %s | string }}"])
def test_no_address_in_memory_is_printed(odd: str, form: str):
    with pytest.raises(TemplateError, match="prints a function"):
        ChatTemplate(form % odd).render([Message("user", "Hi")])
