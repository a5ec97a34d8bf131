"""Weights that MLX has packed -> floats: `-q f32` (bf16, f16) of a folder of mlx-community, or of a package
made with `-q`. What codes, scales and biases stand for is exact in f32, and rounded once in others.

Packed once, nothing is packed again in another format: that would round what was rounded.
"""

from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.pack.planning.config import converted_config
from modelkit.pack.planning.families import checkpoint_of, request_for
from modelkit.pack.planning.file_layout import files_of, in_order
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.omissions import left_out_notes
from modelkit.pack.planning.outputs import decide, packed_module, single
from modelkit.pack.planning.plan_types import Plan, Planned, Role
from modelkit.pack.planning.policy import choose
from modelkit.pack.planning.slabs import Groups, whole
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import MlxWeights, Packing
from runtime.quant import Format
from runtime.tensors.quantizing import Tensor

_LEAVES = ("weight", "scales", "biases", "order")


def unpack(inventory: Inventory, kind: MlxWeights, wanted: Format, role: Role, left: set[str]) -> Plan:
    """Every packed matrix as floats, all others as the policy casts them. left: names that are left out.

    Raises PlanError for a format with codes, and for matrices that are kept in another packing than MLX's.
    """
    if wanted.quantized:
        raise PlanError(
            f"{inventory.origin} is quantized already; it cannot be stored as {wanted.name}",
            hint="Leave the format out, or start from the unquantized model. -q bf16 (f16, f32) unpacks it.",
        )
    others = [*kind.blocks, *kind.factored]
    if others:
        raise PlanError(
            f"{inventory.origin} keeps {others[0]}.weight in "
            f"{'GGUF' if kind.blocks else 'NVFP4'}'s blocks, which are not unpacked; "
            f"it cannot be stored as {wanted.name}",
            hint="Leave the format out, or start from what it was made of.",
        )
    request, rows = request_for(wanted, inventory.config), checkpoint_of(inventory.config).rows
    folded = {f"{module}.{leaf}" for module in kind.packed for leaf in _LEAVES}
    matrices = [_numbers(module, packing, inventory) for module, packing in kind.packed.items()]
    matrices += [single(tensor) for name, tensor in inventory.tensors.items() if name not in folded]
    made: list[Planned] = []
    for one in matrices:
        if one.name not in left:
            tensor = Tensor(one.known_as, one.dtype, one.shape)
            made.append(decide(one, choose(tensor, request, rows, draft=role == "draft")))
    planned = in_order(made)
    were = sorted({packed_module(*one, inventory.tensors).label for one in kind.packed.items()})
    note = (
        f"the weights were already quantized as {', '.join(were)}; {wanted.name} holds those numbers, "
        "which takes more room and brings none back"
    )
    config = converted_config(inventory.config, planned, wanted)
    notes = (*left_out_notes(inventory, left), note)
    return Plan(role, "mlx", wanted, planned, files_of(planned, inventory.config), config, notes)


def _numbers(module: str, packing: Packing, inventory: Inventory) -> Matrix:
    """In the order in which its inputs come, whatever order they are packed in."""
    same = packed_module(module, packing, inventory.tensors)
    codes, scales, biases, order = (inventory.tensors.get(f"{module}.{leaf}") for leaf in _LEAVES)
    assert codes is not None
    assert scales is not None
    slab = replace(whole(codes), groups=Groups(scales, biases, *packing, order=order))
    return Matrix(codes.name, codes.name, "F32", same.shape, (slab,))
