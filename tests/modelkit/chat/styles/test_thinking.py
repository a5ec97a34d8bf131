"""What `think` asks for becomes a template's variables, or a refusal that says why."""

from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.message import Message
from modelkit.chat.rendering import Frame, Rendering
from modelkit.chat.styles.choice import choose
from modelkit.chat.styles.table import style_named
from modelkit.chat.styles.thinking import LEVELS, ends_for, nearest, thinking_of, thinking_variables
from modelkit.chat.template import ChatTemplate
from modelkit.errors import RequestError

SAID = "{% for m in messages %}{{ m.content }}{% endfor %}"
OFF = {"enable_thinking": False}
ON = {"enable_thinking": True}

# Template, what is said of it, and the variables of None, True, False and "max".
OFFERED: dict[str, tuple[str, str, Any, Any, Any]] = {
    "on unless switched off": (
        SAID + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
        "on, can be switched off",
        ON,
        OFF,
        ON,
    ),
    "off unless switched on": (
        SAID + "{% if thinking %}<think>{% else %}</think>{% endif %}",
        "off, can be switched on",
        {"thinking": True},
        {"thinking": False},
        {"thinking": True},
    ),
    "three ways": (
        SAID
        + "{% if thinking_mode == 'enabled' %}<think>{% endif %}"
        + "{% if thinking_mode == 'disabled' %}</think>{% endif %}",
        "when the model likes, can be switched off",
        {"thinking_mode": "enabled"},
        {"thinking_mode": "disabled"},
        {"thinking_mode": "enabled"},
    ),
    "a budget": (
        "{% if thinking_budget is defined and thinking_budget == 0 %}<think></think>{% endif %}" + SAID,
        "on, can be switched off",
        {"thinking_budget": -1},
        {"thinking_budget": 0},
        {"thinking_budget": -1},
    ),
    "always": (SAID + "<think>\n", "on, cannot be switched off", {}, None, {}),
    "never": (SAID, "no", None, {}, None),
    "any effort": (
        SAID + "Reasoning: {{ reasoning_effort | default('medium') }}<think>",
        "on, cannot be switched off, levels low, medium, high",
        {},
        None,
        {"reasoning_effort": "high"},
    ),
    "efforts that it knows": (
        "{% if reasoning_effort is defined and reasoning_effort not in ['no_think', 'low', 'high'] %}"
        "{{ raise_exception('effort') }}{% endif %}"
        + SAID
        + "{{ reasoning_effort | default('no_think') }}<think>",
        "off, can be switched on, levels low, high",
        {"reasoning_effort": "high"},
        {"reasoning_effort": "no_think"},
        {"reasoning_effort": "high"},
    ),
    "a switch that says what is left out": (
        SAID + "{{ 'assistant' if skip_reasoning else 'assistant/think' }}",
        "on, can be switched off",
        {"skip_reasoning": False},
        {"skip_reasoning": True},
        {"skip_reasoning": False},
    ),
    "a switch and more of it": (
        SAID + "{% if enable_thinking %}<think>{{ 'much' if reasoning_effort == 'max' }}{% endif %}",
        "off, can be switched on, levels medium, max",
        ON,
        OFF,
        {**ON, "reasoning_effort": "max"},
    ),
}


@pytest.mark.parametrize(("source", "said", "on", "off", "most"), OFFERED.values(), ids=OFFERED)
def test_think_becomes_the_templates_variables(source: str, said: str, on: Any, off: Any, most: Any) -> None:
    template, style = ChatTemplate(source), style_named("qwen3")
    assert thinking_of(style, template).description == said
    assert thinking_variables(style, template, None) == {}
    assert thinking_variables(style, template, "auto") == {}
    for think, wanted in (
        (True, on),
        ("on", on),
        (False, off),
        ("none", off),
        ("max", most),
        ("ULTRA", most),
    ):
        if wanted is None:
            with pytest.raises(RequestError, match="think cannot be o"):
                thinking_variables(style, template, think)
        else:
            assert thinking_variables(style, template, think) == wanted


def test_a_level_is_the_nearest_one_that_the_model_tells_apart() -> None:
    assert [nearest(level, ("low", "medium", "high")) for level in LEVELS] == [
        *("low", "low", "medium", "high", "high", "high")
    ]
    assert nearest("medium", ("low", "high")) == "low"
    assert nearest("xhigh", ("low", "high", "max")) == "high"


