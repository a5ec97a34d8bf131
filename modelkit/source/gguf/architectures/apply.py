"""Origins computed on arrays, numpy's or MLX's: for tests, small tensors, and the pairs of an adapter."""

from collections.abc import Callable
from typing import Any

from modelkit.source.gguf.architectures.moves import Origin


def apply(origin: Origin, tensor: Callable[[str], Any], xp: Any) -> Any:
    """The tensor that `origin` describes. tensor: an array by name; xp: the module of the arrays.

    Packed rows may be given for a tensor whose numbers do not change: [rows, bytes], which is also what comes
    back then.
    """
    parts: list[Any] = []
    for run in origin.runs:
        rows = tensor(run.tensor).reshape(run.of, -1)
        parts.append(rows[run.start : run.stop : run.step])
    moved = parts[0] if len(parts) == 1 else xp.concatenate(parts)
    if origin.change is not None:
        before = origin.change.before(origin.shape)
        return origin.change.apply(moved.reshape(before), xp)
    size = 1
    for length in origin.shape:
        size *= length
    return moved.reshape(origin.shape) if moved.size == size else moved
