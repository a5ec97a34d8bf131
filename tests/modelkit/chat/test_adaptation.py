"""Conversations reach each template in the form that it takes; found by trying, never by a model's name."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from modelkit.chat import time_limit
from modelkit.chat.capabilities import check_template
from modelkit.chat.habits import Habits, find_habits
from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.table import style_named
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError

LOOP = "{%- for m in messages -%}"
END = "{%- endfor -%}"
TEXT = "{%- if not m.tool_calls %}({{ m.role }}: {{ m.content }}{{ m.name and ' of ' + m.name }}){% endif -%}"
OBJECTS = (
    "{%- for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>"
    "{% endfor -%}"
)
USUAL = LOOP + TEXT + "{%- if m.tool_calls %}({{ m.role }}: {{ m.content }}" + OBJECTS + "){% endif -%}" + END

TEXTS = USUAL.replace("c.function.arguments | tojson", "'' + c.function.arguments")
NULL = USUAL.replace("{%- if m.tool_calls %}", "{%- if m.tool_calls and m.content is none %}").replace(
    "{%- if not m.tool_calls %}", "{%- if m.content is not none %}"
)
ONE = USUAL.replace("(m.tool_calls or [])", "m.tool_calls").replace(
    LOOP, LOOP + "{%- if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif -%}"
)
NINE = USUAL.replace(
    LOOP,
    LOOP
    + "{%- for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
    "[{{ c.id }}]{% endfor %}{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif -%}",
)
SOME = USUAL.replace(
    LOOP,
    LOOP + "{%- for c in m.tool_calls or [] %}[{{ '' + c.id }}]{% endfor %}"
    "{% if m.role == 'tool' %}[{{ '' + m.tool_call_id }}]{% endif -%}",
)
KIMI = NINE.replace("{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}", "") + (
    "{# <|tool_call_argument_begin|> #}"
)
FIRST = USUAL.replace(
    LOOP, LOOP + "{%- if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif -%}"
)
PARTS = USUAL.replace(
    "{{ m.content }}",
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ '~' + p.thinking + '~' if p.type == 'thinking' else p.text }}{% endfor %}{% endif %}",
)
EITHER = USUAL.replace(
    LOOP,
    LOOP + "{%- if m.tool_calls and m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
    "{{ m.thinking and '~' + m.thinking + '~' -}}",
)
BARE = USUAL.replace("%}({{ m.role }}: {{ m.content }}" + OBJECTS, "%}({{ m.role }}: " + OBJECTS)
STRICT = BARE.replace(
    LOOP,
    LOOP + "{%- if m.role == 'assistant' and not m.tool_calls and not loop.first "
    "and loop.previtem.role == 'assistant' %}{{ raise_exception('roles alternate') }}{% endif %}"
    "{%- if m.tool_calls and loop.previtem.role != 'user' %}{{ raise_exception('roles') }}{% endif -%}",
)
SILENT = LOOP + "({{ m.role }}: {{ m.content }})" + END

FOUND: dict[str, tuple[str, Habits]] = {
    "usual": (USUAL, Habits()),
    "texts": (TEXTS, Habits(arguments="text")),
    "null": (NULL, Habits(null_beside_calls=True, text_beside_calls=False, text_beside_thinking=False)),
    "one call": (ONE, Habits(many_calls=False)),
    "nine": (NINE, Habits(ids="nine")),
    "some": (SOME, Habits(ids="some")),
    "numbered": (KIMI, Habits(ids="numbered")),
    "system first": (FIRST, Habits(system_anywhere=False)),
    "parts": (PARTS, Habits(thinking="parts")),
    "either": (EITHER, Habits(text_beside_thinking=False)),
    "calls alone": (BARE, Habits(text_beside_calls=False)),
    "calls alone, in turns": (STRICT, Habits()),
    "no calls": (SILENT, Habits(calls=False)),
    "developer": (USUAL + "{# 'developer' #}", Habits(developer=True)),
}

ASKED = Message("user", "Weather?")
ROME = ToolCall("weather", {"city": "Rome"}, "call_1")
OSLO = ToolCall("weather", {"city": "Oslo"}, "call_2")
SUN, SNOW = (Message("tool", text, tool_call_id=f"call_{n}") for n, text in ((1, "sun"), (2, "snow")))
BOTH = Message("assistant", tool_calls=(ROME, OSLO))


@pytest.mark.parametrize(("source", "habits"), FOUND.values(), ids=FOUND)
def test_habits_are_found(source: str, habits: Habits) -> None:
    assert ChatTemplate(source).habits() == habits


def prompt(source: str, *messages: Message) -> str:
    return ChatTemplate(source).render(messages)


@pytest.mark.parametrize("source", [USUAL, TEXTS, NULL])
def test_calls_reach_every_template_with_their_arguments(source: str) -> None:
    text = prompt(source, ASKED, BOTH, SUN, SNOW)
    assert '<weather {"city": "Rome"}><weather {"city": "Oslo"}>' in text
    assert text.endswith("(tool: sun of weather)(tool: snow of weather)")


def test_a_text_beside_calls_is_kept_where_the_template_drops_either() -> None:
    text = prompt(NULL, ASKED, replace(BOTH, content="Let me see."), SUN, SNOW)
    assert "(assistant: Let me see.)" in text
    assert "<weather" in text
    text = prompt(BARE, ASKED, replace(BOTH, content="Let me see."), SUN, SNOW)
    assert "(assistant: Let me see.)(assistant:<weather" in text
    assert "(assistant:<weather" in prompt(STRICT, ASKED, replace(BOTH, content="Let me see."), SUN, SNOW)
    text = prompt(EITHER, ASKED, replace(BOTH, content="Let me see.", thinking="Hm."), SUN, SNOW)
    assert "~Hm.\n\nLet me see.~" in text


def test_calls_come_one_by_one_with_their_results() -> None:
    text = prompt(ONE, ASKED, BOTH, SNOW, SUN, Message("user", "Thanks."))
    assert text == (
        '(user: Weather?)(assistant: <weather {"city": "Rome"}>)(tool: sun of weather)'
        '(assistant: <weather {"city": "Oslo"}>)(tool: snow of weather)(user: Thanks.)'
    )


def test_results_come_in_the_order_of_their_calls() -> None:
    stray = Message("tool", "rain", tool_call_id="call_9")
    assert prompt(USUAL, ASKED, BOTH, SNOW, SUN) == prompt(USUAL, ASKED, BOTH, SUN, SNOW)
    assert prompt(USUAL, ASKED, BOTH, stray, SNOW, SUN) == prompt(USUAL, ASKED, BOTH, SUN, SNOW, stray)


def test_results_without_ids_are_told_apart_by_name_and_order() -> None:
    calls = (ToolCall("weather", {}), ToolCall("time", {}), ToolCall("weather", {}))
    talk = [
        ASKED,
        Message("assistant", tool_calls=calls),
        Message("tool", "noon", name="time"),
        Message("tool", "sun"),
        Message("tool", "snow"),
    ]
    assert prompt(USUAL, *talk).endswith("(tool: sun of weather)(tool: noon of time)(tool: snow of weather)")


def ids(text: str) -> list[str]:
    return [part.partition("]")[0] for part in text.split("[")[1:]]


@pytest.mark.parametrize("calls", [(ROME, OSLO), (replace(ROME, id=None), replace(OSLO, id=None))])
def test_ids_that_a_template_insists_on_are_made_once_for_call_and_result(calls: Sequence[ToolCall]) -> None:
    results = [replace(one, tool_call_id=call.id) for one, call in zip((SUN, SNOW), calls, strict=True)]
    talk = [ASKED, Message("assistant", tool_calls=tuple(calls)), *results]
    nine = ids(prompt(NINE, *talk))
    assert nine[:2] == nine[2:]
    assert len({*nine}) == 2
    assert all(len(one) == 9 and one.isalnum() for one in nine)
    assert ids(prompt(NINE, *talk, ASKED)) == nine  # the next turn finds the same prefix
    numbered = ["functions.weather:0", "functions.weather:1"]
    assert ids(prompt(KIMI, *talk)) == numbered * 2


def test_ids_are_made_where_a_template_fails_without() -> None:
    """As Solar's and Apriel's; Ollama's clients send none."""
    calls = [replace(call, id=None) for call in (ROME, OSLO)]
    results = [replace(one, tool_call_id=None) for one in (SUN, SNOW)]
    talk = [ASKED, Message("assistant", tool_calls=tuple(calls)), *results]
    assert ids(prompt(SOME, *talk)) == ["call_0", "call_1"] * 2
    assert ids(prompt(SOME, ASKED, BOTH, SUN, SNOW)) == ["call_1", "call_2"] * 2


