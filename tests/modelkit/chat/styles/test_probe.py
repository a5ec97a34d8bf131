"""A style is derived from a template of an unknown model; what is derived writes what the template writes."""

from typing import Any

import pytest

from modelkit.chat.message import ToolCall
from modelkit.chat.styles.choice import choose
from modelkit.chat.styles.style import JsonCall, MarkedCall, PythonCall, Span, Style, Tag
from modelkit.chat.styles.writing import write_calls
from modelkit.chat.template import ChatTemplate
from tests.support.styles import style_of

LISTED = "{% if tools %}{{ tools | tojson }}{% endif %}"
THINK = "{% if m.thinking %}<muse>{{ m.thinking }}</muse>\n{% endif %}"
EACH = "{% for c in m.tool_calls or [] %}"
ITEMS = "{% for k, v in c.function.arguments.items() %}"


def template(calls: str, think: str = THINK) -> ChatTemplate:
    """A model's template with the calls of an answer written so."""
    turn = "<turn {{ m.role }}>\n" + think + "{{ m.content }}" + calls + "</turn>\n"
    inviting = "{% if add_generation_prompt %}<turn assistant>\n{% endif %}"
    return ChatTemplate(LISTED + "{% for m in messages %}" + turn + "{% endfor %}" + inviting)


JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
MARKED = "[CALL]{{ c.function.name }}[WITH]{{ c.function.arguments | tojson }}"
TAGS = (
    "<do name={{ c.function.name }}>\n"
    + ITEMS
    + "<arg {{ k }}>{{ v }}</arg>\n{% endfor %}</do>{{ '' if loop.last else '\\n' }}"
)
PYTHON = (
    '{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}="{{ v }}"'
    "{% if not loop.last %}, {% endif %}{% endfor %})"
)
COMMA = "{% if not loop.last %}, {% endif %}"
SOME = "{% if m.tool_calls %}"

DERIVED: dict[str, tuple[str, dict[str, Any]]] = {
    "json between marks": (
        EACH + "{{ '\\n' }}<do>\n" + JSON + "\n</do>{% endfor %}",
        {"call": Span("\n<do>\n", "\n</do>"), "form": JsonCall()},
    ),
    "a list in a section": (
        SOME + "<calls>[" + EACH + JSON + COMMA + "{% endfor %}]</calls>{% endif %}",
        {"section": Span("<calls>", "</calls>"), "form": JsonCall(list=True), "joiner": ", "},
    ),
    "other keys": (
        EACH
        + "<do>"
        + JSON.replace('"name"', '"tool"').replace('"arguments"', '"input"')
        + "</do>{% endfor %}",
        {"call": Span("<do>", "</do>"), "form": JsonCall("tool", "input")},
    ),
    "the name is the key": (
        EACH + '<do>{"{{ c.function.name }}": {{ c.function.arguments | tojson }}}</do>{% endfor %}',
        {"call": Span("<do>", "</do>"), "form": JsonCall(name_is_key=True)},
    ),
    "name, then json": (
        EACH + MARKED + "{% endfor %}",
        {"call": Span("[CALL]"), "form": MarkedCall(suffix="[WITH]")},
    ),
    "name and arguments in marks": (
        SOME + "{{ '\\n' }}<all>\n" + EACH + TAGS + "{% endfor %}{{ '\\n' }}</all>{% endif %}",
        {
            "section": Span("\n<all>\n", "\n</all>"),
            "form": MarkedCall(
                "<do name=", ">\n", "</do>", arguments="tags", tag=Tag("<arg ", ">", "</arg>\n")
            ),
            "joiner": "\n",
        },
    ),
    "an id in front of the name": (
        EACH + "[ID]{{ c.id }}" + MARKED + "[END]{% endfor %}",
        {"call": Span("[ID]", "[END]"), "form": MarkedCall(suffix="[WITH]", id_before="[CALL]")},
    ),
    "an id behind the name": (
        EACH + MARKED.replace("[WITH]", "[ID]{{ c.id }}[WITH]") + "{% endfor %}",
        {"call": Span("[CALL]"), "form": MarkedCall(suffix="[WITH]", id_mark="[ID]")},
    ),
    "json with an id": (
        EACH + "<do>" + JSON.replace("{", '{"id": "{{ c.id }}", ', 1) + "</do>{% endfor %}",
        {"call": Span("<do>", "</do>"), "form": JsonCall(id="id")},
    ),
    "python": (
        SOME + "<calls>[" + EACH + PYTHON + COMMA + "{% endfor %}]</calls>{% endif %}",
        {"section": Span("<calls>", "</calls>"), "form": PythonCall(), "joiner": ", "},
    ),
}