@pytest.mark.parametrize("think", ["much", 3, "", ["low"]])
def test_other_words_are_refused(think: Any) -> None:
    with pytest.raises(RequestError, match="expected true, false, auto, or one of minimal, low"):
        thinking_variables(None, ChatTemplate(SAID), think)


def test_a_refusal_says_what_can_be_done() -> None:
    effort, told = ChatTemplate(OFFERED["any effort"][0]), ChatTemplate(SAID + "<think>{# /no_think #}")
    with pytest.raises(RequestError) as refused:
        thinking_variables(style_named("qwen3"), effort, False)
    assert refused.value.hint == "The least that it does is 'low'."
    with pytest.raises(RequestError) as refused:
        thinking_variables(style_named("qwen3"), told, False)
    assert refused.value.hint == "Write /no_think into the system message."


def test_published_templates(shared_data: Path) -> None:
    said = {
        "Qwen-Qwen3-0.6B": ("qwen3", "on, can be switched off"),
        "google-gemma-4-31B-it": ("gemma4", "off, can be switched on"),
        "meta-llama-Llama-3.1-8B-Instruct": ("llama3", "no"),
        "openai-gpt-oss-120b": ("harmony", "on, cannot be switched off, levels low, medium, high"),
    }
    for name, wanted in said.items():
        source = (shared_data / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
        style = choose(template).style
        assert style is not None
        assert (style.name, thinking_of(style, template).description) == wanted


# As Nemotron Nano 2's and SmolLM3's own, which look for words in messages.
BY_WORD = (
    "{% set ns = namespace(on=true) %}{% for m in messages %}"
    "{% if '/think' in m.content %}{% set ns.on = true %}"
    "{% elif '/no_think' in m.content %}{% set ns.on = false %}{% endif %}[{{ m.role }}]"
    "{{ m.content | replace('/think', '') | replace('/no_think', '') }}{% endfor %}[assistant]\n"
    "{% if ns.on %}<think>\n{% else %}<think></think>{% endif %}"
)
BY_BOTH = (
    "{% set on = enable_thinking | default(true) %}{% set first = messages[0].content %}"
    "{% if '/no_think' in first %}{% set on = false %}"
    "{% elif '/think' in first %}{% set on = true %}{% endif %}"
    "[mode {{ on }}]{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]\n"
    "{% if not on %}<think>\n\n</think>\n\n{% endif %}"
)


def prompt_of(source: str, think: str, *texts: str) -> str:
    template, style = ChatTemplate(source), style_named("qwen3")
    messages = [Message("system" if place == 0 else "user", text) for place, text in enumerate(texts)]
    variables = thinking_variables(style, template, think)
    frame = Frame(variables=variables, think=think)
    return Rendering(template, frame, ends_for(style, template, think)).text(messages)


@pytest.mark.parametrize(
    ("source", "closed", "opened"),
    [(BY_WORD, "<think></think>", "<think>\n"), (BY_BOTH, "\n<think>\n\n</think>\n\n", "[assistant]\n")],
)
def test_off_holds_whatever_word_a_message_has(source: str, closed: str, opened: str) -> None:
    assert thinking_of(style_named("qwen3"), ChatTemplate(source)).description == "on, can be switched off"
    for first in ("", "Be brief. /think", "/no_think"):
        for last in ("Hi", "Hi /think"):
            assert prompt_of(source, "off", first, last).endswith(closed)
    for think in ("auto", "on"):
        assert prompt_of(source, think, "", "Hi").endswith(opened)
        assert prompt_of(source, think, "/no_think", "Hi").endswith(closed)


def test_a_word_that_the_template_leaves_to_the_model_changes_no_prompt(shared_data: Path) -> None:
    source = (shared_data / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text(encoding="utf-8")
    closed = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    for word in ("/think", "/no_think"):
        assert prompt_of(source, "off", "", f"Hi {word}").endswith(closed)
        assert prompt_of(source, "on", "", f"Hi {word}").endswith(
            f"Hi {word}<|im_end|>\n<|im_start|>assistant\n"
        )
