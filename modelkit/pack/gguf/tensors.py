"""A package's tensors as a text model's own: flat names, sizes in numbers, and how each is packed.

Names are MLX's, with experts in stacks as `experts.gather` makes them, and without what a wrapper puts before
them (`language_model.`). What belongs to images and sound is left out. Nothing is read here.
"""

import re
from collections.abc import Iterable, Mapping
from math import prod

from modelkit.errors import UnsupportedSource
from modelkit.pack.planning.experts import gather, one_by_one
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.omissions import masks
from modelkit.pack.planning.slabs import Columns, Slab, whole
from modelkit.pack.sources import Source
from modelkit.source.inventory import Inventory
from modelkit.source.mlx_layout import MlxWeights
from modelkit.source.prequantized import FloatWeights, Packing
from modelkit.source.tensor import BITS, TensorInfo
from runtime.blocks.types import BlockType
from runtime.config.text import text_config
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint

FLOATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
"""safetensors' names of types, and GGUF's."""
NUMBERS = {**FLOATS, "I32": "i32", "I64": "i32"}

_INNER = "language_model."
_MODEL_INNER = "model.language_model."
_HEAD_NORM = re.compile(r"(.*self_attn\.[qk])_layernorm\.norms\.(\d{1,5})\.weight", re.ASCII)
_PARTS = (".scales", ".biases", ".factor")


