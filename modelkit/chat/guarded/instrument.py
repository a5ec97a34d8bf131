"""Bounds on a template's source and tree, and counters put where jinja2 has no hook.

Works on jinja2's public syntax tree: a loop gets a call of `environment.turn` as the first statement of its
body and in its filter; `~` becomes `environment.joined`; operands that may be trees without end, or texts
long enough to make `in` slow, pass a filter that weighs them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from modelkit.chat.guarded.budget import ITEM_BYTES, Overrun

MOST_TOKENS = 50_000
MOST_NODES = 12_000
MOST_NESTING = 80
WEIGHED = "weighed operand"  # with a space: no template can spell it

_POINTER_BYTES = 8
_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict)
# Those that are counted or harmless. What a later jinja2 adds is refused until someone has looked at it.
_SYNTAX = """
    Template Output TemplateData If For Break Continue With Assign AssignBlock ExprStmt Scope Macro CallBlock
    FilterBlock Name NSRef Const List Tuple Dict Pair CondExpr Filter Test Call Keyword Getattr Getitem Slice
    Concat Compare Operand And Or Not Add Sub Mul Div FloorDiv Mod Pow Neg Pos
"""
KNOWN = frozenset(_SYNTAX.split())


class Bounds(Extension):
    """Counts what the lexer reads: a source can hold a token in every second byte."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        environment: Any = self.environment
        for number, token in enumerate(stream):
            environment.budget.tick()
            if number == MOST_TOKENS:
                raise Overrun(f"it has more than {MOST_TOKENS:,} tokens")
            yield token


class Generation(Extension):
    """`{% generation %}` ... `{% endgeneration %}` marks, for training, what a model wrote."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def checked(tree: nodes.Template) -> list[nodes.Node]:
    """All parts of a parsed template, which are bounded; refuses statements that reach outside it, and all
    that are not known.
    """
    found: list[nodes.Node] = []
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        found.append(node)
        if len(found) > MOST_NODES or depth > MOST_NESTING:
            raise Overrun(
                f"it has more than {MOST_NODES:,} parts, or more than {MOST_NESTING} levels of them"
            )
        what = type(node).__name__
        if what not in KNOWN:
            raise jinja2.TemplateSyntaxError(f"a chat template has no use for '{what.lower()}'", node.lineno)
        waiting.extend((child, depth + 1) for child in _children(node))
    return found


def own_names(parts: list[nodes.Node]) -> frozenset[str]:
    """Names that the template with these parts sets and never asks after.

    jinja2 counts a name set in one branch and read outside it as missing. It is meant to come from outside
    only if the template also asks whether it is defined.
    """
    set_here = {one.name for one in parts if isinstance(one, nodes.Name) and one.ctx != "load"}
    asked = {
        one.node.name
        for one in parts
        if isinstance(one, nodes.Test | nodes.Filter)
        and one.name in ("defined", "undefined", "default", "d")
        and isinstance(one.node, nodes.Name)
    }
    return frozenset(set_here - asked)


class Undeclared(CodeGenerator):
    """Writes the template's Python, and collects the names that it expects from outside on the way:
    `jinja2.meta`, which tells them too, writes it once more for that, a quarter of what compiling takes.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        looked_up = (name for action, name in frame.symbols.loads.values() if action == "resolve")
        self.names.update(name for name in looked_up if name is not None)


class Instrument(NodeTransformer):
    """Puts the counters into a parsed template where jinja2 offers no hook."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # jinja2 calls it by this name
        self.generic_visit(node)
        turn = _call("turn", [nodes.Const(_cost(node.body))], node)
        node.body.insert(0, nodes.ExprStmt(turn, lineno=node.lineno))
        if node.test is not None:
            skip = _call("turn", [nodes.Const(0)], node)
            node.test = nodes.And(skip, node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _call("joined", node.nodes, node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        """Two unknown values may be trees without end; a text may be long enough to make `in` slow."""
        self.generic_visit(node)
        operands = [node.expr, *(one.expr for one in node.ops)]
        unknown = [not isinstance(one, nodes.Const) for one in operands]
        weighed = [False] * len(operands)
        for at, one in enumerate(node.ops):
            heavy = one.op in ("in", "notin") or (unknown[at] and unknown[at + 1])
            weighed[at] |= heavy and unknown[at]
            weighed[at + 1] |= heavy and unknown[at + 1]
        node.expr, *others = [
            _weigh(one) if heavy else one for one, heavy in zip(operands, weighed, strict=True)
        ]
        for one, other in zip(node.ops, others, strict=True):
            one.expr = other
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _weigh(node.key)
        return node


def _call(name: str, args: list[nodes.Expr], near: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=near.lineno)


def _weigh(operand: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(operand, WEIGHED, [], [], None, None, lineno=operand.lineno)


def _cost(body: list[nodes.Node]) -> int:
    """What one turn of a loop with this body can leave in memory without passing any counter."""
    printed = literals = 0
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        below = list(_children(node))
        if isinstance(node, nodes.Output):
            printed += len(node.nodes)
        elif isinstance(node, _LITERALS):
            literals += 1 + len(below)
        waiting += below
    return _POINTER_BYTES * printed + ITEM_BYTES * literals


def _children(node: nodes.Node) -> Iterator[nodes.Node]:
    """As jinja2's `iter_child_nodes`, which asks more of each field."""
    for name in node.fields:
        value = getattr(node, name, None)
        if isinstance(value, nodes.Node):
            yield value
        elif isinstance(value, list):
            yield from (one for one in value if isinstance(one, nodes.Node))
