"""An adapter of a package -> a folder in the form of another program: PEFT's, or mlx-lm's.

A package has pairs by the modules of our network. They are given out where the other program's checkpoint has
the module's matrix, row by row as it is. What was cut, joined, permuted or stacked on the way is refused by
name; so are parts that the form has no word for.

    as_peft      under transformers' names: those of the package's own checkpoint
    as_mlx_lm    under the names of mlx-lm's classes
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from modelkit.errors import ModelkitError, PlanError
from modelkit.pack.adapters.forms import AdapterForm
from modelkit.pack.adapters.fusing import Way, Ways, ways
from modelkit.pack.adapters.place import Kind, kinds_of
from modelkit.pack.adapters.stored import StoredAdapter
from modelkit.pack.sources import Origin, open_package
from modelkit.source.inventory import Inventory
from modelkit.store.package import Package
from runtime.models import Described, describe
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.low_rank import LowRanks

_HINT = "`create --fuse-adapters` makes it part of the weights, which export takes along."


@dataclass(frozen=True, slots=True)
class Given:
    """An adapter that is to be given out, and its base."""

    adapter: StoredAdapter
    brought: "LowRanks"
    """Its numbers."""
    origin: Origin
    described: Described
    kinds: Mapping[str, Kind]
    """Of the network's modules."""

    def refuse(self, text: str, hint: str = _HINT) -> NoReturn:
        """text: what follows the adapter's name."""
        raise PlanError(f"adapter {self.adapter.name} {text}", hint=hint)

    def ways(self, inventory: Inventory, *, unties: bool) -> Ways:
        """Of the tensors there into what the adapter changes. unties: as in `fusing.ways`.

        Raises PlanError.
        """
        try:
            return ways(self.described, inventory, self.adapter.parameters, unties=unties)
        except PlanError as error:
            raise PlanError(f"adapter {self.adapter.name}: {error.message}", hint=_HINT) from error


def adapter_files(package: Package, name: str, form: AdapterForm = "peft") -> dict[str, bytes]:
    """The files of the adapter's folder, by name. Raises PlanError for what the form cannot say."""
    origin = open_package(package)
    adapter = origin.adapters.get(name)
    if adapter is None:
        have = ", ".join(origin.adapters) or "none"
        raise ModelkitError(f"{package.name} has no adapter {name!r:.80}; there is {have}")
    described = describe(origin.source.inventory.config)
    given = Given(adapter, adapter.load(), origin, described, kinds_of(described))
    _check(given)
    if form == "peft":
        from modelkit.pack.adapters.as_peft import peft_files

        return peft_files(given)
    from modelkit.pack.adapters.as_mlx_lm import mlx_lm_files

    return mlx_lm_files(given)


def _check(given: Given) -> None:
    """What neither form can say."""
    if given.brought.rows:
        given.refuse(f"has rows of {next(iter(given.brought.rows))} alone")
    pairs = given.brought.pairs.values()
    for what, having in (
        ("a magnitude", [pair.magnitude is not None for pair in pairs]),
        ("a bias", [pair.bias is not None for pair in pairs]),
    ):
        if any(having) and not all(having):
            raise PlanError(
                f"some pairs of adapter {given.adapter.name} have {what}, and some none", hint=_HINT
            )


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
