"""What an adapter is exported from, whichever form it gets, and the files that every form has."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from modelkit.errors import PlanError
from modelkit.pack.adapters.fusion_sites import Way, Ways, table_that_parts, ways, ways_of
from modelkit.pack.adapters.place import Kind, head_beside
from modelkit.pack.adapters.stored import StoredAdapter
from modelkit.pack.sources import Origin
from modelkit.source.inventory import Inventory
from runtime.models import Described
from runtime.nn.adapters.low_rank import HEAD
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.adapters.low_rank import LowRanks

HEAD_WEIGHT = f"{HEAD}.weight"
HINT = "`create --fuse-adapters` makes it part of the weights, which export takes along."


@dataclass(frozen=True, slots=True)
class ExportedAdapter:
    """An adapter on its way to another form, and its base."""

    adapter: StoredAdapter
    brought: "LowRanks"
    """Its numbers."""
    origin: Origin
    described: Described
    kinds: Mapping[str, Kind]
    """Of the network's modules."""

    @property
    def table(self) -> str | None:
        """The parameter that is embedding and head in one; None where the head is a matrix of its own."""
        return head_beside(self.described)

    def refuse(self, text: str, hint: str = HINT) -> NoReturn:
        """text: what follows the adapter's name."""
        raise PlanError(f"adapter {self.adapter.name} {text}", hint=hint)

    def ways(self, inventory: Inventory, *, apart: bool) -> Ways:
        """Of the tensors there into what the adapter changes. apart: has the form names for the head and for
        the embedding where these are one? Raises PlanError.
        """
        changed, table = self.adapter.parameters, self.table
        try:
            if not apart:
                if table_that_parts(self.described, changed, unties=False) is not None:
                    raise PlanError("it changes only one of head and embedding, which are one here")
                return ways(self.described, inventory, changed)
            own = changed if table is None else {table if name == HEAD_WEIGHT else name for name in changed}
            own -= {f"{name}.bias" for name in self.brought.pairs} - self.brought.whole.keys()  # with a pair
            return ways_of(self.described, inventory, own)
        except PlanError as error:
            raise PlanError(f"adapter {self.adapter.name}: {error.message}", hint=HINT) from error


def as_it_is(way: Way | None, place: int) -> bool:
    """Are these all rows of the parameter at `place`, in order, with their own numbers?"""
    return (
        way is not None
        and bool((way.parameter == place).all())
        and bool((way.row == np.arange(way.row.size)).all())
        and bool((way.times == 1).all())
        and bool((way.plus == 0).all())
    )


def folder_files(
    config_name: str, config: Mapping[str, object], weights_name: str, tensors: "Mapping[str, mx.array]"
) -> dict[str, bytes]:
    """The two files of a form. Tensors lie in the order of names: the same adapter gives the same bytes."""
    import mlx.core as mx

    words = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, array in sorted(tensors.items()):
        lying = mx.contiguous(array)
        parts.append(np.asarray(lying.reshape(-1).view(mx.uint8)).tobytes())
        stop = at + lying.nbytes
        entries[name] = {"dtype": words[array.dtype], "shape": list(array.shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    weights = len(text).to_bytes(8, "little") + text + b"".join(parts)
    return {config_name: json.dumps(config, indent=2).encode() + b"\n", weights_name: weights}