def test_ids_that_are_right_go_back_as_they_came() -> None:
    own = replace(ROME, id="a1B2c3D4e"), replace(SUN, tool_call_id="a1B2c3D4e")
    assert ids(prompt(NINE, ASKED, Message("assistant", tool_calls=own[:1]), own[1])) == ["a1B2c3D4e"] * 2
    own = replace(ROME, id="functions.weather:7"), replace(SUN, tool_call_id="functions.weather:7")
    talk = [ASKED, Message("assistant", tool_calls=own[:1]), own[1]]
    assert ids(prompt(KIMI, *talk)) == ["functions.weather:7"] * 2


def test_later_system_messages_go_into_the_users_turn() -> None:
    late = [Message("system", "s"), Message("developer", "d"), ASKED, Message("assistant", "Sun.")]
    rule = Message("system", "Be brief.")
    assert prompt(FIRST, *late, rule, Message("user", "Why?"), rule) == (
        "(system: s\n\nd)(user: Weather?)(assistant: Sun.)(user: Be brief.\n\nWhy?\n\nBe brief.)"
    )
    assert prompt(FIRST, ASKED, rule) == "(user: Weather?\n\nBe brief.)"
    assert prompt(FIRST, *late, rule).endswith("(assistant: Sun.)(user: Be brief.)")
    assert "(system: Be brief.)" in prompt(USUAL, *late, rule)


