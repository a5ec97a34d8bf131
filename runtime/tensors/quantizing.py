"""The words in which a family says which weight format suits its tensors: rows of a table, as data.

A row offers formats in order of preference; the first row that matches decides. The rows for all models, and
what happens when no offer fits, are modelkit's (`modelkit.pack.planning.policy`).
"""

import re
from collections.abc import Callable
from typing import Literal

from runtime.quant import FORMATS, Format
from runtime.records import dataclass
from runtime.tensors.towers import Towers

Offer = Literal["requested", "8-bit", "source"]

SOURCE: tuple[Offer, ...] = ("source",)
REQUESTED: tuple[Offer, ...] = ("requested",)
EIGHT: tuple[Offer, ...] = ("8-bit",)
EIGHT_ELSE: tuple[Offer, ...] = ("8-bit", "requested")

_AFFINE8 = {row.group_size: row for row in FORMATS if row.mode == "affine" and row.bits == 8}
_MXFP8 = next(row for row in FORMATS if row.name == "mxfp8")
_LAYER = re.compile(r"\.layers\.(\d+)\.", re.ASCII)
_STACKS = (
    *(".experts.", ".switch_mlp.", ".switch_glu.", ".chunk_experts."),
    *(".mlp.shared_experts.", ".mixer.shared_experts."),
)
FILTERS = (".conv1d", "conv.conv.")
"""Short filters over time. LFM2 has two matrices beside its own, as `conv.in_proj` and `conv.out_proj`."""
_TABLES = (
    *("embed_tokens.weight", "embed_tokens_per_layer.weight", "embeddings.weight", "wte.weight"),
    *("embed_in.weight", "backbone.embedding.weight"),  # GPT-NeoX, and Mamba of old
    "llm.embed.weight",  # Inkling
)
_HEADS = ("lm_head.weight", "embed_out.weight", "unembed.weight", "output_layer.weight")


@dataclass(frozen=True, slots=True)
class Tensor:
    """What the policy looks at: a name as the checkpoint spells it, safetensors dtype name, logical shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def stacked(self) -> bool:
        """Belongs to a group of experts (or shared experts); such names need no `.weight` at their end."""
        return any(part in self.name for part in _STACKS) and not self.name.endswith(
            ("bias", "scale", "scales")
        )

    @property
    def layer(self) -> int | None:
        found = _LAYER.search(self.name)
        return int(found[1]) if found else None

    def has(self, *parts: str) -> bool:
        return any(part in self.name for part in parts)

    def ends(self, *parts: str) -> bool:
        return self.name.endswith(parts)

    def is_in(self, *parts: str) -> bool:
        return is_in(self.name, *parts)


@dataclass(frozen=True, slots=True)
class Request:
    """A requested format and the facts about the model that rows ask for."""

    format: Format
    layers: int
    experts: int = 0
    dense: frozenset[int] = frozenset()
    """Layers whose MLP has no experts."""
    towers: Towers = Towers()  # frozen

    @property
    def promotes(self) -> bool:
        return self.format.bits < 6

    @property
    def float4(self) -> bool:
        return self.format.name in ("mxfp4", "nvfp4")

    @property
    def eight(self) -> Format:
        """The 8-bit partner: q8 in the same groups for affine formats, mxfp8 for microscaling floats."""
        return _AFFINE8[self.format.group_size] if self.format.mode == "affine" else _MXFP8


@dataclass(frozen=True, slots=True)
class Row:
    when: Callable[[Tensor, Request], bool]
    offers: tuple[Offer, ...]
    reason: str
    """What users read beside the tensor."""


def is_in(name: str, *parts: str) -> bool:
    """Has the parameter one of these parts in its name, or the module that it is in, or that one's? What is
    farther out may be called after other things inside (DBRX's `norm_attn_norm.attn.Wqkv.weight`).
    """
    near = ".".join(name.split(".")[-3:])
    return any(part in near for part in parts)


def more_bits(layer: int, layers: int, *, cadence_end: int | None = None) -> bool:
    """Is this one of the layers that errors hurt most: the first and last eighth, and every third between?

    cadence_end: the layer at which the every-third rule stops, when it does not run to the last eighth.
    """
    if layer < layers // 8 or layer >= 7 * layers // 8:
        return True
    return (cadence_end is None or layer < cadence_end) and (layer - layers // 8) % 3 == 2


def in_cadence(tensor: Tensor, request: Request) -> bool:
    return tensor.layer is not None and more_bits(tensor.layer, request.layers)


def sensitive(tensor: Tensor) -> bool:
    return tensor.has(".v_proj", ".k_proj", "down_proj")


def is_table(tensor: Tensor) -> bool:
    return tensor.ends(*_TABLES)


def is_head(tensor: Tensor) -> bool:
    return tensor.ends(*_HEADS) or tensor.name in ("output.weight", "head.weight")  # InternLM2's, RWKV's
