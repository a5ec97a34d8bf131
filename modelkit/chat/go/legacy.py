"""What a template reads, and the tree of its last turn where it is one of the old kind, which is run once for
each turn: its text ends with `.Response`, since there the answer begins.
"""

from collections.abc import Iterator
from dataclasses import replace

from modelkit.chat.go.tree import (
    Action,
    Branch,
    Field,
    Group,
    Leave,
    Node,
    Nodes,
    Operand,
    Pipe,
    Text,
    Variable,
)


def reads(nodes: Nodes) -> frozenset[str]:
    """All names of fields, in lower case."""
    return frozenset(name.lower() for pipe in _pipes(nodes) for name in _names(pipe))


def assigned(nodes: Nodes) -> frozenset[str]:
    """The variables that are set again."""
    return frozenset(name for pipe in _pipes(nodes) if pipe.assigns for name in pipe.variables)


def up_to_response(nodes: Nodes) -> Nodes:
    """Without all that follows the first `.Response` that is printed."""
    return _cut(nodes)[0]


def _cut(nodes: Nodes) -> tuple[Nodes, bool]:
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Branch):
            body, found = _cut(node.body)
            other = node.other
            if not found and other is not None:
                other, found = _cut(other)
            elif found:
                other = None
            kept.append(replace(node, body=body, other=other))
        else:
            kept.append(node)
            found = isinstance(node, Action) and "Response" in _names(node.pipe)
        if found:
            return tuple(kept), True
    return tuple(kept), False


def _pipes(nodes: Nodes) -> Iterator[Pipe]:
    for node in nodes:
        match node:
            case Action():
                yield node.pipe
            case Branch():
                yield node.pipe
                yield from _pipes(node.body)
                yield from _pipes(node.other or ())
            case Text() | Leave():
                pass


def _names(pipe: Pipe) -> Iterator[str]:
    for command in pipe.commands:
        for operand in command:
            yield from _of(operand)


def _of(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Field | Variable | Group):
        yield from operand.names
    if isinstance(operand, Group):
        yield from _names(operand.pipe)