@pytest.mark.parametrize(
    "before", [[ASKED], [ASKED, Message("assistant", "Sun.")], [ASKED, Message("assistant", "Sun."), ASKED]]
)
def test_a_later_system_message_reads_the_same_once_the_conversation_has_gone_on(
    before: list[Message],
) -> None:
    talk = [*before, Message("system", "Be brief.")]
    answered = [*talk, Message("assistant", "Rain."), Message("user", "Why?")]
    assert prompt(FIRST, *answered).startswith(prompt(FIRST, *talk))


def test_a_developer_is_the_system_where_a_template_knows_none() -> None:
    talk = [Message("developer", "d"), ASKED]
    assert prompt(USUAL, *talk).startswith("(system: d)")
    assert prompt(USUAL + "{# 'developer' #}", *talk).startswith("(developer: d)")


def test_thinking_goes_back_as_a_part_of_the_content() -> None:
    thought = Message("assistant", "Sun.", thinking="Hm.")
    assert prompt(PARTS, ASKED, thought).endswith("(assistant: ~Hm.~Sun.)")
    going_on = ChatTemplate(PARTS).render([ASKED, thought], continue_final=True)
    assert going_on.endswith("(assistant: ~Hm.~Sun.")


def test_calls_are_written_into_the_text_of_a_template_that_has_no_place_for_them() -> None:
    """As LFM2's and Granite's templates: they list tools and take results, and leave calls out."""
    template = ChatTemplate(SILENT + "{# <|tool_list_start|> #}")
    text = template.render([ASKED, replace(BOTH, content="Let me see."), SUN, SNOW])
    calls = '<|tool_call_start|>[weather(city="Rome"), weather(city="Oslo")]<|tool_call_end|>'
    assert f"(assistant: Let me see.{calls})" in text
    assert check_template(template.source + "{{ tools and tools | tojson }}").tools
    bare = ChatTemplate(SILENT)
    assert "weather" not in bare.render([ASKED, BOTH, SUN])  # and `placed` refuses that
    bare.style = style_named("hermes")
    assert "(assistant: <tool_call>\n{" in bare.render([ASKED, BOTH, SUN])


def test_a_call_whose_head_is_its_id_is_written_with_it_once() -> None:
    """As Kimi's, whose published conversions have templates that cannot be run everywhere."""
    template = ChatTemplate(SILENT + "{# <|tool_calls_section_begin|> <|tool_call_argument_begin|> #}")
    text = template.render([ASKED, BOTH, SUN, SNOW])
    assert re.findall(r"<\|tool_call_begin\|>(.*?)<", text) == ["functions.weather:0", "functions.weather:1"]


def test_broken_arguments_never_fail_a_turn() -> None:
    broken = Message("assistant", tool_calls=(ToolCall("weather", {}, "call_1", '{"city": "Ro'),))
    assert "<weather {}>" in prompt(USUAL, ASKED, broken, SUN)
    assert '<weather {"city": "Ro>' in prompt(TEXTS, ASKED, broken, SUN)


