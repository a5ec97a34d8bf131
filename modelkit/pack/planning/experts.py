"""Source tensors -> matrices under MLX's names. Experts are what checkpoints store in many ways.

    mlp.experts.0.up_proj.weight ...                one each: stacked to mlp.switch_mlp.up_proj.weight
    mlp.experts.gate_up_proj         [E, 2M, D]     two in one: cut into mlp.switch_mlp.gate_proj and up_proj
    mlp.experts.gate_up_proj         [E, D, 2M]     input first: turned over as well
    block_sparse_moe.input_linear    [E, 2M, D]     the same by a family's own names (`Checkpoint.stacks`)
    ffn.experts.mlp.w1               [E * M, D]     one below the other (`Checkpoint.piled`)
    mlp.experts.gate_up_proj_blocks  [E, 2M, G, 16] GPT-OSS: gate and up alternate, packed MXFP4

Stacking, cutting and dealing out move whole rows or columns, so each is a list of slabs and costs no memory.
A quantized matrix needs its input along its rows, so what is stored input first is always turned over; which
of the two it is shows in the shapes of a layer's stacks, not in its files.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.pack.planning.matrix import Matrix, alone, decoded_dtype, stored_input_first, stored_less_one
from modelkit.pack.planning.plan_types import Output, Planned
from modelkit.pack.planning.slabs import Piece, Slab, Tiles, turned, whole
from modelkit.source.tensor import TensorInfo
from runtime.quant import Format
from runtime.tensors.checkpoint import Checkpoint

_OWNER = (
    r"(?P<owner>(?:.+\.)?(?:layers|blocks)\.\d+(?:\.(?:mlp|moe|mixer|block_sparse_moe|feed_forward|ffn))?)"
)
_ONE = re.compile(
    _OWNER + r"\.(?P<group>experts|shared_experts|chunk_experts|switch_mlp)\.(?P<index>\d{1,6})\."
    r"(?P<matrix>\w+)\.(?P<leaf>weight|bias)",
    re.ASCII,
)
_PACKED = re.compile(
    _OWNER + r"\.(?P<group>experts|shared_experts)\.(?P<matrix>gate_up_proj|gate_proj|up_proj|down_proj)",
    re.ASCII,
)
_BIAS = re.compile(_OWNER + r"\.experts\.(?P<matrix>gate_up_proj|down_proj)_bias", re.ASCII)
_SPELLINGS = {
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "v1": "up_proj",
    **{part: f"{part}_proj" for part in ("gate", "up", "down")},
}


def gather(tensors: Iterable[TensorInfo], files: Checkpoint, tiles: Mapping[str, Tiles]) -> list[Matrix]:
    """Every tensor exactly once, experts in stacks. `tiles`: the FP8 weights by name; they count as BF16.

    Raises PlanError for a stack with a missing expert, or experts of different shapes or dtypes.
    """
    tensors = list(tensors)
    turned_owners = input_first_owners(tensors, files)
    conv, less_one = stored_input_first(tensors, files), stored_less_one(tensors)
    matrices: list[Matrix] = []
    stacks: dict[tuple[str, str, str, str], dict[int, TensorInfo]] = {}
    for tensor in tensors:
        tile = tiles.get(tensor.name)
        if one := _ONE.fullmatch(tensor.name):
            key = (one["owner"], one["group"], one["matrix"], one["leaf"])
            stacks.setdefault(key, {})[int(one["index"])] = tensor
        elif (packed := _packed(tensor, files)) and len(tensor.shape) == 3:
            turn = packed["group"] == "experts" and packed["owner"] in turned_owners
            matrices += _cut(packed, tensor, files, tile, turn=turn)
        elif tile is None and (pile := _pile(tensor, files)) is not None:
            matrices.append(pile)
        elif files.alternate and (bias := _BIAS.fullmatch(tensor.name)) and len(tensor.shape) == 2:
            matrices += _cut_bias(bias, tensor, files)
        else:
            matrices += alone(tensor, files, tile, input_first=conv, less_one=less_one)
    expected = max((max(stack) + 1 for stack in stacks.values()), default=0)
    matrices += [_stack(key, stack, expected, files, tiles) for key, stack in stacks.items()]
    return matrices


def one_by_one(tensors: Iterable[TensorInfo]) -> list[TensorInfo]:
    """Those that are of one expert alone."""
    return [tensor for tensor in tensors if _ONE.fullmatch(tensor.name)]


def _packed(tensor: TensorInfo, files: Checkpoint) -> re.Match[str] | None:
    """Whose stack it is, and of what, if it is one by its name."""
    name = tensor.name
    for theirs, usual in files.stacks:
        name = name.replace(theirs, usual)
    return _PACKED.fullmatch(name)


def _pile(tensor: TensorInfo, files: Checkpoint) -> Matrix | None:
    """Matrices of all experts, one below the other, as a stack; None if it is none."""
    for end, (matrix, turn) in files.piled:
        if tensor.name.endswith(end) and len(tensor.shape) == 2 and files.piles:
            rows, width = tensor.shape
            if rows % files.piles:
                raise PlanError(f"{tensor.name} has {rows:,} rows for {files.piles} experts")
            stack = replace(tensor, shape=(files.piles, rows // files.piles, width))
            owner = tensor.name.removesuffix(end)
            shape = (files.piles, width, rows // files.piles) if turn else stack.shape
            return Matrix(
                name=f"{owner}{files.experts}.{matrix}.weight",
                known_as=f"{owner}experts.{matrix}",
                dtype=decoded_dtype(tensor, None),
                shape=shape,
                slabs=turned(stack) if turn else (whole(stack),),
            )
    return None


def input_first_owners(tensors: Iterable[TensorInfo], files: Checkpoint) -> set[str]:
    """The owners of packed stacks that are stored input first.

    Gate and up are [E, D, 2M] and down [E, M, D] then, and otherwise [E, 2M, D] and [E, D, M]; no stack
    can be both.
    """
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in tensors:
        packed = _packed(tensor, files)
        if packed and packed["group"] == "experts" and len(tensor.shape) == 3:
            shapes.setdefault(packed["owner"], {})[packed["matrix"]] = tensor.shape[1:]
    found: set[str] = set()
    for owner, stack in shapes.items():
        fused, down = stack.get("gate_up_proj"), stack.get("down_proj")
        if fused and down and fused == (down[1], 2 * down[0]):
            found.add(owner)
    return found


def _stack(
    key: tuple[str, str, str, str],
    stack: Mapping[int, TensorInfo],
    expected: int,
    files: Checkpoint,
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
    stored = dict(files.matrices).get(plain, plain)
    home = files.experts if group == "experts" else group
    slabs = tuple(whole(tensor, tiles.get(tensor.name)) for tensor in ordered)
    return Matrix(
        name=f"{owner}.{home}.{stored}.{leaf}",
        known_as=f"{owner}.{group}.{plain}.{leaf}",
        dtype=decoded_dtype(ordered[0], tiles.get(ordered[0].name)),
        shape=(count, *ordered[0].shape),
        slabs=slabs,
    )


def _cut(
    packed: re.Match[str], tensor: TensorInfo, files: Checkpoint, tile: Tiles | None, *, turn: bool
) -> list[Matrix]:
    """A packed stack as one matrix per projection; a fused one is cut in the middle of each expert's outputs,
    or dealt out where they alternate. turn: the outputs are its columns.
    """
    experts, outputs, inputs = tensor.shape
    if turn:
        outputs, inputs = inputs, outputs
    names = _names(packed, tensor, outputs)
    share, in_turn = outputs // len(names), files.alternate or any(one in tensor.name for one in files.dealt)
    group = packed["group"]
    home = files.experts if group == "experts" else group
    found: list[Matrix] = []
    for place, name in enumerate(names):
        start, stop, step = _share(place, len(names), outputs, in_turn)
        if turn:
            slabs: tuple[Piece, ...] = turned(tensor, tile, start=start, stop=stop, step=step)
        else:
            row_bytes, firsts = whole(tensor, tile).row_bytes, range(0, experts * outputs, outputs or 1)
            slabs = tuple(Slab(tensor, at + start, at + stop, step, row_bytes, tile) for at in firsts)
        known_as = f"{packed['owner']}.{group}.{name}"
        name = f"{packed['owner']}.{home}.{name}.weight"
        found.append(Matrix(name, known_as, decoded_dtype(tensor, tile), (experts, share, inputs), slabs))
    return found


def _cut_bias(packed: re.Match[str], tensor: TensorInfo, files: Checkpoint) -> list[Matrix]:
    """The biases of a stack [E, outputs], cut as their matrix is."""
    experts, outputs = tensor.shape
    names = _names(packed, tensor, outputs)
    item_bytes = tensor.nbytes // (experts * outputs) if experts * outputs else 0
    found: list[Matrix] = []
    for place, part in enumerate(names):
        start, _, step = _share(place, len(names), outputs, files.alternate)
        slab = Slab(tensor, start, experts * outputs, step, item_bytes)
        name = f"{packed['owner']}.{files.experts}.{part}.bias"
        shape = (experts, outputs // len(names))
        found.append(Matrix(name, name, decoded_dtype(tensor, None), shape, (slab,)))
    return found


def _names(packed: re.Match[str], tensor: TensorInfo, outputs: int) -> tuple[str, ...]:
    """What the stack holds, in order."""
    if packed["matrix"] != "gate_up_proj":
        return (packed["matrix"],)
    if outputs % 2:
        raise PlanError(f"{tensor.name} fuses two matrices and has an odd number of rows, {outputs}")
    return ("gate_proj", "up_proj")


def _share(place: int, count: int, outputs: int, in_turn: bool) -> tuple[int, int, int]:
    """start, stop and step of the outputs that belong to matrix `place` of `count`."""
    if in_turn:
        return place, outputs, count
    share = outputs // count
    return place * share, (place + 1) * share, 1


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
    slab = Slab(bias, place, experts * rows, step, bias.nbytes // (experts * rows or 1))
    output = Output(f"{home}.bias", bias.dtype, (experts, rows // step), (slab,))
    return Planned(output.name, bias.dtype, output.shape, None, bias.dtype.lower(), "bias", (output,))
