"""A checkpoint of whole-number codes -> a decision for each tensor. Matrices keep their codes; nothing is
quantized again unless that is asked for.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.pack.planning.code_forms import BLOCK_WEIGHTS, bias_dtype, format_of, is_exact
from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.imported import torn
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.notes import FOUND, counted
from modelkit.pack.planning.omissions import to_decide
from modelkit.pack.planning.outputs import decide
from modelkit.pack.planning.plan_types import Output, Planned
from modelkit.pack.planning.policy import Choice
from modelkit.pack.planning.slabs import Coded, Factor, Order, Piece, Slab, Tiles
from modelkit.source.codes import CodeMatrix, CodeWeights
from modelkit.source.inventory import Inventory
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import FORMATS, Format

_SAME = {"F16": "f16", "BF16": "bf16", "F32": "f32"}


def code_matrices(
    inventory: Inventory, kind: CodeWeights, tiles: Mapping[str, Tiles], left: set[str]
) -> list[Matrix]:
    """The matrices and parameters of a checkpoint, under MLX's names. tiles: of those that are FP8."""
    found = gather(to_decide(inventory, left), checkpoint_of(inventory.config), tiles)
    return [replace(one, slabs=tuple(_real(slab, kind) for slab in one.slabs)) for one in found]


def _real(slab: Piece, kind: CodeWeights) -> Piece:
    matrix = kind.matrices.get(slab.tensor.name)
    if matrix is None:
        return slab
    height = max(matrix.shape[-2], 1)
    if not isinstance(slab, Slab) or slab.start // height != (slab.stop - 1) // height:
        raise PlanError(f"{slab.tensor.name} is stored as codes, and its rows are others here")
    return Coded(matrix, slab.start, slab.stop, slab.step)


def kept(
    matrices: Sequence[Matrix], kind: CodeWeights, inventory: Inventory, of_fp8: Callable[[Matrix], Choice]
) -> list[Planned]:
    """Each as it is: codes, scales and biases, or floats. of_fp8: what becomes of FP8, which MLX has not.
    Raises PlanError where MLX has no place for codes.
    """
    joined = checkpoint_of(inventory.config).joined
    apart = torn([replace(one, dtype=_form(one)) for one in matrices], joined)
    return [
        decide(one, of_fp8(one))
        if any(slab.tiles for slab in one.slabs) and one.name not in apart
        else _kept(one, kind, inventory.origin, apart=one.name in apart)
        for one in matrices
    ]


def quantized(matrix: Matrix, choice: Choice) -> Planned:
    """Unpacked, then as chosen; scales of what is quantized again have 16 bits."""
    coded = any(one.is_small_floats for one in _coded(matrix))
    narrow = coded and choice.format is not None and choice.format.quantized
    return decide(replace(matrix, dtype="BF16") if narrow else matrix, choice)


def refuse_changed(planned: Sequence[Planned], changed: Collection[str], origin: str) -> None:
    """Raises PlanError where codes would stay whose numbers an adapter changes."""
    for one in planned:
        if one.blocks and any(slab.name in changed for slab in one.slabs):
            raise PlanError(
                f"{origin} has {one.name} in codes, which have to be unpacked before they change",
                hint="Say what the numbers become: -q q8, -q f16 and the like. Or make a package of it\n"
                "first, then one FROM that, which is packed as it was.",
            )


def _kept(matrix: Matrix, kind: CodeWeights, origin: str, *, apart: bool) -> Planned:
    parts = _coded(matrix)
    if not parts:
        return decide(matrix, Choice(None, "as in the source"))
    ordered = parts[0].ordered
    if (
        apart
        or len(parts) < len(matrix.slabs)
        or len({_form_of(one) for one in parts}) > 1
        or ((ordered or parts[0].factored) and len(parts) != math.prod(matrix.shape[:-2]))
    ):
        same = next(row for row in FORMATS if row.name == _SAME[matrix.dtype])
        reason = "unpacked: it is joined with matrices in other forms"
        return replace(decide(matrix, Choice(same, reason)), exact=False)
    target = format_of(parts[0])
    if target is None:
        raise PlanError(_why_not(parts[0], origin), hint=_instead(parts[0]))
    if parts[0].factored:
        return in_blocks(matrix, kind.tool)
    return Planned(
        matrix.name,
        bias_dtype(parts[0]),
        matrix.shape,
        None,
        target.name,
        f"{kind.tool}'s codes as they are",
        tuple(_outputs(matrix, target, parts)),
        blocks="repacked",
        exact=all(map(is_exact, parts)),
    )


