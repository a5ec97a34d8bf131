"""What is asked for and cannot act is said: tools and messages that a template leaves out."""

from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.chat.builtin import builtin_templates
from modelkit.chat.message import Message, ToolCall
from modelkit.chat.placement import inherited_notes, refuse_unplaced, unplaced
from modelkit.chat.rendering import Rendering
from modelkit.chat.template import ChatTemplate
from modelkit.errors import RequestError, TemplateError, Unplaced
from tests.support.tiny import TEMPLATE, write_model

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
USER_ONLY = (
    "{% for m in messages %}{% if m.role in ('user', 'assistant') %}[{{ m.content }}]{% endif %}{% endfor %}"
)
FIRST_SYSTEM = "{% if messages[0].role == 'system' %}S{{ messages[0].content }}{% endif %}" + USER_ONLY
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + USER_ONLY
QUOTING = "{% for m in messages %}{{ m.content | trim | upper | tojson }}{% endfor %}"
# As Llama 3.1 does it: beside a call, the text is left out.
CALLING = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% if m.tool_calls %}"
    "{{ m.tool_calls[0].function.name }}{% else %}{{ m.role }}{{ m.content }}{% endif %}{% endfor %}"
)
TALK = (
    Message("system", "Be brief."),
    Message("user", "Weather?"),
    Message("assistant", "Let me see.", tool_calls=(ToolCall("weather", {}, "abcdef123"),)),
    Message("tool", "rain", name="weather", tool_call_id="abcdef123"),
    Message("user", "Thanks."),
)

LOST: dict[str, tuple[str, list[int]]] = {
    "users and assistants only": (USER_ONLY, [0, 2, 3]),
    "one system message": (FIRST_SYSTEM, [2, 3]),
    "in capitals and quotes": (QUOTING, [2]),
    "calls instead of text": (CALLING, []),
    "no system": (REFUSES, []),
}


@pytest.mark.parametrize(("source", "lost"), LOST.values(), ids=LOST)
def test_messages_that_leave_no_trace_are_found(source: str, lost: list[int]) -> None:
    template = ChatTemplate(source)
    try:
        text = template.render(TALK)
    except TemplateError:
        return
    assert unplaced(Rendering(template), TALK, range(len(TALK)), text) == lost


@pytest.mark.parametrize("name", sorted(builtin_templates()))
def test_our_own_templates_have_a_place_for_a_conversation(name: str) -> None:
    template = ChatTemplate(builtin_templates()[name].source, bos_token="<s>", eos_token="</s>")
    talk = [*TALK[:2], Message("assistant", "Rain."), Message("user", "Thanks.")]
    assert unplaced(Rendering(template), talk, range(4), template.render(talk)) == []


def test_a_second_system_message_has_its_place_where_the_first_has() -> None:
    template = ChatTemplate(FIRST_SYSTEM)
    talk = [Message("system", "a"), Message("user", "b"), Message("system", "c"), Message("user", "d")]
    text = template.render(talk)
    assert text == "Sa[b\n\nc][d]"
    assert unplaced(Rendering(template), talk, range(4), text) == []


NOTES: dict[str, tuple[str | None, str | None, list[tuple[str, str]], str | None]] = {
    "nothing to place": (USER_ONLY, None, [], None),
    "all has its place": (TEMPLATE, "s", [("user", "a"), ("assistant", "b")], None),
    "no system": (USER_ONLY, "s", [], "SYSTEM has no effect"),
    "no tool": (USER_ONLY, None, [("user", "a"), ("tool", "b")], "MESSAGE tool has no effect"),
    "refused": (REFUSES, "s", [], "SYSTEM makes the chat template fail"),
    "no template": (None, "s", [("user", "a")], "SYSTEM and MESSAGE user have no effect: without"),
}


@pytest.mark.parametrize(("source", "system", "messages", "said"), NOTES.values(), ids=NOTES)
def test_inherited_texts_without_a_place_are_noted(
    source: str | None, system: str | None, messages: list[tuple[str, str]], said: str | None
) -> None:
    notes = inherited_notes(ChatTemplate(source) if source else None, system, messages)
    assert bool(notes) == (said is not None)
    assert said is None or said in notes[0]


ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "tools": ({"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}, "tools have no effect"),
    "system": (
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]},
        r"the system message messages\[0\] has no effect",
    ),
    "a result": (
        {"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]},
        r"the tool message messages\[1\] has no effect",
    ),
    "a call": (
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "weather"}}]},
                {"role": "user", "content": "x"},
            ]
        },
        r"the tool call of messages\[1\] has no effect",
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose template knows users and assistants alone, with SYSTEM and MESSAGE."""
    home = tmp_path_factory.mktemp("placed")
    write_model(home / "model", template=USER_ONLY)
    (home / "Modelfile").write_text(
        f"FROM {home / 'model'}\nSYSTEM Speak like a sailor.\nMESSAGE user a\nMESSAGE assistant b\n"
    )
    return home


def test_create_and_load_note_it_and_requests_are_refused(home: Path) -> None:
    created = modelkit.create(home / "Modelfile", name="sailor", home=home)
    assert [note for note in created.notes if "SYSTEM has no effect" in note]
    with modelkit.load("sailor", home=home) as model:
        assert [note for note in model.notes if "SYSTEM has no effect" in note]
        assert not [note for note in model.notes if "MESSAGE" in note]
        assert model.generate("Hi", num_predict=2).ids  # what was inherited stops nobody
        for asked, said in ASKED.values():
            for use in (model.chat, model.prompt):
                with pytest.raises(RequestError, match=said):
                    use(**asked)


def test_a_package_made_from_it_inherits_the_note(home: Path) -> None:
    modelkit.create(home / "Modelfile", name="sailor", home=home)
    (home / "Again").write_text("FROM sailor\n")
    created = modelkit.create(home / "Again", name="again", home=home)
    assert [note for note in created.notes if "SYSTEM has no effect" in note]


def test_tools_may_come_from_an_iterator(tmp_path: Path) -> None:
    with modelkit.load(write_model(tmp_path / "m", template=CALLING)) as model:
        talk = [{"role": "user", "content": "x"}]
        assert "weather" in model.prompt(talk, tools=iter([TOOL]))  # pyright: ignore[reportArgumentType]
        assert model.chat(talk, tools=[TOOL], num_predict=2).ids


@pytest.mark.parametrize(
    ("role", "said"), [("user", "Give a raw prompt"), ("system", "Put its text into a user's message")]
)
def test_who_asks_is_told_where_the_text_may_go(role: str, said: str) -> None:
    """A template of words alone has no place for users either."""
    rendering, messages = Rendering(ChatTemplate("Hello.")), [Message(role, "x")]
    with pytest.raises(Unplaced) as refused:
        refuse_unplaced(rendering, messages, {0: "messages[0]"}, "Hello.")
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(said)
