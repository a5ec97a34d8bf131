"""An inventory and a wanted format -> a Plan: every tensor's fate. Pure; no weight is read, no file opened.

    float            unchanged, cast, or quantized as the policy says
    FP8              decoded to BF16, then as float; mxfp8 where nothing else is asked for
    mlx              quantized already: kept as it is, or unpacked to floats
    mxfp4 blocks     GPT-OSS: the same codes in MLX's layout
    gguf             its own packing, exactly (`imported`)

Where nothing is converted the source's files are kept byte for byte. Otherwise tensors are written in natural
order of their names, into files under MLX's names (`placed`). Every converted matrix has its
input along its rows, as MLX has it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from modelkit.errors import PlanError
from modelkit.pack.planning.config import converted_config, imported_config, mlx_config, with_blocks
from modelkit.pack.planning.dequantization import unpack
from modelkit.pack.planning.experts import deal_out, gather
from modelkit.pack.planning.families import checkpoint_of, request_for
from modelkit.pack.planning.file_layout import files_of, in_order
from modelkit.pack.planning.imported import (
    adapted,
    gguf_matrices,
    keep,
    mended,
    refuse_factor,
    requantized,
    torn,
)
from modelkit.pack.planning.integer_codes import (
    code_matrices,
    code_notes,
    factored_module,
    kept,
    quantized,
    refuse_changed,
)
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.notes import counted, quantizing_notes, requantizing_notes
from modelkit.pack.planning.omissions import is_in_the_way, left_out_notes, to_decide
from modelkit.pack.planning.outputs import block_module, decide, packed_module, repacked_module, single
from modelkit.pack.planning.packed_stacks import kept_stack, packed_stacks
from modelkit.pack.planning.plan_types import Plan, Planned, PlannedFile, Role
from modelkit.pack.planning.policy import Choice, choose
from modelkit.pack.planning.slabs import Tiles, whole
from modelkit.pack.planning.spelling import both_spellings
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import (
    BitNetWeights,
    CodeWeights,
    FloatWeights,
    Fp8Weights,
    GgufWeights,
    MlxWeights,
    Mxfp4Blocks,
    SourceKind,
)
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import FORMATS, Format
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.quantizing import Tensor

FP8_DEFAULT = "mxfp8"

_AT_RUN_TIME = "Leave --fuse-adapters out: run time adds the adapter exactly."

_ROWS = {row.name: row for row in FORMATS}


def plan(
    inventory: Inventory,
    kind: SourceKind,
    wanted: Format | None,
    *,
    role: Role = "target",
    spare: str | None = None,
    plain: bool = False,
    chosen: Mapping[str, Choice] | None = None,
    rewrite: bool = False,
    repacked: Collection[str] = (),
) -> Plan:
    """Decide. `wanted` None keeps the source's precision. spare: a head that only repeats the embedding; it
    is left out of what is written anew. plain: no matrix gets more bits than another.
    chosen: decisions that a search made, by the names of what is written; `wanted` is what most of them have.
    rewrite: every tensor is written, whatever becomes of it. repacked: names of those whose numbers will
    change, where they are packed.

    Raises PlanError for a quantized source that should be quantized again, broken expert stacks, names that
    clash, scales that do not fit.
    """
    if isinstance(kind, (Mxfp4Blocks, BitNetWeights)) and wanted is not None:
        raise PlanError(
            f"{inventory.origin} is quantized already; it cannot be stored as {wanted.name}",
            hint="Leave the format out, or start from the unquantized model.",
        )
    left = {spare} if spare else set[str]()
    asked = _PlanRequest(inventory, wanted, role, left, plain, chosen or {}, repacked)
    match kind:
        case BitNetWeights():
            if rewrite or repacked:
                raise PlanError(f"{inventory.origin} has ternary weights, which stay what they are")
            return _keep_files(inventory, role, "ternary", {})
        case MlxWeights() if wanted is not None:
            return unpack(inventory, kind, wanted, role, left)
        case MlxWeights():
            kept = _pass_through(inventory, kind, role)
            return _changed(kept, inventory, kind, repacked, left) if rewrite else kept
        case Mxfp4Blocks():
            return _repack(inventory, kind, role, left)
        case Fp8Weights():
            return _of_fp8(asked, kind, rewrite=rewrite)
        case FloatWeights():
            return _convert(asked, {}, (), rewrite=rewrite)
        case GgufWeights():
            return _import(asked, kind)
        case CodeWeights():
            return _codes(asked, kind)


@dataclass(frozen=True, slots=True)
class _PlanRequest:
    """Of what a plan is to be made, and how: as `plan` has it."""

    inventory: Inventory
    wanted: Format | None
    role: Role
    left: set[str]
    """Names of tensors that are left out."""
    plain: bool
    chosen: Mapping[str, Choice]
    changed: Collection[str]

    @property
    def files(self) -> Checkpoint:
        return checkpoint_of(self.inventory.config)

    @property
    def searched(self) -> bool:
        return bool(self.chosen)

    def policy(self) -> Callable[[Matrix], Choice]:
        """What becomes of a matrix that no search has decided about."""
        request = request_for(self.wanted or _ROWS[FP8_DEFAULT], self.inventory.config)
        rows = self.files.rows

        def choice(matrix: Matrix) -> Choice:
            tensor = Tensor(matrix.known_as, matrix.dtype, matrix.shape)
            return choose(tensor, request, rows, draft=self.role == "draft", plain=self.plain)

        return choice


def _of_fp8(asked: _PlanRequest, kind: Fp8Weights, *, rewrite: bool) -> Plan:
    inventory = asked.inventory
    unused = (*kind.unused, *kind.packed, *kind.packed.values())
    stacks = packed_stacks(kind.packed, inventory.tensors, asked.files)
    made = _convert(asked, _tiles(inventory, kind), unused, stacks, rewrite=rewrite)
    return replace(made, notes=(*made.notes, *_unused_notes(kind)))


def _convert(
    asked: _PlanRequest,
    tiles: Mapping[str, Tiles],
    unused: Collection[str],
    stacks: Sequence[Matrix] = (),
    *,
    rewrite: bool,
) -> Plan:
    """stacks: in MXFP4, which stay so where nothing else is asked for."""
    inventory, wanted, role = asked.inventory, asked.wanted, asked.role
    rewrite = rewrite or is_in_the_way(inventory)
    if wanted is None and not tiles and not rewrite:
        return _keep_files(inventory, role, "float", {})
    chosen = wanted or _ROWS[FP8_DEFAULT]
    folded = {tile.scales.name for tile in tiles.values()} | asked.left | {*unused}
    planned = _decide_all(asked, tiles, folded, stacks)
    notes = quantizing_notes(planned, chosen) if (wanted or tiles) and not asked.searched else ()
    if all(_untouched(tensor) for tensor in planned) and not rewrite:
        decided = {tensor.name: tensor for tensor in planned}
        return replace(_keep_files(inventory, role, "float", decided), format=wanted, notes=notes)
    return Plan(
        role=role,
        source_kind="fp8" if tiles else "float",
        format=wanted,
        tensors=planned,
        files=files_of(planned, inventory.config),
        config=converted_config(inventory.config, planned, chosen),
        notes=(*left_out_notes(inventory, asked.left), *notes),
    )


def _decide_all(
    asked: _PlanRequest, tiles: Mapping[str, Tiles], folded: set[str], stacks: Sequence[Matrix]
) -> tuple[Planned, ...]:
    """By the policy; where nothing is asked for, only FP8 matrices are its business."""
    wanted, by_policy = asked.wanted, asked.policy()
    planned: list[Planned] = []
    for matrix in (*gather(to_decide(asked.inventory, folded), asked.files, tiles), *stacks):
        kept_so = wanted is None or wanted.name == "mxfp4"
        if matrix in stacks and matrix.name not in asked.chosen and kept_so:
            planned.append(kept_stack(matrix))
            continue
        if matrix.name in asked.chosen:
            choice = asked.chosen[matrix.name]
        elif wanted is None and not any(slab.tiles for slab in matrix.slabs):
            choice = Choice(None, "not FP8 in the source" if tiles else "as in the source")
        else:
            choice = by_policy(matrix)
        planned.append(decide(matrix, choice))
    return in_order(planned)


def _repack(inventory: Inventory, kind: Mxfp4Blocks, role: Role, left: set[str]) -> Plan:
    stored = _ROWS["mxfp4"]
    dealt = deal_out(kind.bases, inventory.tensors, stored)
    used = {slab.tensor.name for tensor in dealt for slab in tensor.slabs}
    rest = gather(to_decide(inventory, used | left), checkpoint_of(inventory.config), {})
    planned = in_order([*dealt, *(decide(matrix, Choice(None, "as in the source")) for matrix in rest)])
    config = converted_config(inventory.config, planned, stored)
    files = files_of(planned, inventory.config)
    return Plan(role, "mxfp4 blocks", None, planned, files, config, left_out_notes(inventory, left))


def _import(asked: _PlanRequest, kind: GgufWeights) -> Plan:
    """A GGUF file: as it is, or decoded exactly and then by the policy, or by what a search chose."""
    inventory, wanted, chosen, by_policy = asked.inventory, asked.wanted, asked.chosen, asked.policy()
    planned: list[Planned] = []
    matrices = gguf_matrices(inventory, kind, asked.left)
    apart = torn(matrices, asked.files.joined)
    for matrix in matrices:
        factor = kind.stored[kind.factors[matrix.known_as]] if matrix.known_as in kind.factors else None
        if wanted is None:
            if matrix.name in apart:
                refuse_factor(matrix, factor)
            made = mended(matrix) if matrix.name in apart else keep(matrix, factor)
        else:
            decoded = replace(matrix, dtype="F32") if matrix.dtype in BLOCK_TYPES else matrix
            choice = chosen.get(matrix.name) or by_policy(decoded)
            torn_still = matrix.name in chosen and choice.format is None and matrix.name in apart
            made = mended(matrix) if torn_still else requantized(matrix, choice, factor)
        if any(slab.name in asked.changed for slab in matrix.slabs):
            made = adapted(matrix, made, factor, asked=wanted is not None)
        planned.append(made)
    notes = left_out_notes(inventory, asked.left)
    if wanted is not None:
        notes += requantizing_notes(kind, None if asked.searched else wanted)
    return _imported(asked, "gguf", in_order(planned), notes)


def _codes(asked: _PlanRequest, kind: CodeWeights) -> Plan:
    """Codes of another tool: as they are, or unpacked exactly and then by the policy, or by what a search
    chose, which may be to leave them.
    """
    inventory, wanted, chosen, by_policy = asked.inventory, asked.wanted, asked.chosen, asked.policy()
    tiles = _tiles(inventory, kind.fp8) if kind.fp8 else {}
    folded = {tile.scales.name for tile in tiles.values()} | {*(kind.fp8.unused if kind.fp8 else ())}
    matrices = code_matrices(inventory, kind, tiles, asked.left | folded)
    same = kept(matrices, kind, inventory, by_policy) if wanted is None or asked.searched else []
    if wanted is None:
        refuse_changed(same, asked.changed, inventory.origin)
        planned = same
    else:
        left_so = {one.name: one for one in same if one.name in chosen and not chosen[one.name].format}
        planned = [
            left_so.get(one.name) or quantized(one, chosen.get(one.name) or by_policy(one))
            for one in matrices
        ]
    ordered = in_order(planned)
    told = code_notes(ordered, kind, wanted, found=asked.searched)
    notes = (*left_out_notes(inventory, asked.left), *told)
    if kind.fp8:
        notes += _unused_notes(kind.fp8)
    return _imported(asked, kind.tool, ordered, notes)


def _imported(asked: _PlanRequest, kind: str, planned: tuple[Planned, ...], notes: tuple[str, ...]) -> Plan:
    """Of weights that were packed in a way of their own."""
    wanted, config = asked.wanted, asked.inventory.config
    if wanted is not None and not asked.searched:
        notes += quantizing_notes(planned, wanted)
    files, made = files_of(planned, config), imported_config(config, planned, wanted)
    return Plan(asked.role, kind, wanted, planned, files, made, notes)


def _pass_through(inventory: Inventory, kind: MlxWeights, role: Role) -> Plan:
    packed = {
        f"{module}.weight": packed_module(module, packing, inventory.tensors)
        for module, packing in kind.packed.items()
    }
    for module, blocks in kind.blocks.items():
        packed[f"{module}.weight"] = block_module(module, blocks, inventory.tensors)
    config = mlx_config(inventory.config, kind.quantization)
    if not kind.factored:
        return replace(_keep_files(inventory, role, "mlx", packed), config=config)
    made = [factored_module(matrix, inventory.origin) for matrix in kind.factored.values()]
    parts = {part.name for matrix in kind.factored.values() for part in matrix.tensors}
    rest = {name: tensor for name, tensor in inventory.tensors.items() if name not in parts}
    as_they_are = _keep_files(replace(inventory, tensors=rest), role, "mlx", packed)
    planned, config = in_order([*as_they_are.tensors, *made]), with_blocks(config, made)
    return replace(as_they_are, tensors=planned, files=files_of(planned, config), config=config)


def _changed(
    kept: Plan, inventory: Inventory, kind: MlxWeights, names: Collection[str], left: set[str]
) -> Plan:
    """The same, but that the tensors of these names are unpacked, changed, and packed as they were, and those
    of `left` are left out."""
    blocks = [name for name in names if name.removesuffix(".weight") in kind.blocks]
    if blocks:
        raise PlanError(
            f"{inventory.origin} keeps {blocks[0]} in GGUF's blocks, which modelkit cannot write anew",
            hint=_AT_RUN_TIME,
        )
    planned = tuple(
        repacked_module(one.module, kind.packed[one.module], inventory.tensors)
        if one.name in names and one.module in kind.packed
        else one
        for one in kept.tensors
        if one.name not in left
    )
    count = sum(one.encode is not None for one in planned)
    note = (
        f"{count} of the packed matrices of {inventory.origin} take the adapter: unpacked, changed, packed "
        "again as before, and so rounded once more; added at run time, it costs no precision"
    )
    return replace(
        kept, tensors=planned, files=files_of(planned, inventory.config), notes=(note,) if count else ()
    )


def _keep_files(inventory: Inventory, role: Role, kind: str, decided: Mapping[str, Planned]) -> Plan:
    """Every file as it is; tensors are listed to be shown and checked. `decided`: those with more to say."""
    folded = {o.name for tensor in decided.values() for o in tensor.outputs} - decided.keys()
    planned = {
        name: decided.get(name) or decide(single(tensor), Choice(None, "as in the source"))
        for name, tensor in inventory.tensors.items()
        if name not in folded
    }
    files = tuple(
        PlannedFile(
            "model.safetensors" if len(inventory.weights) == 1 else file.name,
            in_order(planned[t.name] for t in file.header.tensors if t.name in planned),
            file.path,
            file.nbytes,
        )
        for file in inventory.weights
    )
    return Plan(
        role, kind, None, in_order(planned.values()), files, both_spellings(deepcopy(inventory.config)), ()
    )


def _tiles(inventory: Inventory, kind: Fp8Weights) -> dict[str, Tiles]:
    return {
        name: Tiles(inventory.tensors[scales.name], scales.block, scales.shares)
        for name, scales in kind.scales.items()
    }


def _unused_notes(kind: Fp8Weights) -> tuple[str, ...]:
    if not kind.unused:
        return ()
    return (f"{counted(len(kind.unused), 'scale')} left out: activations are not rounded to FP8 here",)


def _untouched(tensor: Planned) -> bool:
    """Is this exactly one source tensor, under its own name, byte for byte?"""
    if tensor.encode is not None or len(tensor.slabs) != 1:
        return False
    (slab,) = tensor.slabs
    return slab.tensor.name == tensor.name and slab.tiles is None and slab == whole(slab.tensor)
