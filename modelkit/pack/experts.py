"""Source tensors -> matrices under MLX's names. Experts are what checkpoints store in many ways.

    mlp.experts.0.up_proj.weight ...                one each: stacked to mlp.switch_mlp.up_proj.weight
    mlp.experts.gate_up_proj         [E, 2M, D]     two in one: cut into mlp.switch_mlp.gate_proj and up_proj
    mlp.experts.gate_up_proj_blocks  [E, 2M, G, 16] GPT-OSS: gate and up alternate, packed MXFP4

Stacking, cutting and dealing out move whole rows, so each is a list of slabs and costs no memory.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modelkit.errors import PlanError
from modelkit.pack.families import Family
from modelkit.pack.planned import Output, Planned, Slab, Tiles, whole
from modelkit.source.tensor import TensorInfo
from runtime.quant import Format

_OWNER = r"(?P<owner>(?:.+\.)?layers\.\d+(?:\.(?:mlp|moe|mixer|block_sparse_moe|feed_forward))?)"
_ONE = re.compile(
    _OWNER + r"\.(?P<group>experts|shared_experts|switch_mlp)\.(?P<index>\d{1,6})\."
    r"(?P<matrix>\w+)\.(?P<leaf>weight|bias)",
    re.ASCII,
)
_PACKED = re.compile(_OWNER + r"\.experts\.(?P<matrix>gate_up_proj|gate_proj|up_proj|down_proj)", re.ASCII)
_SPELLINGS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix or parameter to decide about. `known_as` is the name that the policy judges."""

    name: str
    known_as: str
    dtype: str
    shape: tuple[int, ...]
    slabs: tuple[Slab, ...]


def gather(tensors: Iterable[TensorInfo], family: Family, tiles: Mapping[str, Tiles]) -> list[Matrix]:
    """Every tensor exactly once, experts in stacks. `tiles`: the FP8 weights by name; they count as BF16.

    Raises PlanError for a stack with a missing expert, or experts of different shapes or dtypes.
    """
    matrices: list[Matrix] = []
    stacks: dict[tuple[str, str, str, str], dict[int, TensorInfo]] = {}
    for tensor in tensors:
        one = _ONE.fullmatch(tensor.name)
        packed = None if family.input_first else _PACKED.fullmatch(tensor.name)
        if one:
            key = (one["owner"], one["group"], one["matrix"], one["leaf"])
            stacks.setdefault(key, {})[int(one["index"])] = tensor
        elif packed and len(tensor.shape) == 3:
            matrices += _cut(packed, tensor, family, tiles.get(tensor.name))
        else:
            tile = tiles.get(tensor.name)
            name, dtype = tensor.name, _dtype(tensor, tile)
            matrices.append(Matrix(name, name, dtype, tensor.shape, (whole(tensor, tile),)))
    expected = max((max(stack) + 1 for stack in stacks.values()), default=0)
    matrices += [_stack(key, stack, expected, family, tiles) for key, stack in stacks.items()]
    return matrices


def _dtype(tensor: TensorInfo, tile: Tiles | None) -> str:
    return "BF16" if tile else tensor.dtype


def _stack(
    key: tuple[str, str, str, str],
    stack: Mapping[int, TensorInfo],
    expected: int,
    family: Family,
    tiles: Mapping[str, Tiles],
) -> Matrix:
    owner, group, matrix, leaf = key
    count = expected if group == "experts" else max(stack) + 1
    missing = next((index for index in range(count) if index not in stack), None)
    if missing is not None:
        raise PlanError(f"{owner}.{group}: expert {missing} of {count} has no {matrix}.{leaf}")
    ordered = [stack[index] for index in range(count)]
    kinds = {(tensor.shape, tensor.dtype) for tensor in ordered}
    if len(kinds) > 1:
        shown = " and ".join(sorted(f"{dtype} {list(shape)}" for shape, dtype in kinds)[:2])
        raise PlanError(f"{owner}.{group}: the experts' {matrix}.{leaf} differ: {shown}")
    plain = _SPELLINGS.get(matrix, matrix)
    stored = dict(family.matrices).get(plain, plain)
    home = family.experts if group == "experts" else group
    slabs = tuple(whole(tensor, tiles.get(tensor.name)) for tensor in ordered)
    return Matrix(
        name=f"{owner}.{home}.{stored}.{leaf}",
        known_as=f"{owner}.{group}.{plain}.{leaf}",
        dtype=_dtype(ordered[0], tiles.get(ordered[0].name)),
        shape=(count, *ordered[0].shape),
        slabs=slabs,
    )


