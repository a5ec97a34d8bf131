"""An adapter brought to one network: what it adds behind which module, ready to be added.

A model's weights stay as they are, packed or not. DoRA's factor is a constant of adapter and base: it is
computed here, once, in float32, of the base that really runs (expanded or packed), and with the pair's scale
it goes into `up`. So at run time all adapters are alike (`runtime.nn.adapters.rows`):

    more = x·down·up + bias + factor ∘ (y - b)          factor = g - 1, y - b = x Wᵀ

Taken by every matrix and table that a network asks through `runtime.nn.linear`, stacks of experts, matrices
by heads, routers, and the head, tied or not. Parameters of anything else (norms, convolutions, states) enter
a step for all of its rows at once, so they cannot differ from row to row: such an adapter is refused.
"""

from collections.abc import Mapping
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.errors import WeightMismatch
from runtime.nn.adapters.fusion import floats, gain
from runtime.nn.adapters.low_rank import HEAD, LowRank, LowRanks, Rows
from runtime.nn.attention.mla import HeadLinear, QuantizedHeadLinear
from runtime.nn.feed_forward.experts import STACKS
from runtime.nn.linear import MATRICES, TABLES, head_of
from runtime.nn.operations import ops
from runtime.records import dataclass

FUSE = "fuse it into the weights instead (create --fuse-adapters)"

Kind = Literal["matrix", "table", "experts", "heads"]
Key = tuple[int, bool]
"""A module by its id, and whether it is asked as a head that is a table by birth."""


@dataclass(slots=True)
class Part:
    """What an adapter adds behind one module. n: rows that differ."""

    kind: Kind
    down: mx.array | None = None
    """[in, r]; a table's [V, r], experts' [E, in, r]."""
    up: mx.array | None = None
    """[r, out]; experts' [E, r, out], by heads [H, r, out]. Scale and DoRA's factor are in it."""
    factor: mx.array | None = None
    """DoRA's g - 1: [out], by heads [H, out]."""
    bias: mx.array | None = None
    """[out], the scale in it."""
    whole: nn.Module | None = None
    """What answers in the module's place."""
    rows: Rows | None = None
    """Rows of its weight that are others."""

    @property
    def adds(self) -> bool:
        """Is there anything beside what replaces?"""
        return any(one is not None for one in (self.down, self.factor, self.bias))

    def arrays(self) -> list[mx.array]:
        rows = () if self.rows is None else (self.rows.ids, self.rows.values)
        whole = () if self.whole is None else tuple(self.whole.values())
        found = (self.down, self.up, self.factor, self.bias, *rows, *whole)
        return [array for array in found if isinstance(array, mx.array)]


