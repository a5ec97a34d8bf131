"""The model that formats are chosen for, in memory: as float32, whatever the type of its source."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import PlanError
from modelkit.pack.part import Part
from modelkit.pack.planning.omissions import is_in_the_way
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.planning.policy import Choice
from modelkit.source.prequantized import (
    CodeWeights,
    FloatWeights,
    Fp8Weights,
    GgufWeights,
    MlxWeights,
    SourceKind,
)
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import Format, find_format

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.loaded import LoadedModel


def load(part: Part) -> "LoadedModel":
    """The part's source as float32. Raises PlanError."""
    from runtime.cpu import bind_blas
    from runtime.device import device
    from runtime.errors import RuntimeFault
    from runtime.loading.load import load_model

    here = device()
    config, weights = _stored(part)
    try:
        if here.kind == "cpu":
            bind_blas()
        return load_model(config, weights, on=replace(here, fast_dtype="float32", as_stored=False))
    except RuntimeFault as fault:
        raise PlanError(
            f"{part.source.inventory.origin} cannot be read to choose formats: {fault}",
            hint="Weights are held as float32 meanwhile. Name a format instead, such as q4.",
        ) from fault


def _is_packed(kind: SourceKind) -> bool:
    """Is it a GGUF file with blocks?"""
    return isinstance(kind, GgufWeights) and any(name in BLOCK_TYPES for name in kind.types())


def _stored(part: Part) -> "tuple[Mapping[str, Any], list[Path] | dict[str, mx.array]]":
    """What the source says of itself, and its weights: where they lie, or, of a form that nothing runs, the
    tensors of a package with their numbers. Never in the format that the part is to get. Numbers whose
    formats are to be found are floats: the network is differentiated.
    """
    kind, inventory = part.source.kind, part.source.inventory
    floats = isinstance(kind, FloatWeights) and not is_in_the_way(inventory)
    if floats or (isinstance(kind, MlxWeights) and not kind.factored):
        return part.plan.config, [file.path for file in inventory.weights]
    from modelkit.pack.writing.arrays import read_arrays

    searched = part.asked is not None and part.asked.measures
    if isinstance(kind, Fp8Weights):
        whole = replace(part, plan=_decoded(part))
    elif searched and (isinstance(kind, CodeWeights) or _is_packed(kind)):
        whole = replace(part, plan=_plan(part, find_format("f32")))
    else:
        whole = replace(part, plan=_plan(part, None))
    return whole.plan.config, read_arrays(whole)


def _decoded(part: Part) -> Plan:
    """Of FP8: it becomes bfloat16, which is what formats are made of; the rest stays."""
    fine = _plan(part, find_format("q8g32"))
    return _plan(part, fine.format, {one.name: Choice(None, "as in the source") for one in fine.tensors})


def _plan(part: Part, wanted: Format | None, chosen: Mapping[str, Choice] | None = None) -> Plan:
    source, role = part.source, part.plan.role
    return plan(source.inventory, source.kind, wanted, role=role, spare=part.spare, chosen=chosen)
