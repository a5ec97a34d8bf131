"""What clients send: what acts, what passes since it carries nothing, and what is refused by its name."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.message import Message, ToolCall
from modelkit.errors import ModelkitError
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai import chat_request, completion_request, response_request, sampling
from modelkit.server.openai.chat_request import ChatRequest, read_chat
from modelkit.server.openai.completion_request import read_completion
from modelkit.server.openai.response_request import read_response
from modelkit.server.openai.response_store import Kept
from modelkit.server.openai.sampling import seeds

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
OTHER = {"type": "function", "function": {"name": "g", "description": "does g"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def chat(**body: Any) -> ChatRequest:
    return read_chat(Fields({"model": "m", "messages": [USER], **body}), 8)


def options(**body: Any) -> dict[str, Any]:
    found = chat(**body).options
    assert found.pop("truncate") is False
    return found


WRONG_HINTS: list[tuple[str, Any, str]] = [
    ("user", 5, "a text"),
    ("metadata", ["a"], "an object"),
    ("store", "yes", "true or false"),
    ("safety_identifier", {}, "a text"),
    ("moderation", "m", "an object"),
    ("prediction", "x", "an object"),
    ("verbosity", "loud", "one of low, medium, high"),
    ("web_search_options", True, "an object"),
    ("prompt_cache_key", 7, "a text"),
    ("prompt_cache_options", [], "an object"),
    ("prompt_cache_retention", "1h", "one of in_memory, in-memory, 24h"),
    ("cache_prompt", 1, "true or false"),
    ("cache_salt", 1, "a text"),
    ("id_slot", "1", "a whole number"),
    ("slot_id", 1.5, "a whole number"),
    ("request_id", 9, "a text"),
    ("priority", "high", "a whole number"),
    ("spaces_between_special_tokens", "no", "true or false"),
    ("add_special_tokens", 1, "true or false"),
]


def test_no_hint_has_been_forgotten() -> None:
    assert [name for name, _, _ in WRONG_HINTS] == [*sampling.HINTS]


@pytest.mark.parametrize(("field", "value", "expected"), WRONG_HINTS)
def test_what_changes_nothing_is_what_it_is_on_the_wire_all_the_same(
    field: str, value: Any, expected: str
) -> None:
    with pytest.raises(Refused, match=f"^{field} is .*, expected {expected}$"):
        chat(**{field: value})
    with pytest.raises(Refused, match=f"^{field} is "):
        read_response(Fields({"model": "m", "input": "x", field: value}), Kept())
    with pytest.raises(Refused, match=f"^{field} is "):
        read_completion(Fields({"model": "m", "prompt": "x", field: value}), 8)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"metadata": {"a": 5}}, "metadata.a is 5, expected a text"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity is 'loud', expected one of low, medium, high"),
        ({"max_tool_calls": "2"}, "max_tool_calls is '2', expected a whole number"),
        ({"client_metadata": "x"}, "client_metadata is 'x', expected an object"),
        ({"context_management": [5]}, r"context_management\[0\] is 5, expected an object"),
        ({"personality": 5}, "personality is 5, expected a text"),
        ({"stream_options": {"include_obfuscation": 5}}, "stream_options.include_obfuscation is 5"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls is 'no', expected true or false"),
        ({"functions": [5]}, "functions are given as tools"),
    ],
)
def test_so_is_what_responses_alone_have(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        read_response(Fields({"model": "m", "input": "x", **body}), Kept())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"audio": "loud"}, "audio is 'loud', expected an object"),
        ({"function_call": 5}, "function_call is 5, expected a text or an object"),
        ({"guided_decoding_backend": 5}, "guided_decoding_backend is 5, expected a text"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls is 1, expected true or false"),
    ],
)
def test_so_is_what_chats_alone_have(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        chat(**body)


def test_each_prompt_of_a_list_has_a_name() -> None:
    """A list of one was told as `prompt`, as all others were."""

    def called(prompt: Any, row: int) -> str:
        return read_completion(Fields({"model": "m", "prompt": prompt, "n": 2}), 8).prompt_of(row)

    assert called("x", 1) == called([1, 2], 1) == "prompt"
    assert called([[1, 2]], 1) == called(["x"], 0) == "prompt[0]"
    assert called(["x", [1]], 2) == called(["x", [1]], 3) == "prompt[1]"


ACTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
    ({"top_p": 0}, {"top_p": 1e-6}),
    ({"top_k": -1, "min_p": 0.1}, {"top_k": 0, "min_p": 0.1}),
    ({"repetition_penalty": 1.1}, {"repeat_penalty": 1.1}),
    ({"typical": 0.9, "repeat_last_n": 9}, {"typical_p": 0.9, "repeat_last_n": 9}),
    ({"repetition_context_size": 20, "num_draft_tokens": 3}, {"repeat_last_n": 20, "draft_num_predict": 3}),
    ({"xtc_probability": 0.5, "xtc_threshold": 0.2}, {"xtc_probability": 0.5, "xtc_threshold": 0.2}),
    ({"top_n_sigma": -1}, {"top_n_sigma": 0}),
    ({"dynatemp_range": 0.5, "dynatemp_exponent": 2}, {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0}),
    ({"dry_multiplier": 0.8, "dry_base": 1.5}, {"dry_multiplier": 0.8, "dry_base": 1.5}),
    ({"dry_allowed_length": 3, "dry_penalty_last_n": 9}, {"dry_allowed_length": 3, "dry_penalty_last_n": 9}),
    ({"dry_sequence_breakers": ["\n", "x"]}, {"dry_sequence_breakers": ["\n", "x"]}),
    ({"dry_sequence_breakers": []}, {"dry_sequence_breakers": []}),
    ({"min_tokens": 5}, {"min_tokens": 5}),
    ({"min_new_tokens": 5, "ignore_eos": False}, {"min_tokens": 5}),
    ({"min_tokens": 5, "ignore_eos": True}, {"min_tokens": 2**31 - 1}),
    ({"presence_penalty": -2, "frequency_penalty": 2}, {"presence_penalty": -2, "frequency_penalty": 2}),
    ({"max_tokens": 5}, {"num_predict": 5}),
    ({"max_tokens": 5, "max_completion_tokens": 7}, {"num_predict": 7}),
    ({"seed": 4}, {"seed": 4}),
    ({"seed": -1}, {}),
    ({"seed": -9007199254740991}, {"seed": 2**63 - 9007199254740991}),
    ({"stop": "x"}, {"stop": ["x"]}),
    ({"stop": ["x", "y", ""]}, {"stop": ["x", "y"]}),
    ({"logit_bias": {"5": -100, "7": 0}}, {"logit_bias": {5: -100.0}}),
    ({"logit_bias": {"no id": 0}}, {}),
    ({"logprobs": True}, {"top_logprobs": 0}),
    ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 3}),
    ({"logprobs": False, "top_logprobs": 0}, {}),
    ({"adapters": {"law": 0.5}}, {"adapters": {"law": 0.5}}),
    ({"reasoning_effort": "none"}, {"think": False}),
    ({"reasoning_effort": "high"}, {"think": "high"}),
    ({"reasoning": {"effort": "low", "max_tokens": 50}}, {"think": "low", "think_tokens": 50}),
    ({"thinking": {"type": "enabled", "budget_tokens": 9}}, {"think": True, "think_tokens": 9}),
    ({"thinking": {"type": "disabled"}}, {"think": False}),
    ({"enable_thinking": True, "thinking_budget": 7}, {"think": True, "think_tokens": 7}),
    ({"reasoning_budget": 0}, {"think": False}),
    ({"reasoning_budget": -1}, {"think_tokens": -1}),
    ({"think": "medium"}, {"think": "medium"}),
    (
        {"chat_template_kwargs": {"enable_thinking": False, "date": "today"}},
        {"think": False, "variables": {"date": "today"}},
    ),
    ({"response_format": {"type": "text"}}, {}),
    ({"response_format": {"type": "json_object"}}, {"format": "json"}),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"format": SCHEMA}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"format": SCHEMA},
    ),
    ({"json_schema": SCHEMA}, {"format": SCHEMA}),
    ({"guided_json": '{"type": "object"}'}, {"format": {"type": "object"}}),
    ({"guided_choice": ["a.b", "c"]}, {"regex": r"(a\.b)|(c)"}),
    ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
    ({"structured_outputs": {"json": SCHEMA}}, {"format": SCHEMA}),
    ({"grammar": 'root ::= "x"'}, {"grammar": 'root ::= "x"'}),
    ({"tools": [TOOL]}, {"tools": [TOOL]}),
    ({"tools": [TOOL], "tool_choice": "none"}, {"tools": [TOOL], "tool_choice": "none"}),
    ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [TOOL], "tool_choice": "required"}),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tools": [TOOL], "tool_choice": "f"},
    ),
    (
        {
            "tools": [TOOL, OTHER],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
        },
        {"tools": [TOOL], "tool_choice": "required"},
    ),
    (
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"tools": [TOOL], "parallel_tool_calls": False},
    ),
    ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
    ({"functions": [{"name": "f"}], "function_call": "none"}, {}),
]
"""Fields of a request, and the keyword arguments that they become."""

PASSES: list[dict[str, Any]] = [
    {field: None}
    for field in (
        "temperature",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "n",
        "logit_bias",
        "audio",
    )
] + [
    {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
    {"prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low", "web_search_options": {}},
    {"prediction": {"type": "content", "content": "x"}, "moderation": {"model": "m"}},
    {"modalities": ["text"], "audio": {"format": "wav", "voice": "v"}},
    {"mirostat": 0, "ignore_eos": False, "skip_special_tokens": True, "use_beam_search": False},
    {"stream_options": {"include_obfuscation": True}, "best_of": 1},
]

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("frobnicate", {"frobnicate": 1}),
    ("messages", {"messages": []}),
    ("messages", {"messages": None}),
    ("messages[0].role", {"messages": [{"content": "x"}]}),
    ("messages[0].role", {"messages": [{"role": "king", "content": "x"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
    ("messages[0].content[1]", {"messages": [{"role": "user", "content": ["a", {"type": "image_url"}]}]}),
    ("messages[0].images", {"messages": [{**USER, "images": ["aGk="]}]}),
    ("messages[0].audio", {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}),
    (
        "messages",
        {"messages": [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ),
    ("temperature", {"temperature": "hot"}),
    ("n", {"n": 0}),
    ("n", {"n": 9}),
    ("best_of", {"best_of": 3}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("seed", {"seed": True}),
    ("stop", {"stop": 5}),
    ("logit_bias", {"logit_bias": {"the": 5}}),
    ("logit_bias.5", {"logit_bias": {"5": 101}}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("modalities[0]", {"modalities": ["audio"]}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
    ("response_format.json_schema.schema", {"response_format": {"type": "json_schema", "json_schema": {}}}),
    ("guided_json", {"guided_json": "{"}),
    ("guided_json", {"guided_json": f'{{"enum": [{"[]," * 400_000}[]]}}'}),
    ("None", {"response_format": {"type": "json_object"}, "guided_regex": "a"}),
    ("tools[0].type", {"tools": [{"type": "web_search"}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": "sometimes"}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": [{"name": "g"}]}}),
    ("functions", {"functions": [{"name": "f"}]}),
    ("reasoning_effort", {"reasoning_effort": "huge"}),
    ("min_tokens", {"min_tokens": -1}),
    ("ignore_eos", {"ignore_eos": 1}),
    ("mirostat", {"mirostat": 2}),
    ("samplers", {"samplers": ["top_k", "temperature"]}),
    ("bad_words", {"bad_words": ["x"]}),
    ("allowed_token_ids", {"allowed_token_ids": [1]}),
    ("min_keep", {"min_keep": 3}),
    ("xtc_special_tokens", {"xtc_special_tokens": [1]}),
    ("xtc_probability", {"xtc_probability": 1.5}),
    ("top_n_sigma", {"top_n_sigma": -2}),
    ("dynatemp_range", {"dynatemp_range": "wide"}),
    ("dry_base", {"dry_base": 0.5}),
    ("dry_allowed_length", {"dry_allowed_length": 1.5}),
    ("dry_penalty_last_n", {"dry_penalty_last_n": "all"}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": 5}),
    ("dry_sequence_breakers", {"dry_sequence_breakers": [""]}),
    ("stream_options.continuous_usage_stats", {"stream_options": {"continuous_usage_stats": True}}),
    ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
    ("add_generation_prompt", {"add_generation_prompt": False}),
]


@pytest.mark.parametrize(("body", "wanted"), ACTS, ids=lambda one: str(one)[:60])
def test_a_field_acts(body: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = options(**body)
    for tool in found.get("tools", ()):
        tool["function"].setdefault("parameters", {"type": "object", "properties": {}})
    assert found == wanted


@pytest.mark.parametrize("body", PASSES, ids=lambda one: str(one)[:60])
def test_a_field_that_carries_nothing_passes(body: dict[str, Any]) -> None:
    assert options(**body) == {}


@pytest.mark.parametrize(("field", "body"), REFUSED, ids=lambda one: str(one)[:60])
def test_a_field_is_refused_by_name(field: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refused) as error:
        chat(**body)
    assert str(error.value.fault.param) == field
    assert error.value.fault.status == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function is missing, expected an object"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice names no function"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema is missing, expected a JSON schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema is missing, expected a JSON schema",
        ),
        ({"metadata": {}, "tool_choice": []}, "tool_choice is an empty list, expected an object"),
    ],
    ids=lambda one: str(one)[:60],
)
def test_what_is_missing_or_empty_is_said_so(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as error:
        chat(**body)
    assert error.value.fault.message == said


def test_hints_are_named_to_the_client() -> None:
    assert chat(user="u", verbosity=None, prediction={"type": "content"}).hints == ("prediction", "user")


@pytest.mark.parametrize(
    ("tier", "priority"),
    [
        ("auto", None),
        ("default", None),
        ("flex", "background"),
        ("priority", "interactive"),
        ("fast", "interactive"),
    ],
)
def test_a_service_tier_says_who_goes_first(tier: str, priority: str | None) -> None:
    assert chat(service_tier=tier).priority == priority
    asked = Fields({"model": "m", "input": "x", "service_tier": tier, "keep_alive": "5m"})
    assert read_response(asked, Kept()).priority == priority
    assert chat(keep_alive="5m").keep_alive == 300


def test_each_of_several_answers_has_a_seed_of_its_own() -> None:
    assert [seeds({"seed": 2**63 - 1}, row)["seed"] for row in range(3)] == [2**63 - 1, 0, 1]
    assert seeds({"top_k": 1}, 5) == {"top_k": 1}


def message(**given: Any) -> Message:
    return chat(messages=[given, USER]).messages[0]


MESSAGES: list[tuple[dict[str, Any], Message]] = [
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        Message("user", "ab"),
    ),
    ({"role": "developer", "content": "d", "name": "n", "cache_control": {}}, Message("developer", "d")),
    ({"role": "system", "content": None, "tool_calls": []}, Message("system")),
    (
        {
            "role": "assistant",
            "content": "",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
        },
        Message("assistant"),
    ),
    ({"role": "assistant", "content": None, "refusal": "no"}, Message("assistant", "no")),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, Message("assistant", "no")),
    (
        {"role": "assistant", "content": "x", "reasoning_content": "", "reasoning": "hm"},
        Message("assistant", "x", "hm"),
    ),
    (
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            ],
        },
        Message("assistant", tool_calls=(ToolCall("f", {"a": 1}, "c"),)),
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{broken"}}]},
        Message("assistant", tool_calls=(ToolCall("f", {}, "c", "{broken"),)),
    ),
    *(
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}]},
            Message("assistant", tool_calls=(ToolCall("f", {}, "c", text),)),
        )
        for text in ('{"a": 1e999}', '{"a": ' + "[" * 70 + "]" * 70 + "}", f'{{"a": {"9" * 2000}}}')
    ),
    (
        {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
        Message("assistant", tool_calls=(ToolCall("f", {}),)),
    ),
    (
        {"role": "developer", "content": [{"type": "text", "text": "r"}]},
        Message("developer", "r"),
    ),
    ({"role": "function", "name": "f", "content": "r"}, Message("tool", "r", name="f")),
]


@pytest.mark.parametrize(("given", "wanted"), MESSAGES, ids=lambda one: str(one)[:60])
def test_a_message_is_read_as_clients_send_it(given: dict[str, Any], wanted: Message) -> None:
    assert message(**given) == wanted


def test_a_last_message_of_the_assistant_is_gone_on_with() -> None:
    begun = [USER, {"role": "assistant", "content": "Once"}]
    assert options(messages=begun) == {"continue_final": True}
    assert options(messages=begun, continue_final_message=False) == {}
    assert options(messages=begun, add_generation_prompt=True) == {}
    assert options(messages=[USER, {"role": "assistant", "content": ""}]) == {}
    assert len(chat(messages=[USER, {"role": "assistant", "content": None}]).messages) == 1


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_come_in_four_shapes(prompt: Any, wanted: Any) -> None:
    assert read_completion(Fields({"model": "m", "prompt": prompt, "n": 2}), 8).prompts == wanted


@pytest.mark.parametrize(
    "prompt", [None, 5, [], [[]], ["a", 5], [1, "a"], [True], [-1], [2**40], ["a"] * 200]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ModelkitError, match="prompt"):
        read_completion(Fields({"model": "m", "prompt": prompt}), 8)


NAMES = "type text function name arguments content role user assistant tool message input schema json_schema"
WORDS = st.sampled_from(f"{NAMES} allowed_tools mode tools reasoning function_call call_id".split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(WORDS, one, max_size=4), max_leaves=8
)


def bodies(known: frozenset[str], **whole: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Requests that are right but for a few fields."""
    return st.dictionaries(st.sampled_from(sorted(known)), VALUES, max_size=3).map(
        lambda some: {**whole, **some}
    )


@settings(max_examples=120)
@given(body=bodies(chat_request.KNOWN, model="m", messages=[USER], tools=[TOOL]))
def test_any_chat_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(ModelkitError):
        read_chat(Fields(body), 8)


@settings(max_examples=60)
@given(body=bodies(completion_request.KNOWN, model="m", prompt="x"))
def test_any_completion_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(ModelkitError):
        read_completion(Fields(body), 8)


@settings(max_examples=120)
@given(body=bodies(response_request.KNOWN, model="m", input=[USER]))
def test_any_response_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(ModelkitError):
        read_response(Fields(body), Kept())


def test_a_sampler_that_is_not_offered_is_refused_with_what_is() -> None:
    with pytest.raises(Refused, match=r"mirostat is not offered by this server: .*xtc_probability"):
        chat(mirostat=2)