class Adapter:
    """What was read of an adapter, brought to one network. dtype: of the activations; None: as it is stored.

    Raises WeightMismatch, with a sentence for each name that the network does not have, each shape that does
    not fit, and each parameter that cannot differ from row to row. A module that is put in another's place
    later has no part; make the adapter again.
    """

    def __init__(self, network: nn.Module, brought: LowRanks, dtype: mx.Dtype | None = None) -> None:
        self._modules: dict[str, Any] = dict(network.named_modules())
        self._dtype = dtype
        self._tied = None if HEAD in self._modules else head_of(network)
        self.parts: dict[Key, Part] = {}
        self._held: list[nn.Module] = []  # so that no other module gets the id of one of these
        problems: list[str] = []
        for name, pair in brought.pairs.items():
            problems += self._add_pair(name, pair, own=f"{name}.weight" in brought.whole)
        for name, rows in brought.rows.items():
            problems += self._add_rows(name, rows)
        for name, array in brought.whole.items():
            problems += self._add_whole(name, array, brought.whole)
        if problems:
            raise WeightMismatch(sorted(problems))
        mx.eval([part.arrays() for part in self.parts.values()])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for part in self.parts.values() for array in part.arrays())

    def _find(self, name: str) -> tuple[Any, bool, str | None]:
        """The module, whether it is a table as the head, and what is wrong with it."""
        if name == HEAD and self._tied is not None:
            return self._tied, True, None
        module = self._modules.get(name)
        if module is None:
            return None, False, f"{name} belongs to no module of this architecture"
        return module, False, None

    def _part(self, module: Any, head: bool) -> Part | None:
        """The one for this module, made when there is none; None for modules that take nothing."""
        found = self.parts.get((id(module), head))
        kind = "matrix" if head else kind_of(module)
        if found is None and kind is not None:
            found = self.parts[id(module), head] = Part(kind)
            self._held.append(module)
        return found

    def _add_pair(self, name: str, pair: LowRank, own: bool) -> list[str]:
        """own: the adapter brings the module's weight, too."""
        module, head, problem = self._find(name)
        if problem:
            return [problem]
        part = self._part(module, head)
        if part is None:
            return [f"{name} is not a matrix that takes a pair; {FUSE}"]
        problem = _misfit(name, part.kind, logical_shape(module), pair)
        if part.up is not None:
            problem = f"{name} is one module with another that has a pair"
        if problem is None and own and pair.magnitude is not None:
            problem = f"{name} has a magnitude beside a weight of its own; {FUSE}"
        if problem:
            return [problem]
        up = pair.up.astype(mx.float32) * pair.scale
        if pair.magnitude is not None:
            factor = gain(pair, floats(module), table=part.kind == "table")
            up, part.factor = up * factor[..., None, :], self._cast(factor - 1)
        part.down, part.up = self._kept(part, pair.down, pair.down), self._kept(part, up, pair.up)
        if pair.bias is not None:
            part.bias = self._cast(pair.bias.astype(mx.float32) * pair.scale)
        mx.eval(part.arrays())  # one at a time: a base's floats are let go before the next one's are made
        return []

    def _add_rows(self, name: str, rows: Rows) -> list[str]:
        path, _, leaf = name.rpartition(".")
        module, head, problem = self._find(path)
        if problem:
            return [problem]
        part = self._part(module, head) if head or kind_of(module) in ("table", "matrix") else None
        if part is None or leaf != "weight":
            return [f"{name} has no rows that could be others; {FUSE}"]
        tokens, width = logical_shape(module)
        ids = rows.ids.tolist()
        assert isinstance(ids, list)
        if rows.values.shape != (len(ids), width) or not all(0 <= int(i) < tokens for i in ids):  # pyright: ignore[reportArgumentType] -- ints
            return [f"{name} has rows that do not fit a table of {tokens}×{width}"]
        part.rows = Rows(rows.ids.astype(mx.int32), self._cast(rows.values))
        return []

    def _add_whole(self, name: str, array: mx.array, whole: Mapping[str, mx.array]) -> list[str]:
        path, _, leaf = name.rpartition(".")
        module, head, problem = self._find(path)
        if problem:
            return [problem]
        part = None
        if leaf in ("weight", "bias") and (head or kind_of(module) in ("matrix", "table")):
            part = self._part(module, head)
        if part is None or (not head and not hasattr(module, "weight")):
            return [f"{name} cannot differ between the rows of a batch; {FUSE}"]
        shape = logical_shape(module)
        wanted = shape if leaf == "weight" else shape[:1]
        if array.shape != wanted or (leaf == "bias" and "bias" not in module):
            return [f"{name} has shape {_dims(array.shape)}, expected {_dims(wanted)}"]
        if leaf == "weight":
            own: dict[str, mx.array] = {"bias": module["bias"]} if "bias" in module else {}
            bias = whole.get(f"{path}.bias", own.get("bias"))
            part.whole = _replacement(part.kind, self._cast(array), bias)
        elif f"{path}.weight" not in whole:
            more = array.astype(mx.float32) - module["bias"].astype(mx.float32)
            part.bias = self._cast(more if part.bias is None else part.bias.astype(mx.float32) + more)
        return []

    def _kept(self, part: Part, array: mx.array, stored: mx.array) -> mx.array:
        """A matrix of a pair. Kernels widen as they read: what was stored in 16 bits stays so if it fits."""
        narrow = stored.dtype in (mx.bfloat16, mx.float16) and self._dtype == mx.float32
        if narrow and part.kind == "matrix" and ops.by_kernels("add_pairs"):
            short = array.astype(stored.dtype)
            if mx.array_equal(short.astype(mx.float32), array.astype(mx.float32)).item():
                return short
        return self._cast(array)

    def _cast(self, array: mx.array) -> mx.array:
        return array if self._dtype is None else array.astype(self._dtype)


def kind_of(module: Any) -> Kind | None:
    """How a module is asked, None for those that take nothing."""
    if type(module) in MATRICES:
        return "matrix"
    if type(module) in TABLES:
        return "table"
    if hasattr(type(module), "takes_pairs"):
        return type(module).takes_pairs
    if type(module) in STACKS:
        return "experts"
    return "heads" if isinstance(module, HeadLinear | QuantizedHeadLinear) else None


def logical_shape(module: Any) -> tuple[int, ...]:
    """Of its weight as floats."""
    *lead, width = module["weight"].shape
    blocks = vars(module).get("blocks")
    if blocks is not None:
        return (*lead, width // blocks.nbytes * blocks.weights)
    return (*lead, width * 32 // module.bits) if "scales" in module else (*lead, width)


def _misfit(name: str, kind: Kind, shape: tuple[int, ...], pair: LowRank) -> str | None:
    """What is wrong with a pair's shapes for a weight of this one."""
    *lead, out, width = shape
    stack = tuple(lead)
    first, last = (out, width) if kind == "table" else (width, out)
    rank = pair.down.shape[-1]
    wanted: dict[str, tuple[mx.array, tuple[int, ...]]] = {
        "lora_down": (pair.down, (*(stack if kind == "experts" else ()), first, rank)),
        "lora_up": (pair.up, (*stack, rank, last)),
    }
    if pair.magnitude is not None:
        wanted["lora_magnitude"] = (pair.magnitude, (*stack, last))
    if pair.bias is not None:
        wanted["lora_bias"] = (pair.bias, (last,))
    for leaf, (array, expected) in wanted.items():
        if array.shape != expected:
            return f"{name}.{leaf} has shape {_dims(array.shape)}, expected {_dims(expected)}"
    if kind in ("experts", "heads") and pair.bias is not None:
        return f"{name} is a stack of matrices, which takes no bias; {FUSE}"
    if kind == "experts" and pair.magnitude is not None:
        return f"{name} is a stack of experts, which takes no magnitude; {FUSE}"
    return None


def _replacement(kind: Kind, weight: mx.array, bias: mx.array | None) -> nn.Module:
    rows, width = weight.shape
    module: Any = nn.Embedding(rows, width) if kind == "table" else nn.Linear(width, rows, bias is not None)
    module.weight = weight
    if bias is not None:
        module.bias = bias
    return module


def _dims(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
