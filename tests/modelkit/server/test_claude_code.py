"""A conversation as Claude Code has it: a long system text with a line that changes, twenty tools, results of
tools, reminders of the system in the middle. From the second turn on its prompt is found again.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import anthropic
import pytest

import modelkit
from modelkit.model import Model
from tests.support.served import served
from tests.support.tiny import write_model

TEMPLATE = (
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% endif %}"
    "{% for tool in tools or [] %}<tool>{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{% if not (loop.first and message.role == 'system') %}"
    "{% if message.role == 'system' %}{{ raise_exception('late system') }}{% endif %}"
    "<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOLS: list[Any] = [
    {
        "name": f"Tool{number}",
        "description": f"Does thing {number}.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
        **({"cache_control": {"type": "ephemeral"}} if number == 19 else {}),
    }
    for number in range(20)
]
requests = count()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[anthropic.Anthropic]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=16384)

    def opened(name: str) -> Model:
        return modelkit.load(folder, home=home, cache_memory="100MB")

    with (
        served(opened, home, default_model="coder") as url,
        anthropic.Anthropic(auth_token="any", base_url=url, max_retries=0) as client,
    ):
        yield client


def ask(client: anthropic.Anthropic, messages: list[Any]) -> anthropic.types.Message:
    billing = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={next(requests)};"
    with client.messages.stream(
        model="claude-next-9",
        max_tokens=4,
        system=[
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent. " * 8, "cache_control": {"type": "ephemeral"}},
        ],
        tools=TOOLS,
        messages=messages,
        thinking={"type": "adaptive"},
        metadata={"user_id": "user_1"},
        extra_query={"beta": "true"},
        extra_headers={"anthropic-beta": "claude-code-20250219"},
        stop_sequences=["\x00"],
    ) as stream:
        return stream.get_final_message()


def test_the_prompt_is_found_again_from_the_second_turn_on(client: anthropic.Anthropic) -> None:
    talk: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Look at a.txt"}]}]
    first = ask(client, talk).usage
    assert first.cache_read_input_tokens == 0
    call = {"type": "tool_use", "id": "toolu_1", "name": "Tool3", "input": {"path": "a.txt"}}
    talk += [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "nothing in it"},
                {"type": "text", "text": "<system-reminder>Be careful.</system-reminder>"},
            ],
        },
    ]
    second = ask(client, talk).usage
    assert (second.cache_read_input_tokens or 0) > 0.95 * first.input_tokens
    talk += [{"role": "system", "content": "The user is away."}]
    third = ask(client, talk).usage
    assert (third.cache_read_input_tokens or 0) > 0.95 * (first.input_tokens + second.input_tokens)
    talk += [{"role": "assistant", "content": "It is empty."}, {"role": "user", "content": "And b.txt?"}]
    fourth = ask(client, talk).usage
    whole = (third.cache_read_input_tokens or 0) + third.input_tokens
    assert (fourth.cache_read_input_tokens or 0) >= 0.95 * (whole - len("<assistant>"))


def test_a_small_request_beside_does_not_push_the_prompt_out(client: anthropic.Anthropic) -> None:
    talk: list[Any] = [{"role": "user", "content": "Hello"}]
    ask(client, talk)
    title = client.messages.create(model="claude-next-small", max_tokens=2, messages=talk)
    assert title.usage.output_tokens <= 2
    again = ask(client, [*talk, {"role": "assistant", "content": "Hi"}, *talk]).usage
    assert (again.cache_read_input_tokens or 0) > 0.95 * again.input_tokens
    assert again.input_tokens < 100
