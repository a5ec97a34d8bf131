"""While a form is read, other threads wait less for the interpreter; then as long as before."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from modelkit.grammars.notations import limits as rule_limits
from modelkit.grammars.schemas import limits as schema_limits
from modelkit.grammars.thread_switching import short_switch_interval


@pytest.mark.parametrize(
    ("form", "room", "asked"),
    [
        (Form("format", "schema", '{"type": "object", "minProperties": 2}'), schema_limits, "schema_fault"),
        (Form("grammar", "lark", 'start: "a"'), rule_limits, "grammar_fault"),
    ],
)
def test_others_are_let_in_while_a_form_is_read(
    monkeypatch: pytest.MonkeyPatch, form: Form, room: ModuleType, asked: str
) -> None:
    seen, usual = list[float](), sys.getswitchinterval()
    known: Callable[[object], str | None] = getattr(room, asked)

    def told(what: object) -> str | None:
        seen.append(sys.getswitchinterval())
        return known(what)

    monkeypatch.setattr(room, asked, told)
    check(form)
    assert max(seen) < usual / 5
    assert sys.getswitchinterval() == usual


def test_it_lasts_as_long_as_anyone_is_at_work() -> None:
    usual = sys.getswitchinterval()
    with short_switch_interval():
        with pytest.raises(RequestError):
            _fails()
        assert sys.getswitchinterval() < usual
    assert sys.getswitchinterval() == usual


@short_switch_interval()
def _fails() -> None:
    raise RequestError("wrong")
