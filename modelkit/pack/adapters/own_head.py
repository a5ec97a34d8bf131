"""A checkpoint whose head is its embedding, as one that has the head besides: what an adapter that tells the
two apart is fused into.

No number is copied: the head's tensors are the table's bytes, under a second name, and become its own when
they are written.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from modelkit.errors import PlanError
from modelkit.pack.sources import Source
from modelkit.pack.tying import HEADS, OTHER_HEADS, untied
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import CodeWeights, GgufWeights, MlxWeights
from modelkit.source.tensor import TensorInfo
from modelkit.units import size
from runtime.loading.row_trace import trace
from runtime.loading.shapes import parameters
from runtime.models import Described, describe
from runtime.nn.adapters.low_rank import HEAD
from runtime.records import dataclass

if TYPE_CHECKING:
    from runtime.nn.adapters.low_rank import LowRanks

_PARTS = ("weight", "scales", "biases", "factor")
_HINT = "Leave --fuse-adapters out: run time keeps the two apart."


@dataclass(frozen=True, slots=True)
class OwnHead:
    """Of a network whose head was its embedding."""

    table: str
    """The parameter that was both: `model.embed_tokens.weight`."""
    module: str
    """What the head is called now: `lm_head`."""

    def parameters(self, changed: set[str]) -> set[str]:
        """Names of what adapters change, which say HEAD for a head that is not a parameter of its own."""
        own = {f"{HEAD}.{leaf}": f"{self.module}.{leaf}" for leaf in ("weight", "bias")}
        return {own.get(name, name) for name in changed}

    def ranks(self, adapter: "LowRanks") -> "LowRanks":
        """The same numbers for the network as it is now."""
        pairs, whole, rows = dict(adapter.pairs), dict(adapter.whole), dict(adapter.rows)
        if HEAD in pairs:
            pairs[self.module] = pairs.pop(HEAD)
        if f"{HEAD}.weight" in whole:
            whole[f"{self.module}.weight"] = whole.pop(f"{HEAD}.weight")
        if f"{HEAD}.weight" in rows:
            rows[f"{self.module}.weight"] = rows.pop(f"{HEAD}.weight")
        return replace(adapter, pairs=pairs, whole=whole, rows=rows)


def with_own_head(source: Source, table: str, spare: str | None) -> tuple[Source, OwnHead]:
    """table: the network's parameter that is embedding and head in one. spare: a tensor that repeats it.

    Raises PlanError where it must be one.
    """
    if isinstance(source.kind, GgufWeights | CodeWeights):
        raise PlanError(
            "the adapter changes only one of head and embedding, or each otherwise, and both are to be made "
            "of one matrix of another program's",
            hint="Make a package of it first (of GGUF with -q f32, which is exact), then one FROM that.",
        )
    inventory = untied(source.inventory)
    if inventory is None:
        raise PlanError(
            "the adapter changes only one of head and embedding, or each otherwise, and this architecture "
            "computes with one matrix for both",
            hint=_HINT,
        )
    described = describe(inventory.config)
    own = _new_matrix(describe(source.inventory.config), described)
    module = _stored_as(described, inventory, table)
    head = next(_names(described, own, inventory.tensors[f"{module}.weight"]), None)
    if head is None:
        raise PlanError(
            f"{inventory.origin}: this architecture has no name for a head beside {module}.weight", hint=_HINT
        )
    again = [
        replace(inventory.tensors[f"{module}.{part}"], name=f"{head}.{part}")
        for part in _PARTS
        if f"{module}.{part}" in inventory.tensors
    ]
    tensors = {name: tensor for name, tensor in inventory.tensors.items() if name != spare}
    tensors |= {tensor.name: tensor for tensor in again}
    kind = source.kind
    if isinstance(kind, MlxWeights):
        packed = {head: kind.packed[module]} if module in kind.packed else {}
        blocks = {head: kind.blocks[module]} if module in kind.blocks else {}
        kind = replace(kind, packed={**kind.packed, **packed}, blocks={**kind.blocks, **blocks})
    added = size(sum(tensor.nbytes for tensor in again))
    note = f"the adapter tells head and embedding apart, which are one: the head is stored besides ({added})"
    apart = replace(
        source, inventory=replace(inventory, tensors=tensors), kind=kind, notes=(*source.notes, note)
    )
    return apart, OwnHead(table, own)


def _new_matrix(before: Described, after: Described) -> str:
    """The module that only the second network has."""
    new = parameters(after).keys() - parameters(before).keys()
    return next(name.removesuffix(".weight") for name in sorted(new) if name.endswith(".weight"))


def _stored_as(described: Described, inventory: Inventory, table: str) -> str:
    """The checkpoint's module that arrives there, whole."""
    shape = parameters(described)[table]
    for name, tensor in inventory.tensors.items():
        if not name.endswith(".weight") or tensor.shape[:1] != shape[:1]:
            continue
        if any(one.name == table for one in trace(described, {name: shape}, {}).arrivals):
            return name.removesuffix(".weight")
    raise PlanError(
        f"{inventory.origin} stores its embedding in a form into which adapters cannot be fused", hint=_HINT
    )


def _names(described: Described, own: str, table: TensorInfo) -> Iterator[str]:
    """Modules that a checkpoint of that family may store its head in, at the wrapper's place or outside."""
    shape, parts = (described.vocab_size, described.hidden_size), table.name.split(".")
    for depth in range(len(parts) - 1):
        for leaf in (*HEADS, *OTHER_HEADS):
            name = ".".join((*parts[:depth], leaf))
            if any(one.name == f"{own}.weight" for one in trace(described, {name: shape}, {}).arrivals):
                yield name.removesuffix(".weight")
