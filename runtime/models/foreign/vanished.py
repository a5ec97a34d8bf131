"""No tensor of a checkpoint may vanish in a model class's `sanitize`.

A class renames and rearranges what a file holds, and some classes throw away what they do not know: a bias
that routes, a head that is not tied. What comes out must hold all elements that went in. Arrays are lazy and
may be placeholders, so this is told by identity and shape alone, and nothing is read.
"""

from collections.abc import Callable, Iterable, Mapping

import mlx.core as mx

Weights = dict[str, mx.array]
Sanitize = Callable[[Weights], Weights]
_MOST = 3  # names that a refusal needs


def vanished(sanitize: Sanitize, given: Mapping[str, mx.array], made: Mapping[str, mx.array]) -> list[str]:
    """Names in `given` that left no trace in `made`, which is `sanitize(given)`: a few, [] for none."""
    before, after = ({id(array) for array in side.values()} for side in (given, made))
    moved = {name: array for name, array in given.items() if id(array) not in after}
    new = [array for array in made.values() if id(array) not in before]
    if _elements(moved.values()) == _elements(new):
        return []
    lost: list[str] = []
    for name in moved:
        if len(lost) < _MOST and _shapes(made) == _shapes_without(sanitize, given, name):
            lost.append(name)
    return lost or sorted(moved)[:_MOST]


def _elements(arrays: Iterable[mx.array]) -> int:
    return sum(array.size for array in arrays)


def _shapes(weights: Mapping[str, mx.array]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in weights.items()}


def _shapes_without(
    sanitize: Sanitize, given: Mapping[str, mx.array], name: str
) -> dict[str, tuple[int, ...]] | None:
    """What comes out when one tensor is not there; None where the class needs it."""
    rest = {other: array for other, array in given.items() if other != name}
    try:
        return _shapes(sanitize(rest))
    except Exception:  # noqa: BLE001 -- a class of somebody else's may fail in any way
        return None
