"""The same network with some of its matrices packed; all else is shared with it, so it takes little more.

Packed matrices stay packed here and are unpacked whenever they are used: slow, and no second model in memory.
"""

from collections.abc import Mapping
from dataclasses import replace

import mlx.core as mx

from runtime.loaded import LoadedModel
from runtime.nn.weights.embedding_types import set_embedding_types
from runtime.quality.errors import packed, rounded
from runtime.quant import Format
from runtime.records import dataclass
from runtime.weights.fit import fit, parameters_of
from runtime.weights.holding import Holding, fill

LEAVES = ("weight", "scales", "biases")


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """How a module's matrix would lie in a package."""

    format: Format
    dtype: mx.Dtype
    """The floats that it has there, and so its scales."""
    width: int
    """Of its rows there. A network may hold a matrix the other way round."""

    def turned(self, weight: mx.array) -> bool:
        return weight.shape[-1] != self.width == weight.shape[-2]


def with_packed(model: LoadedModel, stored: Mapping[str, StoredMatrix]) -> LoadedModel:
    """stored: by the names of modules. One whose network cannot hold it packed gets what is left of it as
    floats.
    """
    modules = dict(model.network.named_modules())
    tensors = parameters_of(model.network)
    for path, how in stored.items():
        weight = tensors.pop(f"{path}.weight")
        if how.format.quantized and hasattr(modules[path], "to_quantized") and not how.turned(weight):
            codes, *rest = packed(weight.astype(how.dtype), how.format)
            # Numbers are made in the type of affine scales: widened first, as when a package is loaded.
            parts = (codes, *(one.astype(weight.dtype) if len(rest) > 1 else one for one in rest))
        else:
            parts = (left_of(weight, how),)
        mx.eval(*parts)
        tensors.update({f"{path}.{leaf}": part for leaf, part in zip(LEAVES, parts, strict=False)})
    network = model.described.network()
    fit(network, tensors, {})
    fill(network, tensors, Holding())
    network.eval()
    set_embedding_types(network, model.dtype)
    return replace(model, network=network)


def left_of(weight: mx.array, how: StoredMatrix) -> mx.array:
    """What a format leaves of a network's matrix, laid out and typed as that is."""
    turned = how.turned(weight)
    rows = weight.swapaxes(-1, -2) if turned else weight
    left = rounded(rows.astype(how.dtype), how.format).astype(weight.dtype)
    return left.swapaxes(-1, -2) if turned else left
