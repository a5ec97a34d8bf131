"""A GGUF file -> a decision for each tensor. What is packed stays as it is: moved by rows, never requantized
unless that is asked for.

    one 16-bit scale for a block      repacked into MLX's codes, scales and biases
    K-quants, i-quants                rows of blocks, as they are
    floats                            as they are
    whose numbers or columns change   exact floats

The checkpoint's tensors are matched with the file's by `Origin`s; what `experts` and `matrix` say about a
checkpoint's names holds for these too, so their slabs are looked up in the origins afterwards.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.outputs import decide
from modelkit.pack.planning.plan_types import Output, Planned
from modelkit.pack.planning.policy import Choice
from modelkit.pack.planning.slabs import Joined, Piece, Slab
from modelkit.source.gguf.architectures import Origin, Run
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import GgufWeights
from modelkit.source.tensor import TensorInfo
from runtime.blocks.forms import REPACKED
from runtime.blocks.types import BLOCK_TYPES, BlockType
from runtime.quant import FORMATS, Format
from runtime.tensors.quantizing import FILTERS, is_in

_ROWS = {(row.bits, row.group_size, row.mode): row for row in FORMATS}
_F32 = next(row for row in FORMATS if row.name == "f32")
_WIDE = ("norm", "ln_", *FILTERS)  # names of parameters whose modules take floats only


def gguf_matrices(inventory: Inventory, kind: GgufWeights, left: set[str]) -> list[Matrix]:
    """The matrices and parameters of a file, under MLX's names, made of rows of its tensors. The dtype of
    packed ones is that of their blocks.
    """
    files = checkpoint_of(inventory.config)
    twins = [_twin(origin, kind) for name, origin in kind.origins.items() if name not in left]
    found: list[Matrix] = []
    for matrix in gather(twins, files, {}):
        origins = {slab.tensor.name: kind.origins[slab.tensor.name] for slab in matrix.slabs}
        found.append(replace(matrix, slabs=_real(matrix, origins, kind)))
    return found


def _twin(origin: Origin, kind: GgufWeights) -> TensorInfo:
    """The checkpoint's tensor as if it lay in a file by itself."""
    first = kind.stored[origin.runs[0].tensor]
    dtypes = {kind.stored[run.tensor].dtype for run in origin.runs}
    dtype = first.dtype if len(dtypes) == 1 and origin.change is None else "F32"
    size = math.prod(origin.shape[:-1]) if dtype in BLOCK_TYPES else 4 * math.prod(origin.shape)
    return TensorInfo(origin.name, dtype, origin.shape, first.path, 0, size)


def _real(matrix: Matrix, origins: Mapping[str, Origin], kind: GgufWeights) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for slab in matrix.slabs:
        origin = origins[slab.tensor.name]
        if not isinstance(slab, Slab):
            raise PlanError(f"{origin.name} is stored input first, which no GGUF file is")
        slabs = tuple(_rows(origin, slab, kind))
        mixed = len({part.tensor.dtype for part in slabs}) > 1
        if origin.change is None and not mixed:
            pieces += slabs
            continue
        if len(matrix.slabs) > 1 or (origin.change and slab.stop - slab.start < math.prod(origin.shape[:-1])):
            raise PlanError(f"{origin.name} changes its numbers and is a part of {matrix.name}, or has parts")
        pieces.append(Joined(slabs, slab, matrix.shape, origin.change))
    return tuple(pieces)


def _rows(origin: Origin, slab: Slab, kind: GgufWeights) -> Iterator[Slab]:
    """The rows of the file's tensors that stand for rows of the checkpoint's."""
    total = sum(run.rows for run in origin.runs)
    wanted = _counted(slab, max(math.prod(origin.shape[:-1]), 1), total)
    first = 0
    for run in origin.runs:
        inside = _within(wanted, first, first + run.rows)
        if inside:
            yield _slab(
                run, kind.stored[run.tensor], range(inside[0] - first, inside[-1] - first + 1, slab.step)
            )
        first += run.rows


def _counted(slab: Slab, rows: int, total: int) -> range:
    """The slab's rows, counted as the origin counts them: a shape may say the same numbers in other rows."""
    if (slab.start, slab.stop, slab.step) == (0, rows, 1):
        return range(total)
    scale, rest = divmod(total, rows)
    if rest or (scale > 1 and slab.step > 1):
        raise PlanError(f"rows of {slab.tensor.name} are cut otherwise in the file")
    return range(slab.start * scale, slab.stop * scale, slab.step)


