"""What an adapter brings, as values: pairs behind modules, whole parameters, rows of tables.

And the tensors that hold them in a package, `adapters/NAME/adapter.safetensors`, named after the modules and
parameters of the network that a family's `build` makes:

    X.lora_down, X.lora_up                  the pair behind module X
    X.lora_magnitude                        DoRA (arXiv 2402.09353)
    X.lora_bias                             added with the pair, times its scale
    P.ids, P.rows                           these rows of the table P, instead of its own
    P                                       the whole parameter P

Scales stand in adapter_config.json beside it (`modelkit.source.adapters`).

Dimensions: r the rank, V rows of a table, E experts, n rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field

import mlx.core as mx

from runtime.records import dataclass

HEAD = "lm_head"
"""The output head's name also where a network has no such module, its table being the head too: a pair or a
parameter of this name changes the product alone, one of the table's name lookups alone.
"""

LEAVES = ("lora_down", "lora_up", "lora_magnitude", "lora_bias")


@dataclass(frozen=True, slots=True)
class LowRank:
    """What is added behind one module: y = x Wᵀ + b becomes x Wᵀ + b + scale · (x down up + bias).

    Where it has a magnitude, y = m/n · (x Wᵀ + scale · x down up) + b, n being the norms of the rows of
    Wᵀ + scale · down up, that is, over what goes in, one for each number that comes out; of the base as it
    is computed with, dequantized. A table's W is its transpose: ids go in.
    """

    down: mx.array
    """A: [in, r]; of a table [V, r], of experts [E, in, r]."""

    up: mx.array
    """B: [r, out]; of experts [E, r, out]. Matrices by heads (`runtime.nn.attention.mla`) share one A: [H, r,
    out].
    """

    scale: float = 1.0

    magnitude: mx.array | None = None
    """DoRA's m: [out], by heads [H, out]; None: LoRA. Experts have none."""

    bias: mx.array | None = None
    """[out]; never beside a magnitude, nor for experts."""

    norms: mx.array | None = None
    """n, float32 [out], where the module has a part of the inputs only; None: it has all."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that are others."""

    ids: mx.array
    """int32 [n], each once, all below V."""

    values: mx.array
    """[n, D]."""


@dataclass(frozen=True, slots=True)
class LowRanks:
    """One adapter, by the names that modules and parameters have in the network."""

    pairs: Mapping[str, LowRank] = field(default_factory=dict[str, LowRank])
    """By module: `model.layers.0.self_attn.q_proj`."""

    whole: Mapping[str, mx.array] = field(default_factory=dict[str, mx.array])
    """By parameter: `model.norm.weight`."""

    rows: Mapping[str, Rows] = field(default_factory=dict[str, Rows])
    """By parameter, a table's: `model.embed_tokens.weight`."""

    @classmethod
    def of(
        cls, tensors: Mapping[str, mx.array], scales: Mapping[str, float], default: float = 1.0
    ) -> "LowRanks":
        """Tensors named as above, checked by the caller. scales: by module; default: of the others."""
        pairs = {
            name: LowRank(
                down,
                tensors[f"{name}.lora_up"],
                scales.get(name, default),
                tensors.get(f"{name}.lora_magnitude"),
                tensors.get(f"{name}.lora_bias"),
            )
            for name, down in _ending(tensors, ".lora_down")
        }
        rows = {name: Rows(tensors[f"{name}.ids"], values) for name, values in _ending(tensors, ".rows")}
        spoken = {f"{name}.{leaf}" for name in pairs for leaf in LEAVES}
        spoken |= {f"{name}.{leaf}" for name in rows for leaf in ("ids", "rows")}
        return cls(pairs, {name: array for name, array in tensors.items() if name not in spoken}, rows)

    def tensors(self) -> dict[str, mx.array]:
        """What `of` reads."""
        found = dict(self.whole)
        for name, pair in self.pairs.items():
            leaves = zip(LEAVES, (pair.down, pair.up, pair.magnitude, pair.bias), strict=True)
            found |= {f"{name}.{leaf}": array for leaf, array in leaves if array is not None}
        for name, rows in self.rows.items():
            found |= {f"{name}.ids": rows.ids, f"{name}.rows": rows.values}
        return found


def _ending(tensors: Mapping[str, mx.array], ending: str) -> Iterator[tuple[str, mx.array]]:
    return ((name.removesuffix(ending), array) for name, array in tensors.items() if name.endswith(ending))