def test_tools_reach_a_template_that_reads_them_from_the_system_message() -> None:
    """As Phi-4-mini's."""
    source = (
        LOOP
        + "({{ m.role }}: {{ m.content }}{% if m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %})"
        + END
    )
    tool = {"type": "function", "function": {"name": "weather"}}
    made = ChatTemplate(source)
    assert made.habits().tools_in_system
    text = '(system: <|tool|>[{"name": "weather"}]<|/tool|>)(user: Weather?)'
    assert made.render([ASKED], tools=[tool]) == text
    rule = Message("system", "Be brief.")
    assert made.render([rule, ASKED], tools=[tool]) == text.replace(": <", ": Be brief.<")
    assert "<|tool|>" not in made.render([rule, ASKED])
    assert check_template(source).tools


def test_tools_reach_a_template_that_reads_them_as_a_text_beside_the_day() -> None:
    """As FireFunction's, which failed at every message."""
    source = "{{ functions + ' on ' + datetime + '. ' }}" + USUAL
    day = datetime(2026, 1, 2)
    assert ChatTemplate(source).render([ASKED], now=day) == "[] on 2026-01-02. (user: Weather?)"
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"properties": {}}}}
    text = ChatTemplate(source).render([ASKED], tools=[tool], now=day)
    assert json.loads(text.partition(" on ")[0]) == [tool["function"]]
    given = ChatTemplate(source).render([ASKED], variables={"functions": "none"}, now=day)
    assert given.startswith("none on 2026-01-02")


def test_tools_without_a_description_are_made_whole_where_the_template_needs_it() -> None:
    listing = "{% for t in tools or [] %}{{ t.function.name + t.function.description }}{% endfor %}" + USUAL
    bare = {"type": "function", "function": {"name": "weather"}}
    assert ChatTemplate(listing).render([ASKED], tools=[bare]) == "weather(user: Weather?)"
    naming = "{% for t in tools or [] %}{% for name, one in t.function.parameters.properties.items() %}"
    naming += "{{ name + one.description }}{% endfor %}{{ t.function.name }}{% endfor %}" + USUAL
    for parameters, said in (({}, ""), ({"type": "object"}, ""), ({"properties": {"a": {}}}, "a")):
        tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
        assert ChatTemplate(naming).render([ASKED], tools=[tool]) == f"{said}weather(user: Weather?)"
    printing = "{{ tools | tojson }}" + USUAL
    assert '"function": {"name": "weather"}' in ChatTemplate(printing).render([ASKED], tools=[bare])


def test_a_type_beside_null_is_named_alone_where_the_template_needs_it() -> None:
    """As those of Hermes, which call themselves without end for a type that is not a word of theirs."""
    naming = (
        "{% for t in tools or [] %}{{ t.function.name }}"
        "{% for p in t.function.parameters.properties.values() %}"
        "{{ p.type if p.type is string else raise_exception('type') }}{% endfor %}{% endfor %}" + USUAL
    )
    properties = {"a": {"type": ["string", "null"]}, "b": {"type": "array", "items": {"type": ["null"]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    assert ChatTemplate(naming).render([ASKED], tools=[tool]) == "fstringarray(user: Weather?)"
    printing = "{{ tools | tojson }}" + USUAL
    assert '["string", "null"]' in ChatTemplate(printing).render([ASKED], tools=[tool])


def test_published_templates_take_a_whole_agents_conversation(shared_data: Path) -> None:
    talk = [
        Message("developer", "Be brief."),
        ASKED,
        replace(BOTH, content="Let me see.", thinking="Hm."),
        SNOW,
        SUN,
        Message("system", "One sentence."),
        Message("user", "Well?"),
    ]
    for path in sorted((shared_data / "templates").glob("*.jinja")):
        template = ChatTemplate(path.read_text(encoding="utf-8"), bos_token="<s>", eos_token="</s>")
        text = template.render(
            talk,
            tools=[
                {
                    "type": "function",
                    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
                }
            ],
        )
        said = ("Be brief.", "Rome", "Oslo", "sun", "snow", "One sentence.", "Well?")
        assert [one for one in said if one not in text] == [], path.name


def test_a_template_that_wastes_time_is_not_asked_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "MOST_S", 0.05)
    rendered: list[float] = []

    def render(messages: object, tools: object) -> str:
        rendered.append(until := time.thread_time() + 0.02)
        while time.thread_time() < until:
            pass
        return ""

    find_habits(render, "")
    assert len(rendered) <= 4


def test_a_template_that_fails_at_everything_has_habits_all_the_same() -> None:
    template = ChatTemplate("{{ raise_exception('no') }}")
    assert template.habits() == Habits(calls=False, system_anywhere=False)
    with pytest.raises(TemplateError):
        template.render([ASKED, BOTH, SUN])
