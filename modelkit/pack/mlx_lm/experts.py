"""Experts as mlx-lm's classes have them: one stack for each matrix of an expert, [experts, out, in]."""

import re
from collections import defaultdict
from collections.abc import Callable

import mlx.core as mx

from modelkit.pack.mlx_lm.mutable_folder import PARTS, MutableFolder
from modelkit.pack.mlx_lm.pieces import CannotFix, Computed, rows, stacked, unstacked
from modelkit.pack.planning.plan_types import Output
from modelkit.source.tensor import TensorInfo

_ONE = re.compile(r"(?P<before>.+)\.experts\.(?P<expert>\d{1,6})\.(?P<after>.+)", re.ASCII)


def stack(folder: MutableFolder, name: str) -> None:
    """Experts one by one, where a package has them so, become `name`."""
    found: dict[str, dict[int, TensorInfo]] = defaultdict(dict)
    for one in folder.names():
        match = _ONE.fullmatch(one)
        if match:
            whole = f"{match['before']}.{name}.{match['after']}"
            found[whole][int(match["expert"])] = folder.tensor(one)
    for whole, parts in found.items():
        if set(parts) != set(range(len(parts))) or len({(p.shape, p.dtype) for p in parts.values()}) != 1:
            raise CannotFix(whole)
        members = [parts[place] for place in range(len(parts))]
        folder.beside(members[0].name, stacked(whole, members))
        gone = {member.name for member in members}
        folder.drop(gone.__contains__)


def halves(folder: MutableFolder) -> str:
    """`experts.gate_up_proj` [experts, 2 * inner, in] and `down_proj`, as transformers 5 saves them."""
    width = folder.count("hidden_size")
    inner = folder.count("moe_intermediate_size")
    for before in _with_stacks(folder):
        both, down = (folder.tensor(f"{before}.experts.{part}_proj") for part in ("gate_up", "down"))
        if both.shape[1:] != (2 * inner, width) or down.shape[1:] != (width, inner):
            raise CannotFix(both.name)  # input first, as published: mlx-lm knows those
        if width == inner:
            raise CannotFix(both.name)  # nothing tells one from the other
        names = [f"{before}.switch_mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        gate, up = (rows(names[i], both, range(i * inner, (i + 1) * inner)) for i in (0, 1))
        folder.put(both.name, gate, up)
        folder.put(down.name, rows(names[2], down, range(width)))
    return "experts apart, output first"


def apart(**called: str) -> Callable[[MutableFolder], str]:
    """The matrices of `switch_mlp` one by one, as `experts` have them there, under these names."""

    def act(folder: MutableFolder) -> str:
        for module in folder.modules(*(f"switch_mlp.{matrix}" for matrix in called)):
            before, _, matrix = module.rpartition(".switch_mlp.")
            stacks = {part: folder.find(module + part) for part in PARTS}
            count = folder.tensor(f"{module}.weight").shape[0]
            names = [f"{before}.experts.{expert}.{called[matrix]}" for expert in range(count)]
            for part, stack in stacks.items():
                if stack is not None:
                    folder.put(stack.name, *unstacked([name + part for name in names], stack))
            folder.share_form(module, names)
        return "experts one by one"

    return act


def in_turn(folder: MutableFolder) -> str:
    """gpt-oss: [experts, in, out], whose columns are gate and up in turn, and their biases."""
    for before in _with_stacks(folder):
        start = f"{before}.experts."
        both, down = (folder.tensor(f"{start}{part}_proj") for part in ("gate_up", "down"))
        if len(both.shape) != 3 or both.dtype == "U8":
            raise CannotFix(both.name)
        count, width, double = both.shape
        biases = folder.tensor(f"{start}gate_up_proj_bias")
        names = [(part, f"{start}{part}_proj") for part in ("gate", "up")]
        made = [
            Computed(Output(f"{name}.weight", both.dtype, (count, double // 2, width)), both, _column(place))
            for place, (_, name) in enumerate(names)
        ]
        folder.put(both.name, *made)
        folder.put(
            biases.name,
            *(
                Computed(Output(f"{name}.bias", biases.dtype, (count, double // 2)), biases, _every(place))
                for place, (_, name) in enumerate(names)
            ),
        )
        output = Output(f"{down.name}.weight", down.dtype, (down.shape[0], *down.shape[:0:-1]))
        folder.put(down.name, Computed(output, down, mx.transpose))
        bias = folder.tensor(f"{start}down_proj_bias")
        folder.put(bias.name, rows(f"{start}down_proj.bias", bias, range(bias.shape[0])))
    return "experts apart, output first"


def _column(place: int) -> Callable[[mx.array], mx.array]:
    return lambda values: values[:, place::2].T


def _every(place: int) -> Callable[[mx.array], mx.array]:
    return lambda values: values[..., place::2]


def _with_stacks(folder: MutableFolder) -> list[str]:
    """What stands before `.experts.gate_up_proj`."""
    ends = ".experts.gate_up_proj"
    found = [name.removesuffix(ends) for name in folder.names() if name.endswith(ends)]
    if not found:
        raise CannotFix(ends)
    return found