@dataclass(frozen=True, slots=True)
class Part:
    """Stored numbers, codes or scales: rows of the package's tensors, one after the other."""

    dtype: str
    shape: tuple[int, ...]
    slabs: tuple[Slab | Columns, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a package."""

    name: str
    """Flat, with `.weight` where it has that."""
    shape: tuple[int, ...]
    """In numbers."""
    data: Part
    """Numbers, or codes."""
    packing: Packing | BlockType | None
    """None: plain numbers. A block type: kept as a GGUF file had it."""
    scales: Part | None = None
    biases: Part | None = None
    factor: Part | None = None
    """Of kept blocks: what all numbers, or those of each expert, are multiplied by besides."""


_CLUSTERS = "masked_embedding."


@dataclass(frozen=True, slots=True)
class Tensors:
    """A package's tensors, by flat name."""

    model: Mapping[str, Stored]
    heads: Mapping[str, Stored]
    """Of draft heads."""
    towers: int
    """How many there are for images and sound, which are left out."""
    unread: tuple[str, ...]
    """Names of those beside an encoder that are for other tasks, and left out, too."""
    clusters: bool = False
    """Are the clusters left out that an assistant has its vocabulary in?"""


def stored_tensors(source: Source) -> Tensors:
    """Raises UnsupportedSource for weights that are kept in another way."""
    inventory, kind = source.inventory, source.kind
    checkpoint = checkpoint_of(inventory.config)
    text = {name: one for name, one in inventory.tensors.items() if not checkpoint.towers.has(name)}
    clusters = {name for name in text if name.startswith(_CLUSTERS)}
    unread = tuple(name for name in text if checkpoint.never_read(name))
    out = {*clusters, *unread, *masks(inventory)}
    kept = [one for name, one in text.items() if name not in out]
    if isinstance(kind, MlxWeights):
        stored = _with_experts(_packed_and_plain(kept, kind, inventory), one_by_one(kept), checkpoint)
    elif isinstance(kind, FloatWeights):
        stored = _plain(kept, checkpoint)
    else:
        raise UnsupportedSource(
            f"{inventory.origin} holds its weights in a form that is not written as GGUF",
            hint="Make a package of it first: `modelkit create`.",
        )
    layers = text_config(inventory.config).get("num_hidden_layers")
    count = layers if type(layers) is int else 0
    heads = {one.name: one for name, one in stored if checkpoint.in_head(name, count)}
    model = _with_stacks({one.name: one for _, one in stored if one.name not in heads}, inventory.origin)
    return Tensors(model, heads, len(inventory.tensors) - len(text), unread, bool(clusters))


def _plain(tensors: Iterable[TensorInfo], checkpoint: Checkpoint) -> list[tuple[str, Stored]]:
    """(name, tensor) of numbers, in MLX's layout. What is one tensor keeps its shape and its numbers: the
    table of architectures knows published ones and MLX's.
    """
    found: list[tuple[str, Stored]] = []
    for matrix in gather(tensors, checkpoint, {}):
        first = matrix.slabs[0]
        alone = len(matrix.slabs) == 1 and first == whole(first.tensor)
        shape = first.tensor.shape if alone else matrix.shape
        slabs = tuple(slab for slab in matrix.slabs if isinstance(slab, Slab | Columns))
        assert len(slabs) == len(matrix.slabs), "stored tensors are never joined, nor other tools' codes"
        part = Part(_float(matrix.name, matrix.dtype), shape, slabs)
        found.append((matrix.name, Stored(flat_name(matrix.name), shape, part, None)))
    return found


def _packed_and_plain(
    tensors: Iterable[TensorInfo], kind: MlxWeights, inventory: Inventory
) -> list[tuple[str, Stored]]:
    """The same where some matrices are packed."""
    found: list[tuple[str, Stored]] = []
    for module in sorted(kind.ordered)[:1]:
        raise UnsupportedSource(
            f"{inventory.origin} has the inputs of {module} in the order of activations, and a GGUF file has "
            "no place for that",
            hint="Make the package of the checkpoint with -q f16, which unpacks it exactly, or with -q q8.",
        )
    modules = {**kind.packed, **kind.blocks}
    for tensor in tensors:
        module = tensor.name.removesuffix(".weight")
        if module in modules and module != tensor.name:
            one = _packed(tensor, modules[module], inventory.tensors)
        elif any(tensor.name.removesuffix(part) in modules for part in _PARTS if tensor.name.endswith(part)):
            continue
        else:
            _float(tensor.name, tensor.dtype)
            one = Stored(flat_name(tensor.name), tensor.shape, _part(tensor), None)
        found.append((tensor.name, one))
    return found


def _packed(tensor: TensorInfo, packing: Packing | BlockType, tensors: Mapping[str, TensorInfo]) -> Stored:
    module, name = tensor.name.removesuffix(".weight"), flat_name(tensor.name)
    scales, biases, factor = (
        _part(tensors[other]) if (other := f"{module}{part}") in tensors else None for part in _PARTS
    )
    if isinstance(packing, BlockType):
        width = tensor.shape[-1] // packing.nbytes * packing.weights
    else:
        width = tensor.shape[-1] * 32 // packing.bits
    return Stored(name, (*tensor.shape[:-1], width), _part(tensor), packing, scales, biases, factor)


def _with_experts(
    found: list[tuple[str, Stored]], alone: list[TensorInfo], checkpoint: Checkpoint
) -> list[tuple[str, Stored]]:
    """With experts that lie one by one (DBRX's, packed by mlx-lm) in stacks."""
    each = {name: one for name, one in found if name in {tensor.name for tensor in alone}}
    stacks: list[tuple[str, Stored]] = []
    for matrix in gather(alone, checkpoint, {}):
        members = [each[slab.tensor.name] for slab in matrix.slabs]
        first, name = members[0], flat_name(matrix.name)
        if any((one.shape, one.packing) != (first.shape, first.packing) for one in members):
            raise UnsupportedSource(f"the experts that {name} is made of are not all packed alike")
        data, scales, biases = (
            _stack([part for one in members if (part := getattr(one, field))])
            for field in ("data", "scales", "biases")
        )
        assert data is not None
        shape = (len(members), *first.shape)
        stacks.append((matrix.name, Stored(name, shape, data, first.packing, scales, biases)))
    return [*((name, one) for name, one in found if name not in each), *stacks]


def _stack(parts: list[Part]) -> Part | None:
    if not parts:
        return None
    shape = (len(parts), *parts[0].shape)
    return Part(parts[0].dtype, shape, tuple(slab for part in parts for slab in part.slabs))


def norm_of_head(name: str) -> tuple[str, int] | None:
    """A norm that a checkpoint has for each head (StableLM 2 12B): the name of their stack, and which."""
    found = _HEAD_NORM.fullmatch(name)
    return (f"{found[1]}_norm.weight", int(found[2])) if found else None


def _with_stacks(tensors: Mapping[str, Stored], label: str) -> dict[str, Stored]:
    """Norms of heads as one tensor for each layer, [heads, size]. Raises UnsupportedSource for gaps."""
    found: dict[str, Stored] = {}
    stacks: dict[str, dict[int, Stored]] = {}
    for name, stored in tensors.items():
        place = norm_of_head(name)
        if place is None:
            found[name] = stored
        else:
            stacks.setdefault(place[0], {})[place[1]] = stored
    for name, rows in stacks.items():
        members = [rows[i] for i in range(len(rows)) if i in rows]
        kinds = {(one.shape, one.data.dtype, one.packing) for one in members}
        if len(members) != len(rows) or len(kinds) > 1:
            raise UnsupportedSource(f"{label}: the norms of heads that {name} is made of are not all alike")
        shape = (len(members), *members[0].shape)
        slabs = tuple(slab for one in members for slab in one.data.slabs)
        found[name] = Stored(name, shape, Part(members[0].data.dtype, shape, slabs), None)
    return found


def _part(tensor: TensorInfo) -> Part:
    return Part(tensor.dtype, tensor.shape, (whole(tensor),))


def _float(name: str, dtype: str) -> str:
    if dtype not in NUMBERS:
        raise UnsupportedSource(f"`{name}` is {dtype}, which is not written as GGUF")
    return dtype


def flat_name(name: str) -> str:
    """Without a wrapper's beginnings."""
    if name.startswith(_MODEL_INNER):
        return "model." + name.removeprefix(_MODEL_INNER)
    return name.removeprefix(_INNER)
