"""A tree as jinja that makes the same text.

Go's variables live in the block that declares them, jinja's in the loop; so each declaration gets a name of
its own, and a variable that is assigned to later lies in a namespace, which outlives a loop's turns. Blocks
are written `{%+ ... +%}`: blanks around them are text in Go.
"""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from modelkit.chat.go.functions import check_format
from modelkit.chat.go.lexer import fault
from modelkit.chat.go.tree import (
    Action,
    Branch,
    Field,
    Function,
    Group,
    Leave,
    Literal,
    Node,
    Nodes,
    Operand,
    Pipe,
    Text,
    Variable,
)

_JINJA = ("{{", "{%", "{#", "\r")
_DATES = {
    "currentDate": 'strftime_now("%Y-%m-%d")',
    "yesterdayDate": 'go_day_before(strftime_now("%Y-%m-%d"))',
}
_LONGEST = 200_000


def emit(nodes: Nodes, root: str, assigned: frozenset[str]) -> str:
    """jinja that prints the nodes, where the variable `root` has the data. assigned: Go's variables that are
    set again after their declaration.
    """
    return "".join(_Emitter(root, assigned).nodes(nodes))


class _Emitter:
    def __init__(self, root: str, assigned: frozenset[str]) -> None:
        self._dot, self._assigned = root, assigned
        self._names: list[dict[str, str]] = [{"$": root}]
        self._count = 0

    def nodes(self, nodes: Nodes) -> Iterator[str]:
        for node in nodes:
            yield from self._node(node)

    def _node(self, node: Node) -> Iterator[str]:
        match node:
            case Text():
                yield _text(node.text)
            case Leave():
                yield _block(node.keyword)
            case Action() if node.pipe.variables:
                yield self._set(node.pipe)
            case Action():
                yield f"{{{{ go_text({self._value(node.pipe)}) }}}}"
            case Branch(keyword="range"):
                yield from self._range(node)
            case Branch():
                yield from self._condition(node)

    def _condition(self, node: Branch) -> Iterator[str]:
        """`if` and `with`"""
        with self._scope():
            name = None
            if node.pipe.variables:
                yield self._set(node.pipe)
                name = self._jinja_name(node.pipe.variables[0])
            elif node.keyword == "with":
                name = self._new("dot")
                yield _block(f"set {name} = {self._value(node.pipe)}")
            yield _block(f"if go_true({name or self._value(node.pipe)})")
            with self._scope(name if node.keyword == "with" else None):
                yield from self.nodes(node.body)
            if node.other is not None:
                yield _block("else")
                with self._scope():
                    yield from self.nodes(node.other)
            yield _block("endif")

    def _range(self, node: Branch) -> Iterator[str]:
        names = node.pipe.variables
        key, element = self._new("key"), self._new("dot")
        with self._scope():
            yield _block(f"for {key}, {element} in go_pairs({self._value(node.pipe)})")
            with self._scope(element):
                of = {2: (key, element), 1: (element,), 0: ()}[len(names)]
                for variable, value in zip(names, of, strict=True):
                    yield self._put(variable, value, declares=not node.pipe.assigns)
                yield from self.nodes(node.body)
            if node.other is not None:
                yield _block("else")
                with self._scope():
                    yield from self.nodes(node.other)
            yield _block("endfor")

    def _set(self, pipe: Pipe) -> str:
        return self._put(pipe.variables[0], self._value(pipe), declares=not pipe.assigns)

    def _put(self, variable: str, value: str, *, declares: bool) -> str:
        if not declares:
            return _block(f"set {self._jinja_name(variable)} = {value}")
        name = self._new(f"var_{variable[1:]}")
        held = variable in self._assigned
        self._names[-1][variable] = f"{name}.value" if held else name
        return _block(f"set {name} = namespace(value={value})" if held else f"set {name} = {value}")

    @contextmanager
    def _scope(self, dot: str | None = None) -> Generator[None]:
        before = self._dot
        self._dot = dot or before
        self._names.append({})
        yield
        self._names.pop()
        self._dot = before

    def _new(self, name: str) -> str:
        self._count += 1
        return f"{name}_{self._count}"

    def _jinja_name(self, variable: str) -> str:
        return next(scope[variable] for scope in reversed(self._names) if variable in scope)

    def _value(self, pipe: Pipe) -> str:
        """The expression of a pipe: each command is the last argument of the next."""
        value: str | None = None
        for command in pipe.commands:
            value = self._command(command, value)
            if len(value) > _LONGEST:
                raise fault(pipe.place, "this expression is too long")
        assert value is not None
        return value

    def _command(self, operands: tuple[Operand, ...], last: str | None) -> str:
        first = operands[0]
        given = [self._operand(one) for one in operands[1:]] + ([last] if last is not None else [])
        if not isinstance(first, Function):
            return self._operand(first)
        if first.name in _DATES:
            return _DATES[first.name]  # the argument, a format, means nothing to Ollama either
        if first.name in ("and", "or"):
            return _lazy(first, given)
        if first.name == "printf":
            _check_printf(operands)
        return f"go_{first.name}({', '.join(given)})"

    def _operand(self, one: Operand) -> str:
        match one:
            case Literal():
                return _literal(one.value)
            case Field():
                return _fields(self._dot, one.names)
            case Variable():
                return _fields(self._jinja_name(one.name), one.names)
            case Group():
                return _fields(self._value(one.pipe), one.names)
            case Function():
                return self._command((one,), None)


def _lazy(function: Function, given: list[str]) -> str:
    """`and` gives the first value that is false, `or` the first that is true, else both the last; what stands
    behind is not looked at.
    """
    if not given:
        raise fault(function.place, f"{function.name} has no arguments")
    *before, value = given
    for one in reversed(before):
        first, second = (value, one) if function.name == "and" else (one, value)
        value = f"({first} if go_true({one}) else {second})"
    return value


def _check_printf(operands: tuple[Operand, ...]) -> None:
    form = operands[1] if len(operands) > 1 else None
    if isinstance(form, Literal) and isinstance(form.value, str) and (problem := check_format(form.value)):
        raise fault(form.place, problem)


def _fields(value: str, names: tuple[str, ...]) -> str:
    return f"go_field({', '.join([value, *map(_literal, names)])})" if names else value


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    # ASCII where jinja's own escapes read it, which know no pairs of surrogates.
    return "".join(c if ord(c) > 0xFFFF else json.dumps(c)[1:-1] for c in text).join('""')


def _text(text: str) -> str:
    """As it is where jinja lets it stand; its lexer turns line ends into one kind."""
    if any(mark in text for mark in _JINJA) or text.endswith(("{", "\n")):
        return f"{{{{ {_quoted(text)} }}}}"
    return text


def _block(text: str) -> str:
    return f"{{%+ {text} +%}}"
