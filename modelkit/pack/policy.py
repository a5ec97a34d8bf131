"""Which tensor gets which weight format, and why. A table: the first row that matches decides.

Three tables are read in this order: `KEEP` (what never loses precision), the rows of the model's family,
`GENERIC`. A row offers formats in order of preference; one that the tensor's shape does not fit is passed
over, and when none fits the tensor stays at source precision and says so.

    q2 q3 q4 q5          sensitive matrices (v, k, down), the embedding and the head at q8
    q6 q8 mxfp8          every matrix alike; the embedding and the head of q6 at q8
    mxfp4 nvfp4          sensitive matrices outside expert stacks, the embedding and the head at mxfp8
    f32 f16 bf16         every floating tensor cast, except state decays and router corrections

Towers, norms, biases, routers, convolutions and state-space parameters keep the source's precision: quantized
vision towers distort features by a quarter, and noise in a router picks other experts.
The rules agree with Ollama's, with two differences on purpose: token embeddings are quantized in every
family, and 2-, 3- and 5-bit affine formats are promoted like 4-bit ones.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runtime.quant import FORMATS, Format

Offer = Literal["requested", "8-bit", "source"]

_ROW = {row.name: row for row in FORMATS}
_FLOATS = ("F32", "F16", "BF16")
_SMALLEST = 1024  # elements; below this the scales would cost more than the codes save
_LAYER = re.compile(r"\.layers\.(\d+)\.", re.ASCII)
_STACKS = (".experts.", ".switch_mlp.", ".switch_glu.", ".mlp.shared_experts.", ".mixer.shared_experts.")
_TABLES = ("embed_tokens.weight", "embed_tokens_per_layer.weight", "embeddings.weight", "wte.weight")
_STAY_WIDE = ("A_log", "score_correction_bias", "expert_bias")


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


@dataclass(frozen=True, slots=True)
class Request:
    """A requested format and the facts about the model that rows ask for."""

    format: Format
    layers: int
    experts: int = 0
    dense: frozenset[int] = frozenset()  # layers whose MLP has no experts

    @property
    def promotes(self) -> bool:
        return self.format.bits < 6

    @property
    def float4(self) -> bool:
        return self.format.name in ("mxfp4", "nvfp4")

    @property
    def eight(self) -> Format:
        """The 8-bit partner: q8 for affine formats, mxfp8 for microscaling floats."""
        return _ROW["q8" if self.format.mode == "affine" else "mxfp8"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision: the format, or None for source precision, and the reason shown to users."""

    format: Format | None
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    when: Callable[[Tensor, Request], bool]
    offers: tuple[Offer, ...]
    reason: str


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
    return tensor.ends("lm_head.weight")


def _elements(tensor: Tensor) -> int:
    count = 1
    for dim in tensor.shape:
        count *= dim
    return count


SOURCE: tuple[Offer, ...] = ("source",)
REQUESTED: tuple[Offer, ...] = ("requested",)
EIGHT: tuple[Offer, ...] = ("8-bit",)
EIGHT_ELSE: tuple[Offer, ...] = ("8-bit", "requested")

KEEP: tuple[Row, ...] = (
    Row(lambda t, _: t.dtype not in _FLOATS, SOURCE, "not a 16- or 32-bit float"),
    Row(lambda t, _: t.has("audio_tower", "embed_audio", "sound_"), SOURCE, "audio tower"),
    Row(lambda t, _: t.has("vision", "visual"), SOURCE, "vision tower"),
    Row(lambda t, _: t.ends("bias"), SOURCE, "bias"),
    Row(lambda t, _: not t.stacked and t.has("norm", "ln_"), SOURCE, "norm"),
    Row(lambda t, _: not t.stacked and t.has("embed") and not is_table(t), SOURCE, "auxiliary embedding"),
    Row(lambda t, _: not t.stacked and not t.ends(".weight"), SOURCE, "parameter that is no matrix"),
    Row(lambda t, _: t.has(".conv1d", ".conv."), SOURCE, "convolution"),
    Row(lambda t, _: len(t.shape) != (3 if t.stacked and len(t.shape) == 3 else 2), SOURCE, "not a matrix"),
    Row(lambda t, _: _elements(t) < _SMALLEST, SOURCE, f"fewer than {_SMALLEST} elements"),
    Row(
        lambda t, _: t.ends(".gate.weight", "_expert_gate.weight", ".router.weight", ".router.proj.weight"),
        SOURCE,
        "router",
    ),
)

GENERIC: tuple[Row, ...] = (
    Row(lambda t, _: is_head(t), EIGHT, "output head"),
    Row(lambda t, _: is_table(t), EIGHT, "token embedding"),
    Row(
        lambda t, r: r.promotes and sensitive(t) and not (r.float4 and t.stacked),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
    Row(lambda t, _: True, REQUESTED, "as requested"),
)

DRAFT: tuple[Row, ...] = (
    # A head at 16 bits would be half of all that a draft step reads.
    Row(lambda t, _: is_table(t) or is_head(t), REQUESTED, "a draft reads its head at every step"),
)


def choose(tensor: Tensor, request: Request, family: tuple[Row, ...] = (), *, draft: bool = False) -> Choice:
    """The format of one tensor.

    `family` are the rows of its `families.Family`; `draft` puts the head at the requested format.
    """
    if not request.format.quantized:
        return _cast(tensor, request.format)
    for row in (*KEEP, *(DRAFT if draft else ()), *family, *GENERIC):
        if row.when(tensor, request):
            return _settle(row, tensor, request)
    raise AssertionError("the last generic row matches everything")


def _settle(row: Row, tensor: Tensor, request: Request) -> Choice:
    if row.offers == SOURCE:
        return Choice(None, row.reason)
    for offer in row.offers:
        offered = request.eight if offer == "8-bit" else request.format
        if offered.fits(tensor.shape):
            return Choice(offered, row.reason)
    group, width = request.format.group_size, tensor.shape[-1]
    if request.format.fits(tensor.shape):
        group = request.eight.group_size
    return Choice(None, f"rows of {width} elements do not divide into groups of {group}")


def _cast(tensor: Tensor, wanted: Format) -> Choice:
    if tensor.dtype not in _FLOATS:
        return Choice(None, "not a 16- or 32-bit float")
    if tensor.ends(*_STAY_WIDE):
        return Choice(None, "too sensitive to narrow")
    return Choice(wanted, "as requested")
