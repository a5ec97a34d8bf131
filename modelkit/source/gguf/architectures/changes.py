"""What a converter does to numbers, as values that can be undone.

Where a change is named, a tensor has to be floats: packed codes cannot take it. `apply` works on arrays of
numpy and of MLX alike; `xp` is the module they come from. The array has the shape `before(shape)`, the result
`shape`.
"""

from typing import Any, Protocol

from runtime.records import dataclass


class Change(Protocol):
    """One tensor's numbers, changed."""

    @property
    def backwards(self) -> "Change": ...

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...

    def apply(self, array: Any, xp: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Added:
    """Weights of norms are stored whole in one place and less one in the other.

    In float32: for weights of at least 0.5 less one is exact, below that it is off by 3e-8 at most.
    """

    number: float

    @property
    def backwards(self) -> "Added":
        return Added(-self.number)

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        return array.astype(xp.float32) + xp.array(self.number, dtype=xp.float32)


@dataclass(frozen=True, slots=True)
class Times:
    """By a power of two, which is exact."""

    number: float

    @property
    def backwards(self) -> "Times":
        return Times(1 / self.number)

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        return array.astype(xp.float32) * xp.array(self.number, dtype=xp.float32)


@dataclass(frozen=True, slots=True)
class Rate:
    """A state space's decay: A_log in checkpoints, -exp(A_log) in GGUF."""

    logarithm: bool = False
    """From the rate to its logarithm."""

    @property
    def backwards(self) -> "Rate":
        return Rate(not self.logarithm)

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        numbers = array.astype(xp.float32)
        return xp.log(-numbers) if self.logarithm else -xp.exp(numbers)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns seen as a grid of `sizes` whose axes are put into `order`, last one kept in place."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def backwards(self) -> "Columns":
        sizes = tuple(self.sizes[axis] for axis in self.order)
        return Columns(sizes, tuple(self.order.index(axis) for axis in range(len(self.order))))

    @property
    def group(self) -> int:
        """Columns that stay together: packed groups that divide this could move whole."""
        return self.sizes[-1] if self.order[-1] == len(self.order) - 1 else 1

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        kept = array.ndim - 1
        grid = array.reshape(*array.shape[:-1], *self.sizes)
        return grid.transpose(*range(kept), *(kept + axis for axis in self.order)).reshape(array.shape)


@dataclass(frozen=True, slots=True)
class Turned:
    """The last two dimensions change places."""

    @property
    def backwards(self) -> "Turned":
        return self

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1], shape[-2])

    def apply(self, array: Any, xp: Any) -> Any:
        return array.swapaxes(-1, -2)


@dataclass(frozen=True, slots=True)
class Unit:
    """Columns (axis 0) or rows (axis 1) are scaled to length one. Those that are so already stay."""

    axis: int = 0

    @property
    def backwards(self) -> "Unit":
        return self

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        numbers = array.astype(xp.float32)
        return numbers / (xp.sqrt((numbers * numbers).sum(axis=self.axis, keepdims=True)) + xp.array(1e-7))


@dataclass(frozen=True, slots=True)
class Power:
    """A_log in checkpoints of Ling 3, exp(A_log) in GGUF."""

    logarithm: bool = False
    """From the power to its logarithm."""

    @property
    def backwards(self) -> "Power":
        return Power(not self.logarithm)

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        numbers = array.astype(xp.float32)
        return xp.log(numbers) if self.logarithm else xp.exp(numbers)


@dataclass(frozen=True, slots=True)
class Product:
    """Two vectors, one behind the other, become their product. It is not taken apart again."""

    @property
    def backwards(self) -> "Product":
        return self

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (2, *shape)

    def apply(self, array: Any, xp: Any) -> Any:
        return array[0].astype(xp.float32) * array[1].astype(xp.float32)


PLUS_ONE = Added(1)
POWER = Power()
DECAY = Rate()
TURNED = Turned()
PRODUCT = Product()
UNIT_COLUMNS = Unit()
UNIT_ROWS = Unit(axis=1)
