"""Custom tools and namespaces through OpenAI's own client: what reaches the model, and what comes back."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkit
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai.client_tools import Input
from modelkit.server.openai.tools import read_tools
from tests.support.served import scripted, served
from tests.support.tiny import TEMPLATE, write_model

HI: Any = [{"role": "user", "content": "hi"}]
PATCH = 'a "b"\n\\c \U0001f600'
FREE = {"name": "patch", "description": "Changes files."}
CRM: Any = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object"}, "description": "One."},
        {"type": "custom", "name": "note"},
    ],
}
SEEN: list[tuple[Any, dict[str, Any]]] = []
"""Messages and keywords that the model was asked with, the latest last."""


def act(messages: Any, **options: Any) -> Sequence[Event]:
    """Calls each tool once, until there is a result."""
    SEEN.append((messages, options))
    if any(one.role == "tool" for one in messages):
        return [Text("done")]
    events = list[Event]()
    for place, tool in enumerate(options["tools"]):
        name, takes = tool["function"]["name"], tool["function"]["parameters"].get("properties", {})
        written = json.dumps({"input": PATCH} if takes else {"id": 1})
        events.append(CallStart(place, f"call_{place}", name))
        events += [CallArguments(place, part) for part in (written[:14], written[14:15], written[15:])]
        events.append(CallEnd(place))
    return events


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        return scripted(modelkit.load(folder, home=home), act)

    with (
        served(opened, home) as address,
        openai.OpenAI(
            api_key="x", base_url=f"{address}/v1", max_retries=0, _strict_response_validation=True
        ) as made,
    ):
        yield made


def test_a_custom_tool_of_a_chat_takes_a_text(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "custom", "custom": FREE}]
    asked: Any = {
        "model": "actor",
        "tools": tools,
        "tool_choice": {"type": "custom", "custom": {"name": "patch"}},
    }
    made = client.chat.completions.create(messages=HI, **asked)
    (told,), choice = SEEN[-1][1]["tools"], SEEN[-1][1]["tool_choice"]
    assert (told["function"]["description"], choice) == ("Changes files.", "patch")
    assert told["function"]["parameters"]["properties"] == {"input": {"type": "string"}}
    (call,) = made.choices[0].message.tool_calls or []
    assert call.type == "custom"
    assert (call.custom.name, call.custom.input) == ("patch", PATCH)
    again = [*HI, made.choices[0].message.model_dump(exclude_none=True)]
    again.append({"role": "tool", "tool_call_id": call.id, "content": "ok"})
    assert client.chat.completions.create(messages=again, **asked).choices[0].message.content == "done"
    assert SEEN[-1][0][1].tool_calls[0].arguments == {"input": PATCH}


def test_a_custom_call_comes_piece_by_piece(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "custom", "custom": FREE}]
    # Not strict: its types know only functions in a stream.
    with openai.OpenAI(api_key="x", base_url=client.base_url) as lenient:
        stream = lenient.chat.completions.create(model="actor", messages=HI, tools=tools, stream=True)
        parts = [one.to_dict() for chunk in stream for one in chunk.choices[0].delta.tool_calls or []]
    assert parts[0] == {
        "index": 0,
        "id": "call_0",
        "type": "custom",
        "custom": {"name": "patch", "input": ""},
    }
    texts: list[str] = [part["custom"]["input"] for part in parts]  # pyright: ignore
    assert "".join(texts) == PATCH
    assert len([text for text in texts if text]) > 1


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_of_a_response_go_round(client: openai.OpenAI, streamed: bool) -> None:
    tools: Any = [{"type": "custom", **FREE}, CRM]
    if streamed:
        with client.responses.stream(model="actor", input="hi", tools=tools) as stream:
            events = list(stream)
        made = stream.get_final_response()
        deltas = [one.delta for one in events if one.type == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == PATCH * 2
        whole = [one.input for one in events if one.type == "response.custom_tool_call_input.done"]
        assert whole == [PATCH, PATCH]
    else:
        made = client.responses.create(model="actor", input="hi", tools=tools)
    names = [one["function"]["name"] for one in SEEN[-1][1]["tools"]]
    assert names == ["patch", "crm__find", "crm__note"]
    assert SEEN[-1][1]["tools"][1]["function"]["description"] == "Customers.\n\nOne."
    calls: list[Any] = list(made.output)
    assert [one.type for one in calls] == ["custom_tool_call", "function_call", "custom_tool_call"]
    assert [(one.namespace, one.name) for one in calls] == [(None, "patch"), ("crm", "find"), ("crm", "note")]
    assert [calls[0].input, calls[1].arguments, calls[2].input] == [PATCH, '{"id": 1}', PATCH]
    assert [one.to_dict()["type"] for one in made.tools] == ["custom", "namespace"]
    results: Any = [{"type": f"{one.type}_output", "call_id": one.call_id, "output": "ok"} for one in calls]
    back: Any = [{"role": "user", "content": "hi"}, *(one.to_dict() for one in made.output), *results]
    done = client.responses.create(model="actor", input=back, tools=tools)
    assert done.output_text == "done"
    assert [one.name for one in SEEN[-1][0][1].tool_calls] == names
    gone_on = client.responses.create(model="actor", previous_response_id=made.id, input=results, tools=tools)
    assert gone_on.output_text == "done"


def test_a_tool_is_chosen_by_its_name_in_its_namespace(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "name": "find", "namespace": "crm"}
    client.responses.create(model="actor", input="hi", tools=[CRM], tool_choice=choice)
    assert SEEN[-1][1]["tool_choice"] == "crm__find"
    allowed: Any = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{**choice, "type": "custom", "name": "note"}],
    }
    client.responses.create(model="actor", input="hi", tools=[CRM], tool_choice=allowed)
    assert [one["function"]["name"] for one in SEEN[-1][1]["tools"]] == ["crm__note"]


OTHERS: Any = [
    [CRM, {"type": "function", "name": "crm__find"}],
    [{"type": "function", "name": "crm__note"}, CRM],
    [{"type": "custom", **FREE}, {"type": "function", **FREE}],
]


@pytest.mark.parametrize("tools", OTHERS, ids=["behind a namespace", "before a namespace", "of two kinds"])
def test_two_tools_under_one_name_are_refused(client: openai.OpenAI, tools: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=r"two tools are '(crm__find|crm__note|patch)'"):
        client.responses.create(model="actor", input="hi", tools=tools)


def test_a_regex_is_enforced_and_a_lark_grammar_is_told(client: openai.OpenAI) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+|x"}
    lark = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    tools: Any = [{"type": "custom", **FREE, "format": form}, {"type": "custom", "name": "l", "format": lark}]
    made = client.responses.with_raw_response.create(model="actor", input="hi", tools=tools)
    first, second = (one["function"]["parameters"]["properties"]["input"] for one in SEEN[-1][1]["tools"])
    assert first["pattern"] == "^(?:[0-9]+|x)$"
    assert second["description"].endswith('start: "a"')
    assert "the input of l is not held to its grammar" in made.headers["x-modelkit-notes"]


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"type": "grammar", "grammar": {"syntax": "ebnf", "definition": "a"}}, "grammar.syntax"),
        ({"type": "grammar", "grammar": {"definition": "a"}}, "grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "regex"}}, "grammar.definition"),
        ({"type": "xml"}, "type"),
    ],
)
def test_a_format_that_is_none_is_refused_by_its_field(form: Any, field: str) -> None:
    body = Fields({"tools": [{"type": "custom", "custom": {**FREE, "format": form}}]})
    with pytest.raises(Refused) as refused:
        read_tools(body)
    assert refused.value.fault.param == f"tools[0].custom.format.{field}"


@given(st.text(), st.booleans(), st.data())
def test_the_text_of_a_call_comes_in_any_pieces(text: str, plain: bool, data: st.DataObject) -> None:
    written, taken, said = json.dumps({"input": text}, ensure_ascii=plain), Input(), ""
    while written:
        assert not taken.whole
        count = data.draw(st.integers(1, len(written)))
        said += taken.add(written[:count])
        written = written[count:]
        assert text.startswith(said)
        if written == "}":
            break
    assert taken.whole
    assert said == text
