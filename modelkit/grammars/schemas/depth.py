"""How deep a schema or a grammar goes when its references are followed.

The library that compiles them follows references by recursion, on the stack of the thread that asks: some
1,600 schemas one in another, or 2,000 rules, fill 8 MB of it and end the process. What is counted here is
never less than what the library does, as it visits each description once: along a way through the references,
the depths of all that are passed; of those that refer to each other in a circle, the depths of all.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from modelkit.schema import target

# These compile on 2 MB of stack, the least that glibc gives a thread; 1 MB is too little.
DEEPEST_SCHEMA = 400
DEEPEST_JSON = 120
"""Objects and lists in each other, as a schema is written: its reader takes 127, and some stand around it."""

_ASIDE = frozenset({"$defs", "definitions", "const", "enum", "default", "examples"})

_Key = TypeVar("_Key", bound=Hashable)


def depth_of_schema(root: Mapping[str, Any]) -> int:
    """Of a schema, in schemas."""
    weights, edges = dict[int, int](), dict[int, list[int]]()
    left: list[Any] = [root]
    while left:
        entry = left.pop()
        if id(entry) in weights:
            continue
        deepest, targets = 0, list[Any]()
        for schema, depth in _within(entry):
            deepest = max(deepest, depth)
            for key in ("$ref", "$dynamicRef", "$recursiveRef"):
                if key in schema:
                    found = target(schema[key], root)
                    if not isinstance(found, Mapping):  # by its name: it may be anywhere
                        return sum(1 for _ in _within(root, frozenset()))
                    targets.append(found)
        weights[id(entry)], edges[id(entry)] = deepest, [id(one) for one in targets]
        left += targets
    return heaviest_path(weights, edges)


def depth_of_json(root: object) -> int:
    """Of a value, in objects and lists."""
    deepest, left = 0, [(root, 1)]
    while left:
        value, depth = left.pop()
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
        if inner is not None:
            deepest = max(deepest, depth)
            left += [(one, depth + 1) for one in inner]
    return deepest


def heaviest_path(weights: Mapping[_Key, int], edges: Mapping[_Key, Sequence[_Key]]) -> int:
    """The greatest weight of a way through a graph that passes each node once, or more than that: nodes in a
    circle count as if all were passed.
    """
    best: dict[_Key, int] = {}
    order, lowest, place = dict[_Key, int](), dict[_Key, int](), dict[_Key, int]()
    trail: list[_Key] = []
    for start in weights:
        entering: _Key | None = None if start in order else start
        calls: list[tuple[_Key, Iterator[_Key]]] = []
        while entering is not None or calls:  # Tarjan's search, without recursion
            if entering is not None:
                order[entering] = lowest[entering] = len(order)
                place[entering] = len(trail)
                trail.append(entering)
                calls.append((entering, iter(edges[entering])))
            node, left = calls[-1]
            entering = next((one for one in left if one not in best), None)
            if entering in order:
                lowest[node], entering = min(lowest[node], order[entering]), None
            elif entering is None:
                calls.pop()
                if calls:
                    lowest[calls[-1][0]] = min(lowest[calls[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    _close(trail, place[node], weights, edges, best)
    return max(best.values(), default=0)


def _close(
    trail: list[_Key],
    start: int,
    weights: Mapping[_Key, int],
    edges: Mapping[_Key, Sequence[_Key]],
    best: dict[_Key, int],
) -> None:
    """The nodes from here on are one circle, or one node."""
    circle = trail[start:]
    del trail[start:]
    behind = max((best.get(one, 0) for node in circle for one in edges[node]), default=0)
    whole = sum(weights[node] for node in circle) + behind
    best.update(dict.fromkeys(circle, whole))


def _within(entry: Any, aside: frozenset[str] = _ASIDE) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The schemas that are written in one, itself first, and how deep each is."""
    left: list[tuple[Any, int]] = [(entry, 1)]
    while left:
        value, depth = left.pop()
        if isinstance(value, Mapping):
            yield value, depth
            left += [(inner, depth + 1) for key, inner in value.items() if key not in aside]
        elif isinstance(value, list):
            left += [(inner, depth) for inner in value]
