"""What the guard knows of jinja2 and of Python is what the installed ones have.

When a new release fails here, look at what it brings: leave it out of reach, or list it and bound it.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from jinja2 import TemplateSyntaxError, filters, nodes, tests

from modelkit.chat.guarded import growth, instrument, reachable
from modelkit.chat.guarded.environment import GuardedEnvironment
from modelkit.chat.guarded.sandbox import GuardedTemplate
from modelkit.errors import TemplateError

INSTALLED = f"jinja2 {version('jinja2')}"
FILTERS_LEFT_OUT = "filesizeformat forceescape pprint random striptags urlencode urlize xmlattr"
NODES_LEFT_OUT = """
    Node Stmt Helper Expr BinExpr UnaryExpr Literal _FilterTestCommon
    Extends Block Include Import FromImport OverlayScope EvalContextModifier ScopedEvalContextModifier
    EnvironmentAttribute ExtensionAttribute ImportedName InternalName MarkSafe MarkSafeIfAutoescape
    ContextReference DerivedContextReference
"""
HANDED_IN = ("budget", "context", "env", "environment", "eval_ctx")
ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Without what jinja2 hands in itself."""
    taken = list(inspect.signature(function).parameters.values())
    return taken[1:] if taken[0].name in HANDED_IN else taken


def shape(taken: list[inspect.Parameter]) -> list[tuple[str, bool]]:
    """The names after the value itself, and whether each may be left out."""
    return [(one.name, one.default is not one.empty) for one in taken[1:]]


def covers(row: list[inspect.Parameter], taken: list[inspect.Parameter]) -> bool:
    """A row may serve a filter and a method, and so take more than one of them."""
    wanted = shape(taken)
    return shape(row)[: len(wanted)] == wanted and all(may for _, may in shape(row)[len(wanted) :])


def takes_anything(taken: list[inspect.Parameter]) -> bool:
    return any(one.kind in ANY for one in taken)


def test_every_filter_is_listed_or_left_out():
    assert set(filters.FILTERS) == reachable.FILTERS | set(FILTERS_LEFT_OUT.split()), INSTALLED


def test_every_test_is_listed():
    assert set(tests.TESTS) == reachable.TESTS, INSTALLED


def test_every_kind_of_syntax_is_listed_or_left_out():
    kinds = {
        one.__name__ for one in vars(nodes).values() if isinstance(one, type) and issubclass(one, nodes.Node)
    }
    assert kinds == instrument.KNOWN | set(NODES_LEFT_OUT.split()), INSTALLED
    operators = {kind.operator for kind in vars(nodes).values() if kind in nodes.BinExpr.__subclasses__()}
    assert operators - {"and", "or"} == GuardedEnvironment.intercepted_binops, INSTALLED


@pytest.mark.parametrize("name", sorted(growth.FILTERS))
def test_a_filter_takes_what_its_row_takes(name: str):
    function = reachable.to_json if name == "tojson" else filters.FILTERS[name]
    row = parameters(growth.FILTERS[name])
    if not takes_anything(row):
        assert covers(row, parameters(function)), INSTALLED


@pytest.mark.parametrize("name", sorted(growth.METHODS))
def test_a_method_takes_what_its_row_takes(name: str):
    row = parameters(growth.METHODS[name])
    try:
        taken = parameters(getattr(str, name))
    except ValueError:  # before Python 3.13 some say nothing of their arguments
        taken = row
    if not takes_anything(row):
        assert len(row) >= len(taken)
        assert all(here for (_, here), (_, there) in zip(shape(row), shape(taken), strict=False) if there)
        by_name = [one.name for one in taken[1:] if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert set(by_name) <= {one.name for one in row}


def test_an_argument_that_is_not_known_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    def indent(s: str, width: int = 4, first: bool = False, blank: bool = False, times: int = 1) -> str:
        return s * times

    monkeypatch.setitem(filters.FILTERS, "indent", indent)
    template = GuardedTemplate("{{ 'a'|indent(times=10**10) }}")
    with pytest.raises(TemplateError, match=r"'indent' is used in a way that is not known here.*'times'"):
        template.render({})


def test_a_filter_that_a_later_jinja_drops_is_missed_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(filters.FILTERS, "wordcount")
    assert GuardedTemplate("{{ 'a'|upper }}").render({}) == "A"
    with pytest.raises(TemplateError, match="wordcount"):
        GuardedTemplate("{{ 'a b'|wordcount }}")


def test_syntax_that_is_not_known_is_refused():
    tree = nodes.Template([nodes.Output([nodes.ContextReference(lineno=3)], lineno=3)], lineno=1)
    with pytest.raises(TemplateSyntaxError, match="no use for 'contextreference'"):
        instrument.checked(tree)
