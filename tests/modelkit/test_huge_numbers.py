"""A number of 4,400 digits, wherever one comes from outside: Python reads and writes none of more than 4,300,
and says so with advice to who writes Python. Users are told what is wrong.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modelkit.chat.find import find_template
from modelkit.chat.guarded import GuardedTemplate
from modelkit.chat.message import Message
from modelkit.cli.repl.settings import read_tools
from modelkit.errors import ModelkitError
from modelkit.grammars.calls.tools import read_tools as read_tool_schemas
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import read_form
from modelkit.ranks.hosts import read_hosts
from modelkit.store.canonical import canonical, parse_object
from modelkit.tokenizer.read import parse_object as parse_tokenizer
from runtime.errors import RuntimeFault
from runtime.loaded import check_ids

DIGITS = "9" * 4400
NUMBER = 10**4400


def _hosts(folder: Path) -> object:
    (folder / "hosts.json").write_text(f'[{{"ssh": "a", "memory": {DIGITS}}}]')
    return read_hosts(folder / "hosts.json")


def _template_file(folder: Path) -> object:
    (folder / "chat_template.json").write_text(f'{{"chat_template": {DIGITS}}}')
    return find_template({"chat_template.json": folder / "chat_template.json"})


def _form(**given: str) -> None:
    form = read_form(given.get("format"), given.get("grammar"), given.get("regex"))
    assert form is not None
    check(form)


def _called(arguments: object) -> object:
    return Message.read(
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}, "it"
    )


READERS: dict[str, Callable[[Path], object]] = {
    "hosts.json": _hosts,
    "chat_template.json": _template_file,
    "tokenizer.json": lambda _: parse_tokenizer(f'{{"id": {DIGITS}}}', "tokenizer.json"),
    "a manifest": lambda _: parse_object(f'{{"size": {DIGITS}}}'.encode(), "the manifest", 10_000),
    "a value to store": lambda _: canonical({"size": NUMBER}),
    "a template": lambda _: GuardedTemplate(f"{{{{ {DIGITS} }}}}").render({}),
    "a template that counts far": lambda _: GuardedTemplate(
        f"{{% for i in range({DIGITS[:400]}) %}}a{{% endfor %}}"
    ).render({}),
    "a grammar": lambda _: _form(grammar=f'root ::= "a"{{{DIGITS}}}'),
    "arguments of a call": lambda _: _called(f'{{"a": {DIGITS}}}'),
    "tools of the REPL": lambda _: read_tools(f"[{DIGITS}]"),
    "a schema": lambda _: read_form({"type": "integer", "minimum": NUMBER}, None, None),
    "a tool": lambda _: read_tool_schemas([{"name": "f", "parameters": {"maximum": NUMBER}}]),
    "a prompt": lambda _: check_ids([NUMBER], 100),
}


@pytest.mark.parametrize("what", READERS)
def test_a_number_of_thousands_of_digits_is_refused_in_our_words(what: str, tmp_path: Path) -> None:
    with pytest.raises((ModelkitError, RuntimeFault)) as raised:
        READERS[what](tmp_path)
    said = str(raised.value)
    ours = "thousands of digits", "too large", "whole number of", "repeats more than"
    assert any(words in said for words in ours)
    assert len(said) < 300
    assert "sys." not in said
    assert sys.get_int_max_str_digits() == 4300