def _outputs(matrix: Matrix, target: Format, parts: Sequence[CodeMatrix]) -> Iterator[Output]:
    """Codes, what they are multiplied and shifted by, and the order of their inputs where they have one."""
    *leading, width = matrix.shape
    module, dtype = matrix.name.removesuffix(".weight"), bias_dtype(parts[0])
    groups = (*leading, width // target.group_size)
    yield Output(matrix.name, "U32", (*leading, width * target.bits // 32), matrix.slabs)
    if target.mode == "affine":
        yield Output(f"{module}.scales", dtype, groups)
        yield Output(f"{module}.biases", dtype, groups)
    else:
        yield Output(f"{module}.scales", "U8", groups)
    if parts[0].ordered:
        yield Output(f"{module}.order", "U32", (*leading[:-1], width), tuple(map(Order, parts)))


def in_blocks(matrix: Matrix, tool: str) -> Planned:
    """NVFP4 with its factors beside it."""
    rows = [slab for slab in matrix.slabs if isinstance(slab, Coded)]
    factors = tuple(Factor(one.matrix, start=one.start, step=one.step) for one in rows)
    blocks, module = BLOCK_TYPES[rows[0].matrix.layout], matrix.name.removesuffix(".weight")
    shape = (*matrix.shape[:-1], blocks.row_bytes(matrix.shape[-1]))
    return Planned(
        matrix.name,
        matrix.dtype,
        matrix.shape,
        None,
        blocks.name,
        f"{tool}'s codes as they are, in GGUF's blocks with their factor",
        (
            Output(matrix.name, "U8", shape, matrix.slabs),
            Output(f"{module}.factor", "F32", (len(factors),), factors),
        ),
        blocks="kept",
        exact=True,
    )


def factored_module(matrix: CodeMatrix, origin: str) -> Planned:
    """One of MLX's own. Raises PlanError where GGUF's blocks have no place for it."""
    if format_of(matrix) is None:
        raise PlanError(_why_not(matrix, origin), hint="Make it of the model that it was made of.")
    height = matrix.shape[-2]
    slabs = tuple(Coded(matrix, start, start + height) for start in range(0, matrix.rows, height))
    return in_blocks(Matrix(matrix.name, matrix.name, matrix.dtype, matrix.shape, slabs), "MLX")


def _coded(matrix: Matrix) -> list[CodeMatrix]:
    return [slab.matrix for slab in matrix.slabs if isinstance(slab, Coded)]


def _form(matrix: Matrix) -> str:
    """What has to be the same for matrices that are joined."""
    parts = _coded(matrix)
    return _form_of(parts[0]) if parts else matrix.dtype


def _form_of(matrix: CodeMatrix) -> str:
    target = format_of(matrix)
    return f"{target.name if target else 'none'} {bias_dtype(matrix)} {matrix.ordered} {matrix.factored}"


def _why_not(matrix: CodeMatrix, origin: str) -> str:
    if matrix.is_small_floats:
        return (
            f"{origin}: {matrix.name} is {matrix.layout} with a factor, in rows of {matrix.shape[-1]}; "
            f"multiples of {BLOCK_WEIGHTS} are kept as they are"
        )
    return (
        f"{origin}: {matrix.name} has {matrix.bits}-bit codes in groups of {matrix.group_size}; those of 32, "
        "64 and multiples of 128 are kept as they are"
    )


def _instead(matrix: CodeMatrix) -> str:
    name = _SAME[matrix.dtype]
    return (
        f"`modelkit create` and `pull` unpack all of it with -q {name}, exactly. -q q8 stays near that in\n"
        "fewer bytes; -q q4 rounds to four bits what was rounded before."
    )


def code_notes(
    planned: Sequence[Planned], kind: CodeWeights, wanted: Format | None, *, found: bool
) -> tuple[str, ...]:
    """For the user. found: formats were found, `wanted` is what most have."""
    notes: list[str] = []
    rounded = sum(one.blocks == "repacked" and one.exact is False for one in planned)
    if rounded:
        notes.append(
            f"{counted(rounded, 'matrix').replace('matrixs', 'matrices')} kept with zero points as float16 "
            "biases, which are off by less than a hundredth of a step of the codes"
        )
    if wanted is not None and wanted.quantized:
        exactly = "" if any(one.factored for one in kind.matrices.values()) else "exactly "
        floats = {one.layout for one in kind.matrices.values() if one.is_small_floats}
        bits = {one.bits for one in kind.matrices.values() if not one.is_small_floats}
        said = ", ".join([*(["+".join(map(str, sorted(bits))) + " bits"] if bits else []), *sorted(floats)])
        notes.append(
            f"the weights were already quantized with {kind.tool} ({said}); "
            f"{FOUND if found else f'{wanted.name} is made'} of {exactly}those numbers"
        )
    scales = sum("scale" in name for name in kind.unused)
    if scales:
        notes.append(f"{counted(scales, 'scale')} left out: activations are not rounded here")
    return tuple(notes)
