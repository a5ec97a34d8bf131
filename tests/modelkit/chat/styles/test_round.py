"""An answer that is told apart and put back into the conversation stands there as it was generated: else the
next turn would find nothing of what was computed for it.
"""

from functools import cache
from pathlib import Path

import pytest

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.choice import choose
from modelkit.chat.styles.opening import opening_of
from modelkit.chat.styles.thinking import thinking_variables
from modelkit.chat.template import ChatTemplate
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for
from tests.modelkit.chat.styles.test_probe import DERIVED, template
from tests.support.answers import collected

ASKED = Message("user", "Weather?")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    }
    for name in ("weather", "time")
]
ROME = ToolCall("weather", {"city": 'Rome </think> "x"', "days": 3}, "call_1")
TIME = ToolCall("time", {}, "call_2")


@cache
def published(shared_data: Path, name: str) -> ChatTemplate:
    source = (shared_data / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def come_back(made: ChatTemplate, answer: Message, think: bool | None, end: str) -> Message:
    """What the model would have generated, told apart; it is checked to come back as it was."""
    style = choose(made).style
    variables = thinking_variables(style, made, think)
    prompt = made.render([ASKED], tools=TOOLS, variables=variables)
    whole = made.render([ASKED, answer], tools=TOOLS, variables=variables, add_generation_prompt=False)
    assert whole.startswith(prompt)
    generated = whole[len(prompt) :].partition(end)[0]
    splitter = splitter_for(style, opening_of(style, prompt), TOOLS)
    told = collected([*splitter.push(Piece(generated, (0,))), *splitter.finish()])
    back = Message("assistant", told.text, told.thinking, tuple(told.tool_calls))
    again = made.render([ASKED, back], tools=TOOLS, variables=variables, add_generation_prompt=False)
    assert again.startswith(prompt + generated)
    return back


def same(back: Message, answer: Message) -> None:
    assert (back.content, back.thinking) == (answer.content, answer.thinking)
    calls = [(call.name, call.arguments) for call in back.tool_calls]
    assert calls == [(call.name, call.arguments) for call in answer.tool_calls]


@pytest.mark.parametrize("thinking", [None, "Hm.\n\nWell."])
@pytest.mark.parametrize("calls", [(), (ROME,), (ROME, TIME)], ids=len)
@pytest.mark.parametrize("content", ["", "Let me see:\n  soon."])
@pytest.mark.parametrize(
    ("name", "think", "end"),
    [("Qwen-Qwen3-0.6B", None, "<|im_end|>"), ("google-gemma-4-31B-it", True, "<|tool_response>")],
)
def test_published_templates(
    shared_data: Path,
    name: str,
    think: bool | None,
    end: str,
    content: str,
    calls: tuple[ToolCall, ...],
    thinking: str | None,
) -> None:
    made = published(shared_data, name)
    if name.startswith("google") and (content or not calls or thinking is None):
        return  # it writes calls before the text, and thinking only beside calls
    answer = Message("assistant", content, thinking, calls)
    if content or calls:
        same(come_back(made, answer, think, end), answer)


@pytest.mark.parametrize(
    ("name", "end"), [("meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>"), ("openai-gpt-oss-120b", "<|call|>")]
)
def test_published_templates_with_one_call_a_message(shared_data: Path, name: str, end: str) -> None:
    made = published(shared_data, name)
    thinking = "Hm." if name.startswith("openai") else None
    answer = Message("assistant", "", thinking, (ROME,))
    same(come_back(made, answer, None, end), answer)


@pytest.mark.parametrize("calls", [calls for calls, _ in DERIVED.values()], ids=DERIVED)
@pytest.mark.parametrize("content", ["", "Let me see:\n  soon."])
@pytest.mark.parametrize("thinking", [None, "Hm.\n\nWell."])
def test_derived_styles(calls: str, content: str, thinking: str | None) -> None:
    rome = ToolCall("weather", {"city": "Rome"}, "call_1")
    for made in ((rome,), (rome, TIME)):
        answer = Message("assistant", content, thinking, made)
        same(come_back(template(calls), answer, None, "</turn>"), answer)


FUNCTIONARY = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{% if m.role == 'assistant' %}{% if m.content %}{{ '>>>all\\n' + m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}"
    "{{ '>>>' + c.function.name + '\\n' + c.function.arguments }}{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n>>>{% endif %}"
)
"""What Functionary 3.2's own template does with messages."""


@pytest.mark.parametrize("calls", [(), (ROME,), (ROME, TIME)], ids=len)
@pytest.mark.parametrize("content", ["", "Let me see:\n>>> soon."])
def test_a_recipient_in_front_of_each_part(content: str, calls: tuple[ToolCall, ...]) -> None:
    if content or calls:
        answer = Message("assistant", content, None, calls)
        same(come_back(ChatTemplate(FUNCTIONARY), answer, None, "<|eot_id|>"), answer)
