"""Shapes of what a network holds, and of the same in checkpoints: which way round, and what is a row there.

Experts that are stored without `.weight` may be [in, out]; the shape of the mixture's other matrix tells.

Dimensions: E experts, M numbers inside an expert, D outside.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import mlx.core as mx

from runtime.loading.unused import adapted
from runtime.models.registry.described import Described
from runtime.weights.fit import parameters_of

Shape = tuple[int, ...]
Form = Literal["published", "mlx"]
"""Whose convention the numbers follow, where the two differ: that of published files (transformers'), or that
of mlx-lm's conversions (filters in its axis order, 1 added to norms, multipliers folded in)."""

_known: tuple[tuple[Described, Mapping[str, Shape]], ...] = ()
"""The models that were asked about last, and what `parameters` said: every adapter of a model, and every
stack of its experts, asks anew, and making a network takes longer than all that is asked of it.
"""


def parameters(described: Described) -> Mapping[str, Shape]:
    """name -> shape of all that the network holds, unpacked. Nothing is allocated."""
    global _known
    for model, shapes in _known:
        if model == described:
            return shapes
    held = parameters_of(described.network())
    found = MappingProxyType({name: tuple(array.shape) for name, array in held.items()})
    _known = ((described, found), *_known[:3])
    return found


def in_form(network: Mapping[str, Shape], form: Form) -> dict[str, Shape]:
    """The network's own parameters as a checkpoint of that form has them: filters tell which it is."""
    if form == "mlx":
        return dict(network)
    return {
        name: (shape[0], shape[2], shape[1])
        if "conv" in name and len(shape) == 3 and shape[2] == 1
        else shape
        for name, shape in network.items()
    }


def output_first(described: Described, name: str, shape: Shape, form: Form) -> Shape:
    """The shape of a whole tensor, turned where that form has such a matrix or stack input first."""
    if is_transposed(described, name, shape, form):
        return shape[::-1]
    if not is_stack(name) or len(shape) != 3:
        return shape
    turned = (shape[0], shape[2], shape[1])
    as_it_is = False in stack_layouts(described, name, shape)
    return turned if not as_it_is and True in stack_layouts(described, name, turned) else shape


def is_transposed(described: Described, name: str, shape: Shape, form: Form) -> bool:
    """Does transformers hold this matrix [in, out] (GPT-2's `Conv1D`)?"""
    return form == "published" and len(shape) == 2 and name.endswith(described.checkpoint.input_first)


def stack_layouts(described: Described, name: str, shape: Shape) -> tuple[bool, ...]:
    """How a checkpoint of the family may hold this stack of experts: False: [E, out, in], True: [E, in, out].

    Told by the two stacks of a mixture together: with M numbers inside an expert and D outside, one is
    [2M, D] (without gates [M, D]) and the other [D, M]. shape: output first.
    """
    stem, _, leaf = name.rpartition(".")
    experts, rows, columns = shape
    for first, times in (("gate_up_proj", 2), ("up_proj", 1)):
        hidden, inner = (rows, columns) if leaf == "down_proj" else (columns, rows // times)
        pair = {f"{stem}.{first}": (times * inner, hidden), f"{stem}.down_proj": (hidden, inner)}
        found = tuple(turned for turned in (False, True) if _arrive(described, pair, experts, turned))
        if found:
            return found
    return ()


def _arrive(described: Described, pair: Mapping[str, tuple[int, int]], experts: int, turned: bool) -> bool:
    """Do the stacks become parameters of the network, and their rows stay rows?"""
    given: dict[str, mx.array] = {}
    for name, (rows, columns) in pair.items():
        numbers = mx.broadcast_to(mx.arange(rows)[:, None], (experts, rows, columns))
        given[name] = numbers.swapaxes(-1, -2) if turned else numbers
    network, outputs = parameters(described), adapted(described, given)
    return bool(outputs) and all(
        network.get(name) == tuple(array.shape) and mx.array_equal(array[..., 0], array[..., -1]).item()
        for name, array in outputs.items()
    )


def by_numbers(name: str, shape: Shape) -> bool:
    """Is each number a row? So are those of vectors, of filters, whose axes move, and the biases of a stack;
    not a table of places.
    """
    filters = "conv" in name and len(shape) == 3 and 1 in shape[1:]
    return len(shape) < 2 or filters or (name.endswith("bias") and not name.endswith("position_bias"))


def is_stack(name: str) -> bool:
    """Is it a stack of experts that is a parameter by itself, without `.weight`?"""
    return name.endswith((".experts.gate_up_proj", ".experts.up_proj", ".experts.down_proj"))
