from pathlib import Path

import pytest

from modelkit.chat.builtin import builtin_templates
from modelkit.chat.capabilities import check_template
from modelkit.chat.message import Message
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError

# System, tools, style, thinking, variables.
REAL = {
    "Qwen-Qwen3-0.6B": (True, True, "qwen3", True, ("enable_thinking",)),
    "google-gemma-4-31B-it": (True, True, "gemma4", True, ("enable_thinking",)),
    "meta-llama-Llama-3.1-8B-Instruct": (
        *(True, True, "llama3", False),
        ("builtin_tools", "custom_tools", "date_string", "tools_in_user_message"),
    ),
    "openai-gpt-oss-120b": (
        *(True, True, "harmony", True),
        ("builtin_tools", "model_identity", "reasoning_effort"),
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_templates_are_read_right(shared_data: Path, name: str):
    source = (shared_data / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    can = check_template(source, bos_token="<s>", eos_token="</s>")
    assert can.style.style is not None
    assert (can.system, can.tools, can.style.style.name, can.thinking, can.variables) == REAL[name]


def test_tools_need_a_known_way_of_calling_them():
    source = (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    )
    assert not check_template(source, parser="passthrough").tools
    assert check_template(source, parser="hermes").tools


def test_a_template_that_ignores_the_system_message_says_so():
    source = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    assert not check_template(source).system


def test_a_template_that_refuses_a_system_message_says_so():
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    assert not check_template(source).system


@pytest.mark.parametrize("source", ["{{ 'hello' }}", "{{ messages[0].content }}", "{{ 1/0 }}", "{{ x.y }}"])
def test_a_template_that_fails_a_plain_conversation_is_refused(source: str):
    with pytest.raises(TemplateError):
        check_template(source)


@pytest.mark.parametrize("name", builtin_templates())
def test_every_builtin_template_takes_a_system_message(name: str):
    assert check_template(builtin_templates()[name].source, bos_token="<s>", eos_token="</s>").system


@pytest.mark.parametrize("name", builtin_templates())
def test_every_builtin_template_works_without_special_tokens(name: str):
    assert check_template(builtin_templates()[name].source)


@pytest.mark.parametrize("name", builtin_templates())
def test_a_prompt_of_a_builtin_template_goes_on_as_its_history_does(name: str):
    """What the model answers after the prompt must stand where the template itself puts an answer."""
    template = ChatTemplate(builtin_templates()[name].source, bos_token="<s>", eos_token="</s>")
    user, answer = Message("user", "Hi"), Message("assistant", "Hello")
    prompt = template.render([user])
    assert template.render([user, answer], add_generation_prompt=False).startswith(prompt)


def test_builtin_stop_strings_do_not_occur_inside_a_turn():
    for builtin in builtin_templates().values():
        assert all(stop and stop not in "Hello, how are you?\n" for stop in builtin.stop)
