"""What a loaded model answers, told apart: the whole way from the template to events.

The model's weights are random; a regular expression that only one text matches makes it write that text.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import modelkit
from modelkit.answers.generation import Finish
from modelkit.errors import ParameterError, RequestError
from modelkit.grammars.forms import Form
from modelkit.loaded.running import Running
from modelkit.output.events import CallArguments, CallStart, Text, Thinking
from tests.support.tiny import write_model

# As Qwen 3 writes it.
TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>"
    '<tool_call>{"name": <name>, "arguments": <arguments>}</tool_call>{% endif %}'
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ message.content }}{% for tool_call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ tool_call.function.name }}", "arguments": {{ tool_call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ASK = [{"role": "user", "content": "Weather?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Looks it up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[modelkit.Model]:
    folder = write_model(
        tmp_path_factory.mktemp("styled") / "model", template=TEMPLATE, max_position_embeddings=2048
    )
    with modelkit.load(folder, seed=1) as loaded:
        yield loaded


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on the model writes this text, whatever the request asks for."""

    def let(text: str) -> None:
        form = Form("regex", "regex", "".join(f"[{re.escape(char)}]" for char in text))
        monkeypatch.setattr(Running, "_grammar", lambda self, *_: self.grammars.compile(form))

    return let


def test_thinking_and_text(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    writes("<think>\nhm\n</think>\n\nSunny.")
    answer = model.chat(ASK)
    assert (answer.thinking, answer.text, answer.tool_calls) == ("hm", "Sunny.", ())
    assert len(answer.ids) == len("<think>\nhm\n</think>\n\nSunny.")


def test_calls(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    writes("One moment.\n" + CALL)
    stream = model.chat(ASK, tools=[TOOL], stream=True)
    events = list(stream.events())
    answer = stream.result
    (call,) = answer.tool_calls
    assert (call.name, call.arguments, call.written) == ("weather", {"city": "Paris"}, None)
    assert answer.text.strip() == "One moment."
    (start,) = [event for event in events if isinstance(event, CallStart)]
    assert start.id == call.id
    pieces = [event.text for event in events if isinstance(event, CallArguments)]
    assert len(pieces) > 5  # as they are written
    assert json.loads("".join(pieces)) == call.arguments
    assert isinstance(events[-1], Finish)


def test_without_tools_a_call_is_text(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    writes(CALL)
    answer = model.chat(ASK)
    assert (answer.text, answer.tool_calls) == (CALL, ())


def test_the_answer_goes_back_as_it_was_written(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    written = "<think>\nhm\n</think>\n\n" + CALL
    writes(written)
    answer = model.chat(ASK, tools=[TOOL])
    history = model.prompt([*ASK, answer.message, {"role": "tool", "content": "sun"}], tools=[TOOL])
    assert history.startswith(model.prompt(ASK, tools=[TOOL]) + written)


def test_thinking_can_be_switched_off(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    off = model.prompt(ASK, think=False)
    assert off.endswith("<think>\n\n</think>\n\n")
    assert model.prompt(ASK, think=True) == model.prompt(ASK) == off[: -len("<think>\n\n</think>\n\n")]
    # Behind a closed thought the answer is text from its first letter on.
    writes("Sunny.")
    answer = model.chat(ASK, think=False)
    assert (answer.thinking, answer.text) == (None, "Sunny.")


def test_what_thinking_cannot_be(model: modelkit.Model, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="think"):
        model.chat(ASK, think="much")  # pyright: ignore[reportArgumentType]
    with pytest.raises(RequestError, match="think has no effect"):
        model.generate("Hi", raw=True, think=True)


def test_a_stop_string_in_a_thought_stops_nothing(
    model: modelkit.Model, writes: Callable[[str], None]
) -> None:
    writes("<think>\na\nb\n</think>\n\nc\nd")
    answer = model.chat(ASK, stop="\n")
    assert (answer.thinking, answer.text, answer.stop) == ("a\nb", "c", "\n")


def test_json_is_read(model: modelkit.Model) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [3]}}, "required": ["n"]}
    assert model.chat(ASK, think=False, format=schema, seed=5).parsed == {"n": 3}
    assert model.chat(ASK, think=False, format=schema, num_predict=2).parsed is None
    assert model.chat(ASK, think=False, regex="[3]").parsed is None


@pytest.mark.parametrize("mark", ["  </think>\n\n", "<think>\n\n</think>\n\n"])
def test_json_that_is_cut_in_front_of_its_first_letter(
    model: modelkit.Model, writes: Callable[[str], None], mark: str
) -> None:
    writes(mark + '{"n": 3}')
    for count in range(1, len(mark) + 1):
        answer = model.chat(ASK, format="json", num_predict=count)
        assert "".join((answer.text + (answer.thinking or "")).split()) == "", count


def test_a_continued_answer_is_text(model: modelkit.Model, writes: Callable[[str], None]) -> None:
    talk = [*ASK, {"role": "assistant", "content": "It is "}]
    writes(" sunny")
    answer = model.chat(talk, continue_final=True)
    assert (answer.thinking, answer.text) == (None, " sunny")


def test_events_with_log_probabilities_leave_marks_out(
    model: modelkit.Model, writes: Callable[[str], None]
) -> None:
    writes("<think>\nhm\n</think>\n\nSunny.")
    stream = model.chat(ASK, top_logprobs=1, stream=True)
    events = list(stream.events())
    for kind, text in ((Thinking, "hm"), (Text, "Sunny.")):
        mine = [event for event in events if isinstance(event, kind)]
        assert "".join(event.text for event in mine) == text
        assert [log.id for event in mine for log in event.logprobs] == [one for e in mine for one in e.ids]
        assert model.decode([one for event in mine for one in event.ids]).strip() == text


def test_a_choice_of_tools_is_followed(model: modelkit.Model) -> None:
    other = {"type": "function", "function": {"name": "stop_now"}}
    for seed in range(6):
        free = {"seed": seed, "temperature": 1.5, "num_predict": 400, "think": False}
        must = model.chat(ASK, tools=[TOOL, other], tool_choice="required", **free)
        assert must.tool_calls
        assert {call.name for call in must.tool_calls} <= {"weather", "stop_now"}
        named = model.chat(
            ASK, tools=[TOOL, other], tool_choice="stop_now", parallel_tool_calls=False, **free
        )
        assert [(call.name, call.arguments) for call in named.tool_calls] == [("stop_now", {})]
        assert named.reason == "stop"
        assert not model.chat(ASK, tools=[TOOL], tool_choice="none", **free).tool_calls


def test_a_choice_that_is_none(model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match="no tool has this name"):
        model.chat(ASK, tools=[TOOL], tool_choice="nothing")
    with pytest.raises(RequestError, match="there are no tools"):
        model.chat(ASK, tool_choice="required")


def test_a_form_comes_behind_the_thought(model: modelkit.Model) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"]}
    for seed in range(6):
        answer = model.chat(ASK, format=schema, seed=seed, temperature=1, num_predict=600)
        assert answer.parsed in ({"n": 3}, {"n": 4}) or answer.reason == "length"