@pytest.mark.parametrize(("calls", "wanted"), DERIVED.values(), ids=DERIVED)
def test_a_style_is_derived_from_what_the_template_writes(calls: str, wanted: dict[str, Any]) -> None:
    choice = choose(template(calls))
    assert choice.how == "probe"
    style = choice.style
    assert style is not None
    assert style.think == Span("<muse>", "</muse>\n")
    assert {name: getattr(style, name) for name in ("section", "call", "form", "joiner")} == {
        "section": None,
        "call": None,
        "joiner": "",
        **wanted,
    }


def test_an_id_at_the_end_of_json_is_derived_too() -> None:
    listed = EACH + JSON[:-1] + ', "ref": "{{ c.id }}"}' + COMMA + "{% endfor %}"
    style = choose(template(SOME + "<calls>[" + listed + "]</calls>{% endif %}")).style
    assert style is not None
    assert (style.section, style.form) == (Span("<calls>", "</calls>"), JsonCall(id="ref", list=True))


def test_one_call_a_message_is_derived_too() -> None:
    refusing = "{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}"
    style = choose(template(refusing + EACH + "<do>" + JSON + "</do>{% endfor %}")).style
    assert style is not None
    assert (style.call, style.form) == (Span("<do>", "</do>"), JsonCall())


@pytest.mark.parametrize(
    "calls",
    [
        EACH + JSON + "{% endfor %}",  # nothing marks a call
        EACH + "<do>{{ c.function | string }}</do>{% endfor %}",
        EACH + "<do>{{ c.function.name | upper }}</do>{% endfor %}",
        EACH + MARKED + "[{{ c.id }}]{% endfor %}",  # an id where none is read
        "{% for c in (m.tool_calls or []) | reverse %}<do>" + JSON + "</do>{% endfor %}",
    ],
)
def test_what_does_not_hold_is_no_style_of_calls(calls: str) -> None:
    style = choose(template(calls)).style
    assert style is not None
    assert (style.think, style.form) == (Span("<muse>", "</muse>\n"), None)
    assert choose(template(calls, think="")).style is None


def test_thinking_that_plain_answers_have_empty_is_found() -> None:
    always = "<muse>{{ m.thinking }}</muse>"
    style = choose(template("", think=always)).style
    assert style == Style("derived", "Derived from the chat template", think=Span("<muse>", "</muse>"))


WRITTEN: dict[str, str] = {
    "hermes": '\n<tool_call>\n{"name": "f", "arguments": {"a": "x", "n": [1, null]}}\n</tool_call>',
    "qwen3-coder": "\n<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=n>\n[1, null]\n"
    "</parameter>\n</function>\n</tool_call>",
    "glm-4.7": "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value>"
    "<arg_key>n</arg_key><arg_value>[1, null]</arg_value></tool_call>",
    "deepseek-v3.2": '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
    '<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="n" string="false">[1, null]</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "gemma4": '<|tool_call>call:f{a:<|"|>x<|"|>,n:[1,null]}<tool_call|>',
    "lfm2": '<|tool_call_start|>[f(a="x", n=[1, None])]<|tool_call_end|>',
    "apertus": '<|tools_prefix|>[{"f": {"a": "x", "n": [1, null]}}]<|tools_suffix|>',
    "minimax-m3": ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>x]<]minimax[>[</a>'
    "]<]minimax[>[<n>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[<item>null]<]minimax[>[</item>"
    "]<]minimax[>[</n>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f<|tool_call_argument_begin|>"
    '{"a": "x", "n": [1, null]}<|tool_call_end|><|tool_calls_section_end|>',
}


@pytest.mark.parametrize(("name", "text"), WRITTEN.items(), ids=WRITTEN)
def test_calls_are_written_as_the_row_says(name: str, text: str) -> None:
    style = style_of(name)
    assert write_calls(style, [ToolCall("f", {"a": "x", "n": [1, None]})]) == text
