"""While a form is read, other threads wait less for the interpreter; then as long as before."""

import sys
from collections.abc import Callable

import pytest

from modelkit.errors import RequestError
from modelkit.grammars import sound
from modelkit.grammars.aside import aside
from modelkit.grammars.forms import Form
from modelkit.grammars.native import check


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        (Form("format", "schema", '{"type": "object", "minProperties": 2}'), "unsound"),
        (Form("grammar", "lark", 'root ::= "a"'), "unsound_rules"),
    ],
)
def test_others_are_let_in_while_a_form_is_read(
    monkeypatch: pytest.MonkeyPatch, form: Form, asked: str
) -> None:
    seen, usual = list[float](), sys.getswitchinterval()
    known: Callable[[object], str | None] = getattr(sound, asked)

    def told(what: object) -> str | None:
        seen.append(sys.getswitchinterval())
        return known(what)

    monkeypatch.setattr(sound, asked, told)
    check(form)
    assert max(seen) < usual / 5
    assert sys.getswitchinterval() == usual


def test_it_lasts_as_long_as_anyone_is_at_work() -> None:
    usual = sys.getswitchinterval()
    with aside():
        with pytest.raises(RequestError):
            _fails()
        assert sys.getswitchinterval() < usual
    assert sys.getswitchinterval() == usual


@aside()
def _fails() -> None:
    raise RequestError("wrong")
