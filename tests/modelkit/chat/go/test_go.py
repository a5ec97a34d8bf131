"""Templates in Go's language make the text that Go makes; what is left out is refused by its place."""

import gzip
import json
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.find import find_template
from modelkit.chat.go.convert import to_jinja
from modelkit.chat.guarded import GuardedTemplate
from modelkit.chat.message import Message
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError

DATA = Path(__file__).resolve().parents[3] / "data" / "go" / "templates.json.gz"
TODAY = datetime(2026, 3, 1)  # the oracle's day
COUNT = 138


@cache
def goldens() -> dict[str, Any]:
    return json.loads(gzip.decompress(DATA.read_bytes()))


def rendered(source: str, case: dict[str, Any]) -> str:
    template = GuardedTemplate(to_jinja(source))
    asked = {"messages": case["messages"], "tools": case.get("tools")}
    if "think" in case:
        asked["enable_thinking"] = case["think"]
    return template.render(asked, now=TODAY)


@pytest.mark.parametrize("number", range(COUNT))
def test_text_is_that_of_go(number: int) -> None:
    row = goldens()["templates"][number]
    for case, answer in zip(goldens()["cases"], row["answers"], strict=True):
        if "text" in answer:
            assert rendered(row["source"], case) == answer["text"], row["source"]
        else:
            with pytest.raises(TemplateError):
                rendered(row["source"], case)


def test_all_goldens_are_tried() -> None:
    assert len(goldens()["templates"]) == COUNT


@pytest.mark.parametrize(
    ("source", "place", "says"),
    [
        ('{{ .Prompt }}\n  {{ template "x" }}', "line 2, column 3", "'template' is not supported"),
        ('{{ define "x" }}{{ end }}', "line 1, column 1", "'define'"),
        ("{{ .A | html }}", "line 1, column 9", "no function 'html'"),
        ("{{ if .A }}x", "line 1, column 1", "no {{end}}"),
        ("x{{ end }}", "line 1, column 2", "without anything"),
        ("{{ if .A }}{{ else }}{{ else }}{{ end }}", "line 1, column 22", "a second else"),
        ("{{ .A", "line 1, column 1", "no end"),
        ("{{ $x }}", "line 1, column 4", "$x is not declared"),
        ("{{ range .M }}{{ $y := 1 }}{{ end }}{{ $y }}", "line 1, column 40", "$y is not declared"),
        ("{{ break }}", "line 1, column 1", "inside a range"),
        ("{{ .A .B }}", "line 1, column 4", "not a function"),
        ("{{ (.A }}", "line 1, column 4", "not closed"),
        ("{{ .A ) }}", "line 1, column 7", "one too many"),
        ("{{ 'x' }}", "line 1, column 4", "not understood"),
        ('{{ "\\q" }}', "line 1, column 4", "an escape"),
        ('{{ printf "%999999999d" 1 }}', "line 1, column 11", "at most 64"),
        ('{{ printf "%x" 1 }}', "line 1, column 11", "printf knows"),
        ("{{ }}", "line 1, column 1", "missing"),
        ("{{ .A | }}", "line 1, column 1", "missing"),
        ("{{ and }}", "line 1, column 4", "no arguments"),
        ("{{ if .A }}" * 50 + "{{ end }}" * 50, "line 1, column 441", "more than 40 levels"),
        ("{{ " + "(" * 60 + ".A" + ")" * 60 + " }}", "line 1", "more than 40 levels"),
    ],
)
def test_what_is_left_out_is_refused_by_its_place(source: str, place: str, says: str) -> None:
    with pytest.raises(TemplateError) as caught:
        to_jinja(source)
    assert place in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}{{ .Messages }}",
        "{{ range 1000000 }}x{{ end }}{{ .Messages }}",
        "{{ $x := .System }}{{ range 64 }}{{ $x = print $x $x }}{{ end }}{{ $x }}{{ .Messages }}",
        '{{ $f := "%9999999d" }}{{ printf $f 1 }}{{ .Messages }}',
    ],
)
def test_a_hostile_template_is_stopped(source: str) -> None:
    template = GuardedTemplate(to_jinja(source), seconds=0.3)
    with pytest.raises(TemplateError):
        template.render({"messages": [{"role": "system", "content": "x" * 100}], "tools": None})


WORDS = st.sampled_from(
    [
        *("{{", "}}", "{{-", "-}}", " ", "\n", "if ", "range ", "with ", "else", "end", "break", "(", ")"),
        *("|", ":=", "=", ",", "$x", "$", ".", ".Messages", ".Role", "1", "-3", '"a"', "`b`", "/*", "*/"),
        *("eq ", "len ", "index ", "and ", "or ", "printf ", "json ", "slice ", "text", "{%", "{#", "é", "'"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(words=st.lists(WORDS, max_size=25))
def test_whatever_it_is_only_our_errors_come_out(words: list[str]) -> None:
    with suppress(TemplateError):
        template = GuardedTemplate(to_jinja("".join(words)))
        template.render({"messages": [{"role": "user", "content": "hi"}], "tools": None})


def test_a_template_of_a_modelfile_may_be_gos() -> None:
    source = find_template(
        {}, "{{ if .System }}S:{{ .System }}\n{{ end }}U:{{ .Prompt }}\nA:{{ .Response }}\n"
    )
    assert source is not None
    talk = [Message("system", "be kind"), Message("user", "hi"), Message("assistant", "hello")]
    template = ChatTemplate(source)
    assert template.render([*talk, Message("user", "bye")]) == ("S:be kind\nU:hi\nA:hello\nU:bye\nA:")
    assert template.render(talk, continue_final=True).endswith("A:hello")
    assert template.variables == frozenset()


def test_thinking_can_be_switched_where_the_template_asks() -> None:
    source = to_jinja(
        "{{ range .Messages }}{{ .Content }}{{ end }}{{ if and .IsThinkSet (not .Think) }}/no{{ end }}"
    )
    template = ChatTemplate(source)
    assert template.variables == {"enable_thinking"}
    talk = [Message("user", "hi")]
    assert template.render(talk) == template.render(talk, variables={"enable_thinking": True}) == "hi"
    assert template.render(talk, variables={"enable_thinking": False}) == "hi/no"
