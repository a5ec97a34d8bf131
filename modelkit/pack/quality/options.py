"""A plan's matrices in groups that share a format, and the bytes that each format takes.

Candidates are what the policy would quantize; norms, routers, towers and small tensors stay as they are.
Tensors that a network puts into one matrix are one group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from modelkit.pack.planning.plan_types import Plan, Planned
from modelkit.source.tensor import BITS
from runtime.quant import FORMATS, Format
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.quality.student import StoredMatrix

KEEP = "keep"
"""The option of staying as it is."""

CHOICES: tuple[Format, ...] = tuple(
    row for row in FORMATS if (row.mode == "affine" and row.bits > 1) or row.name == "mxfp4"
)

HALVES: tuple[Format, ...] = tuple(row for row in FORMATS if row.name == "bf16")
"""What stands between 8 bits and the 32 of a matrix that is so wide. Its range is that of float32; numbers
that leave float16's would be infinite there.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Matrices that get one format."""

    tensors: tuple[Planned, ...]
    modules: tuple[str, ...]
    """Of the network; () for what is not run."""
    kept_bytes: int | None = None
    """What they take as they are, where that is not what their floats would."""

    @property
    def name(self) -> str:
        return self.tensors[0].name

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    def formats(self) -> list[Format]:
        """Those that all of them fit."""
        wide = all(tensor.dtype == "F32" for tensor in self.tensors)
        rows = (*CHOICES, *(HALVES if wide else ()))
        return [row for row in rows if all(row.fits(tensor.shape) for tensor in self.tensors)]

    def stored(self, how: Format) -> "StoredMatrix":
        """How each of its modules would lie in the package."""
        from runtime.quality.student import StoredMatrix

        return StoredMatrix(how, self.stored_dtype(), self.tensors[0].shape[-1])

    def stored_dtype(self) -> "mx.Dtype":
        """The floats of its matrices in the package, and so of their scales."""
        from runtime.weights.files import DTYPES

        return DTYPES[self.tensors[0].dtype]

    def nbytes(self, how: Format | None) -> int:
        if how is None and self.kept_bytes is not None:
            return self.kept_bytes
        return sum(stored_bytes(tensor, how) for tensor in self.tensors)


def stored_bytes(tensor: Planned, how: Format | None) -> int:
    """What a matrix takes in a format; None: as it is."""
    element = BITS[tensor.dtype] // 8
    if how is None or not how.quantized:
        return tensor.elements * (element if how is None else how.bits // 8)
    per_group = 2 * element if how.mode == "affine" else 1
    return tensor.elements * how.bits // 8 + tensor.elements // how.group_size * per_group


def candidates(fine: Plan) -> list[Planned]:
    """fine: a plan at the smallest groups, every matrix alike."""
    return [tensor for tensor in fine.tensors if tensor.quantized]


def group(tensors: Sequence[Planned], made_of: Mapping[str, Iterable[str]]) -> list[Group]:
    """made_of: module -> the stored tensors in it (`runtime.quality.owners`)."""
    by_name = {tensor.name: tensor for tensor in tensors}
    root = {name: name for name in by_name}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    modules: dict[str, list[str]] = {}
    for module, names in made_of.items():
        known = [name for name in names if name in by_name]
        for name in known[1:]:
            root[find(name)] = find(known[0])
        if known:
            modules.setdefault(known[0], []).append(module)
    together: dict[str, list[Planned]] = {}
    for tensor in tensors:
        together.setdefault(find(tensor.name), []).append(tensor)
    return [
        Group(tuple(its), tuple(one for tensor in its for one in modules.get(tensor.name, ())))
        for its in together.values()
    ]
