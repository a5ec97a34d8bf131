"""Which row a model has: named, by its template's marks, by its tokens."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.styles.choice import Choice, choose
from modelkit.chat.styles.table import aliases, fingerprinted, style_named, styles
from modelkit.chat.template import ChatTemplate
from tests.support.styles import style_of

DATA = Path(__file__).parents[3] / "data" / "styles"
# Marks that published templates hold (llama.cpp's models/templates, and those in huggingface.js' map of
# Ollama's library), and the row of each.
PUBLISHED: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "templates.jsonl").read_text(encoding="utf-8").splitlines()
]


def test_every_row_is_read_and_named_once() -> None:
    named = Counter(name for style in styles() for name in (style.name, *aliases(style)))
    assert [name for name, times in named.items() if times > 1] == []
    assert len(styles()) > 40
    assert [style.name for style in styles() if not style.description] == []


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one["template"])
def test_a_published_template_has_its_row(published: dict[str, Any]) -> None:
    found = fingerprinted("\n".join(published["marks"]))
    assert (found.name if found else None) == published["style"]


def test_templates_at_hand_are_the_published_ones(shared_data: Path) -> None:
    """The stored marks are those of the whole templates."""
    rows = {one["sha256"]: one["style"] for one in PUBLISHED}
    checked = 0
    for path in (shared_data / "templates").glob("*.jinja"):
        data = path.read_bytes()
        wanted = rows.get(hashlib.sha256(data).hexdigest())
        if wanted is not None:
            found = fingerprinted(data.decode())
            assert found is not None
            assert found.name == wanted
            checked += 1
    assert checked


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("qwen3-coder", "qwen3-coder"),
        ("Qwen3.5", "qwen3.5"),
        ("gpt-oss", "harmony"),
        ("harmony", "harmony"),
        ("cogito", "deepseek-v3.1"),
        ("nemotron-3-nano", "qwen3.5"),
        ("lfm2-thinking", "lfm2"),
        ("cohere", "command-a"),
        ("passthrough", "passthrough"),
    ],
)
def test_parser_names_a_row_by_its_own_or_by_ollamas_name(name: str, row: str) -> None:
    style = style_of(name)
    assert style.name == row
    assert choose(ChatTemplate("<think>"), parser=name) == Choice(style, "parser")


def test_an_unknown_parser_counts_as_none() -> None:
    assert style_named("none-such") is None
    assert choose(None, parser="none-such") == Choice(None, "nothing")
    choice = choose(ChatTemplate("{# <minimax:tool_call> #}"), parser="none-such")
    assert choice.how == "template"
    assert choice.style is style_named("minimax-m2")


def test_a_template_that_only_switches_thinking_on_has_the_usual_marks() -> None:
    """As Cogito v1's, which ask for thinking in words."""
    source = "{% if enable_thinking %}Think!{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
    usual = style_of("qwen3")
    assert choose(ChatTemplate(source)) == Choice(style_named("think"), "template")
    style = choose(ChatTemplate(source + "{# <tool_call> #}")).style
    assert style is not None
    assert (style.name, style.think) == ("hermes", usual.think)


def test_answers_of_chatglm3_end_where_somebody_else_speaks() -> None:
    """Its files name `</s>` alone."""
    told = "{% for m in messages %}[gMASK]sop<|{{ m.role }}|>\n {{ m.content }}{% endfor %}<|assistant|>"
    style = choose(ChatTemplate(told)).style
    assert style is not None
    assert (style.name, style.stops) == ("chatglm3", ("<|user|>", "<|observation|>"))


def test_tokens_tell_where_the_template_does_not() -> None:
    tokens = {"<|tool_call_start|>", "<|tool_call_end|>"}
    lfm = style_named("lfm2")
    assert choose(ChatTemplate("{# <think> #}"), tokens=tokens) == Choice(lfm, "tokens")
    assert choose(ChatTemplate("{# <tool_call> #}"), tokens=tokens).style is style_named("hermes")
    assert choose(ChatTemplate("plain"), tokens={"<|tool_call_start|>"}) == Choice(None, "nothing")