def _within(wanted: range, start: int, stop: int) -> range:
    """The members of `wanted` from start to stop."""
    skipped = max(-(-(start - wanted.start) // wanted.step), 0)
    return range(wanted.start + skipped * wanted.step, min(stop, wanted.stop), wanted.step)


def _slab(run: Run, tensor: TensorInfo, taken: range) -> Slab:
    start = run.start + taken.start * run.step
    stop = run.start + taken[-1] * run.step + 1
    return Slab(tensor, start, stop, run.step * taken.step, tensor.nbytes // run.of)


def keep(matrix: Matrix, factor: TensorInfo | None) -> Planned:
    """A matrix stored as the file has it, in the nearest of our forms that says exactly the same."""
    kind = BLOCK_TYPES.get(matrix.dtype)
    (*_, first) = matrix.slabs
    if kind is None or isinstance(first, Joined):
        refuse_factor(matrix, factor)
        return _floats(matrix)
    if not matrix.name.endswith(".weight") or len(matrix.shape) < 2 or is_in(matrix.name, *_WIDE):
        refuse_factor(matrix, factor)
        return _decoded(matrix, _F32, "exact floats: it is not a matrix here")
    if matrix.shape[-1] % kind.weights:
        refuse_factor(matrix, factor)
        return _decoded(matrix, _F32, "exact floats: its rows are cut otherwise here")
    if kind.name in REPACKED and factor is None:
        return _repacked(matrix, kind)
    row_bytes = kind.row_bytes(matrix.shape[-1])
    outputs = [Output(matrix.name, "U8", (*matrix.shape[:-1], row_bytes), matrix.slabs)]
    if factor is not None:
        outputs.append(_factor(matrix, factor))
    return Planned(
        matrix.name,
        "F32",
        matrix.shape,
        None,
        kind.name,
        "kept in GGUF's blocks",
        tuple(outputs),
        blocks="kept",
        exact=True,
    )


def torn(matrices: Sequence[Matrix], joined: Sequence[tuple[str, ...]]) -> set[str]:
    """Names of matrices that are joined with others of other types when they are loaded."""
    dtypes = {matrix.name: matrix.dtype for matrix in matrices}
    found: set[str] = set()
    for parts in joined:
        for name in dtypes:
            together = [name.replace(parts[0], part) for part in parts] if parts[0] in name else []
            if len({dtypes.get(one) for one in together}) > 1:
                found.update(together)
    return found


def mended(matrix: Matrix) -> Planned:
    """One of `torn`: in the only form that all types can take."""
    reason = "exact floats: it is joined with matrices of other types"
    if matrix.dtype in BLOCK_TYPES:
        return _decoded(matrix, _F32, reason)
    return replace(decide(matrix, Choice(_F32, reason)), exact=True)


def refuse_factor(matrix: Matrix, factor: TensorInfo | None) -> None:
    """Raises PlanError where there is one: floats have no place for it."""
    if factor is not None:
        raise PlanError(f"{factor.name} is a factor of {matrix.name}, which becomes floats here")


def parts_of(piece: Piece) -> tuple[Piece, ...]:
    return piece.parts if isinstance(piece, Joined) else (piece,)


def _factor(matrix: Matrix, factor: TensorInfo) -> Output:
    count = math.prod(factor.shape)
    experts = matrix.shape[0] if len(matrix.shape) > 2 else 1
    if factor.dtype != "F32" or count != experts:
        raise PlanError(f"{factor.name} is {factor.dtype} {list(factor.shape)}; F32 [{experts}] was expected")
    slab = Slab(factor, 0, 1, 1, factor.nbytes)
    return Output(f"{matrix.name.removesuffix('.weight')}.factor", "F32", (count,), (slab,))


def _floats(matrix: Matrix) -> Planned:
    (*_, first) = matrix.slabs
    if isinstance(first, Joined):
        packed = any(part.tensor.dtype in BLOCK_TYPES for part in first.parts)
        reason = (
            "exact floats: its numbers or columns are others here"
            if packed
            else "its numbers are others here"
        )
        return _decoded(matrix, _F32, reason)
    planned = decide(matrix, Choice(None, "as in the source"))
    return replace(planned, exact=True)


def _decoded(matrix: Matrix, target: Format, reason: str) -> Planned:
    output = Output(matrix.name, target.name.upper(), matrix.shape, matrix.slabs)
    return Planned(
        matrix.name, "F32", matrix.shape, target, target.name, reason, (output,), matrix.plus_one, exact=True
    )


def _repacked(matrix: Matrix, kind: BlockType) -> Planned:
    form = REPACKED[kind.name]
    row = _ROWS[form.bits, form.group_size, form.mode]
    *leading, width = matrix.shape
    module, groups = matrix.name.removesuffix(".weight"), (*leading, width // form.group_size)
    outputs = [
        Output(matrix.name, "U32", (*leading, width * form.bits // 32), matrix.slabs),
        Output(f"{module}.scales", form.scales, groups),
    ]
    if form.mode == "affine":
        outputs.append(Output(f"{module}.biases", form.scales, groups))
    dtype = "F16" if form.mode == "affine" else "BF16"
    return Planned(
        matrix.name,
        dtype,
        matrix.shape,
        None,
        row.name,
        "the same codes in MLX's layout",
        tuple(outputs),
        blocks="repacked",
        exact=True,
    )


def adapted(matrix: Matrix, planned: Planned, factor: TensorInfo | None, *, asked: bool) -> Planned:
    """One whose numbers an adapter changes. Raises PlanError where its blocks would stay.

    asked: was a format named?
    """
    refuse_factor(matrix, factor)
    packed = any(part.tensor.dtype in BLOCK_TYPES for slab in matrix.slabs for part in parts_of(slab))
    if packed and not asked:
        raise PlanError(
            f"{matrix.known_as} is in GGUF's blocks, which modelkit cannot write anew",
            hint="Say what the numbers become: -q q8, -q q4, -q f16 and the like; -q f32 is exact. Or leave\n"
            "--fuse-adapters out: run time adds the adapter to the blocks as they are.",
        )
    if planned.blocks:
        planned = _decoded(matrix, _F32, "floats: an adapter is added")
    return replace(planned, exact=False)


def requantized(matrix: Matrix, choice: Choice, factor: TensorInfo | None) -> Planned:
    """A matrix as it was asked for. Packed ones are decoded exactly first."""
    target = choice.format
    if target is None or matrix.dtype not in BLOCK_TYPES or factor is not None:
        if target is None or factor is not None:
            return keep(matrix, factor)
        return decide(matrix, choice)
    if target.quantized:
        return replace(decide(replace(matrix, dtype="F16"), choice), exact=False)
    return replace(_decoded(matrix, target, choice.reason), exact=target.name == "f32")
