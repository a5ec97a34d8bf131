"""An adapter in mlx-lm's form, for `mlx_lm.load(..., adapter_path=...)` and `mlx_lm.generate --adapter-path`.

mlx-lm takes no tensor that its model has no place for, so names are those of its classes: MLX's names for the
checkpoint's tensors, behind `language_model.` where the config is a wrapper's. It has one rank and one scale
for all pairs: smaller ranks are filled up with zeros, which add nothing, and other scales go into `lora_b`,
computed in float32. A table that is the head, too, has one pair for both.

`keys` are names inside a layer and `num_layers` counts from the last where all those layers have them, as its
own training writes them; otherwise `keys` are whole names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.exported import ExportedAdapter, as_it_is, folder_files
from modelkit.pack.adapters.fusion_plan import unpacked
from modelkit.pack.mlx_folder.shard import Plain
from modelkit.pack.mlx_lm.limits import UNKNOWN
from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.names import INSIDE
from modelkit.pack.mlx_lm.rewriting import rewritten
from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.source.adapters.mlx import CONFIG, WEIGHTS
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import MlxWeights
from modelkit.source.tensor import TensorInfo
from runtime.config.text import text_block
from runtime.nn.adapters.low_rank import HEAD
from runtime.tensors.towers import unwrapped

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.nn.adapters.low_rank import LowRank

_LAYER = re.compile(r"(?:.*\.)?(?:layers|blocks|h)\.(?P<place>\d+)\.(?P<key>.+)", re.ASCII)
_MISCOUNTED = (3, 5, 6)
"""Bits of packed matrices whose width its DoRA computes wrongly (32 // bits numbers in a word)."""


def mlx_lm_files(exported: ExportedAdapter) -> dict[str, bytes]:
    """Raises PlanError for what mlx-lm's form cannot say."""
    pairs = _pairs(exported)
    rank = max((pair.down.shape[-1] for pair in pairs.values()), default=1)
    scale = max((pair.scale for pair in pairs.values()), key=abs, default=1.0) or 1.0
    tensors: dict[str, mx.array] = {}
    for name, pair in pairs.items():
        leaves = _leaves(pair, rank, pair.scale / scale)
        tensors |= {f"{name}.{leaf}": array for leaf, array in leaves.items()}
    dora = any(pair.magnitude is not None for pair in pairs.values())
    count, keys = _where(pairs, len(exported.described.layout))
    config: dict[str, Any] = {
        "fine_tune_type": "dora" if dora else "lora",
        "lora_parameters": {"rank": rank, "scale": scale, "dropout": 0.0, "keys": keys},
        "model": exported.adapter.base,
        "num_layers": count,
    }
    return folder_files(CONFIG, config, WEIGHTS, tensors)


def _pairs(exported: ExportedAdapter) -> "dict[str, LowRank]":
    """The pairs by the names of mlx-lm's modules."""
    kind = exported.origin.source.inventory.config.get("model_type")
    if kind in UNKNOWN:
        exported.refuse(f"is for a {kind}, which mlx-lm does not run")
    for parameter in exported.brought.rows:
        exported.refuse(f"has rows of {parameter} alone, which mlx-lm's form does not have")
    for parameter in exported.brought.whole:
        exported.refuse(
            f"replaces {parameter}, and mlx-lm's form has whole parameters only where it has no pairs"
        )
    table = None if exported.table is None else exported.table.removesuffix(".weight")
    for module, pair in exported.brought.pairs.items():
        _check(exported, module, pair)
        if table is not None and module in (table, HEAD):
            _check_tied(exported, table)
    names, beside = _names(exported), None if table is None else HEAD
    pairs = exported.brought.pairs.items()
    return {names[f"{module}.weight"]: pair for module, pair in pairs if module != beside}


def _check(exported: ExportedAdapter, module: str, pair: "LowRank") -> None:
    kind, packed = exported.kinds.get(module), exported.origin.source.kind
    if pair.bias is not None:
        exported.refuse(f"has a bias beside the pair of {module}, which mlx-lm's form does not have")
    if kind in ("heads", "other"):
        exported.refuse(f"has a pair for {module}, which is not a matrix that mlx-lm gives pairs")
    if pair.magnitude is None:
        return
    if kind == "table":
        exported.refuse(f"has a magnitude for the columns of {module}, where mlx-lm has them for rows")
    packing = packed.packed.get(module) if isinstance(packed, MlxWeights) else None
    if packing is not None and packing.bits in _MISCOUNTED:
        exported.refuse(
            f"is DoRA, and {module} is packed in {packing.bits} bits, whose width mlx-lm's DoRA miscounts",
            "PEFT's form (--form peft) goes with the unpacked model.",
        )


def _check_tied(exported: ExportedAdapter, table: str) -> None:
    """mlx-lm asks one module for both: what is looked up in it, and the head."""
    looked, head = exported.brought.pairs.get(table), exported.brought.pairs.get(HEAD)
    same = looked is not None and head is not None
    if looked is not None and head is not None:
        import mlx.core as mx

        equal = ((looked.down, head.up.T), (looked.up, head.down.T))
        same = looked.scale == head.scale and all(
            one.shape == other.shape and mx.array_equal(one, other).item() for one, other in equal
        )
    if not same:
        exported.refuse(
            "changes only one of head and embedding, or each otherwise, and in mlx-lm they are one"
        )


def _names(exported: ExportedAdapter) -> dict[str, str]:
    """What mlx-lm calls the modules of the parameters that the adapter changes, by parameter."""
    inventory = unpacked(exported.origin.source)
    files = checkpoint_of(inventory.config)
    matrices = gather(inventory.tensors.values(), files, {})
    shapes = {matrix.name: matrix.shape for matrix in matrices}
    known = exported.ways(_with(inventory, shapes), apart=False)  # `_check_tied` has seen to it
    stored = {place: name for name, way in known.of.items() for place in (int(way.parameter.flat[0]),)}
    wrapped, kind = text_block(inventory.config) is not None, inventory.config.get("model_type")
    _check_form(exported, set(stored.values()))
    found: dict[str, str] = {}
    for place, parameter in enumerate(known.parameters):
        name = stored.get(place)
        if name is None or not name.endswith(".weight") or not as_it_is(known.of[name], place):
            exported.refuse(f"changes {parameter}, which mlx-lm's class of this model has otherwise")
        found[parameter] = _called(name, kind, wrapped=wrapped).removesuffix(".weight")
    return found


def _check_form(exported: ExportedAdapter, touched: set[str]) -> None:
    """The adapter is for the model as `export` lays it out. Where mlx-lm computes that only in its own form,
    what the adapter changes has to be the same there. touched: MLX's names of stored matrices.
    """
    inventory = exported.origin.source.inventory
    before = {name: Plain(tensor) for name, tensor in inventory.tensors.items()}
    made = rewritten(MutableFolder(inventory.config, {"": before}))
    after = made.folder.files[""]
    same = after == before
    fields = (
        exported.table,
        *(one.get("tie_word_embeddings") for one in (inventory.config, made.folder.config)),
    )
    retied = fields[0] in exported.adapter.parameters and fields[1] != fields[2]
    other = sorted(name for name in touched if not same and not isinstance(after.get(name), Plain))
    if other or retied:
        exported.refuse(
            f"changes {other[0] if other else exported.table}, which is otherwise in the form that mlx-lm "
            f"needs of this model ({'; '.join(made.done)})",
            "`create --fuse-adapters` makes it part of the weights; export that with --form mlx-lm.",
        )


def _called(name: str, kind: object, *, wrapped: bool) -> str:
    if not wrapped:
        pairs = INSIDE.get(str(kind), ())
        return next((name.replace(old, new) for old, new in pairs if old in name), name)
    inside = unwrapped(name)
    return f"language_model.{inside}" if inside.startswith(HEAD) else f"language_model.model.{inside}"


def _with(inventory: Inventory, shapes: Mapping[str, tuple[int, ...]]) -> Inventory:
    """The same model as if these were its tensors. Nobody reads them."""
    some = next(iter(inventory.tensors.values()))
    made = {name: TensorInfo(name, "F32", shape, some.path, 0, 0) for name, shape in shapes.items()}
    return replace(inventory, tensors=made)


def _leaves(pair: "LowRank", rank: int, share: float) -> "dict[str, mx.array]":
    """share: of the scale that all have."""
    import mlx.core as mx

    down, up = (_filled(array, axis, rank) for array, axis in ((pair.down, -1), (pair.up, -2)))
    if share != 1:
        up = up.astype(mx.float32) * share
    if down.ndim > 2:
        return {"lora_a": down.swapaxes(-1, -2), "lora_b": up.swapaxes(-1, -2)}
    found = {"lora_a": down, "lora_b": up}
    return found if pair.magnitude is None else {**found, "m": pair.magnitude}


def _filled(array: "mx.array", axis: int, rank: int) -> "mx.array":
    import mlx.core as mx

    more = [(0, 0)] * array.ndim
    more[axis] = (0, rank - array.shape[axis])
    return mx.pad(array, more)


def _where(names: Iterable[str], layers: int) -> tuple[int, list[str]]:
    """(num_layers, keys)"""
    found = [(name, _LAYER.fullmatch(name)) for name in names]
    inside = [match for _, match in found if match]
    beside = [name for name, match in found if match is None]
    keys = {match["key"] for match in inside}
    places = {int(match["place"]) for match in inside}
    count = len(places)
    if places == set(range(layers - count, layers)) and len(inside) == count * len(keys):
        return count or layers, sorted([*keys, *beside])
    return layers, sorted(name for name, _ in found)