def _cut(packed: re.Match[str], tensor: TensorInfo, family: Family, tile: Tiles | None) -> list[Matrix]:
    """A packed stack as one matrix per projection; a fused one is cut in the middle of each expert's rows."""
    experts, rows, width = tensor.shape
    fused = packed["matrix"] == "gate_up_proj"
    if fused and rows % 2:
        raise PlanError(f"{tensor.name} fuses two matrices and has an odd number of rows, {rows}")
    names = ("gate_proj", "up_proj") if fused else (packed["matrix"],)
    share = rows // len(names)
    all_rows = whole(tensor, tile)
    home = f"{packed['owner']}.{family.experts}"
    found: list[Matrix] = []
    for place, name in enumerate(names):
        starts = range(place * share, experts * rows, rows) if rows else range(0)
        slabs = tuple(Slab(tensor, s, s + share, 1, all_rows.row_bytes, tile) for s in starts)
        known_as = f"{packed['owner']}.experts.{name}"
        shape = (experts, share, width)
        found.append(Matrix(f"{home}.{name}.weight", known_as, _dtype(tensor, tile), shape, slabs))
    return found


def deal_out(bases: Iterable[str], tensors: Mapping[str, TensorInfo], stored: Format) -> list[Planned]:
    """GPT-OSS experts in MLX's layout. The codes are already packed low nibble first, so bytes only move.

    Returns one decision per matrix and per expert bias. Source of the layout: the `_blocks` [E, R, G, 16] and
    `_scales` [E, R, G] of the released checkpoints; rows of a fused `gate_up_proj` alternate gate, up.
    """
    planned: list[Planned] = []
    for base in bases:
        blocks, scales = tensors[f"{base}_blocks"], tensors[f"{base}_scales"]
        fused = base.endswith("gate_up_proj")
        if len(blocks.shape) != 4 or (fused and blocks.shape[1] % 2):
            raise PlanError(
                f"{blocks.name} has shape {list(blocks.shape)}; [experts, rows, groups, 16] was expected"
            )
        experts, rows, groups, _ = blocks.shape
        owner, _, matrix = base.rpartition(".")
        names = ("gate_proj", "up_proj") if fused else (matrix,)
        step = len(names)
        bias = tensors.get(f"{base}_bias")
        for place, name in enumerate(names):
            home, share = f"{owner}.{name}", rows // step
            shape = (experts, share, groups * 32)
            outputs = (
                Output(
                    f"{home}.weight",
                    "U32",
                    (experts, share, groups * 4),
                    (Slab(blocks, place, experts * rows, step, groups * 16),),
                ),
                Output(
                    f"{home}.scales",
                    "U8",
                    (experts, share, groups),
                    (Slab(scales, place, experts * rows, step, groups),),
                ),
            )
            planned.append(
                Planned(f"{home}.weight", "BF16", shape, None, stored.name, "already MXFP4", outputs)
            )
            if bias is not None:
                planned.append(_deal_bias(bias, home, place, step, (experts, rows)))
    return planned


def _deal_bias(bias: TensorInfo, home: str, place: int, step: int, expected: tuple[int, int]) -> Planned:
    if bias.shape != expected:
        raise PlanError(f"{bias.name} has shape {list(bias.shape)}, expected {list(expected)}")
    experts, rows = expected
    slab = Slab(bias, place, experts * rows, step, bias.nbytes // (experts * rows))
    output = Output(f"{home}.bias", bias.dtype, (experts, rows // step), (slab,))
    return Planned(output.name, bias.dtype, output.shape, None, bias.dtype.lower(), "bias", (output,))
