"""Which tensor gets which weight format, and why. A table: the first row that matches decides.

Three tables are read in this order: `KEEP` (what never loses precision), the rows of the model's family,
`GENERIC`. A row offers formats in order of preference; one that the tensor's shape does not fit is passed
over, and when none fits the tensor stays at source precision and says so.

    q1 q2 q3 q4 q5       sensitive matrices (v, k, down), the embedding and the head at q8
    q6 q8 mxfp8          every matrix alike; the embedding and the head of q6 at q8
    mxfp4 nvfp4          sensitive matrices outside expert stacks, the embedding and the head at mxfp8
    plain, any of these  every matrix alike; what a family keeps at the source's precision stays so
    f32 f16 bf16         every floating tensor cast, except state decays and router corrections

Towers, norms, biases, routers, convolutions and state-space parameters keep the source's precision: quantized
vision towers distort features by a quarter, and noise in a router picks other experts.
The rules agree with Ollama's, with two differences on purpose: token embeddings are quantized in every
family, and 1-, 2-, 3- and 5-bit affine formats are promoted like 4-bit ones.
"""

from runtime.quant import Format
from runtime.records import dataclass
from runtime.tensors.quantizing import (
    EIGHT,
    EIGHT_ELSE,
    FILTERS,
    REQUESTED,
    SOURCE,
    Request,
    Row,
    Tensor,
    is_head,
    is_table,
    sensitive,
)

_FLOATS = ("F32", "F16", "BF16")
_SMALLEST = 1024  # elements; below this the scales would cost more than the codes save
_STAY_WIDE = ("A_log", "score_correction_bias", "expert_bias")


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision."""

    format: Format | None
    """None for the precision of the source."""
    reason: str
    """For the user."""


def _elements(tensor: Tensor) -> int:
    count = 1
    for dim in tensor.shape:
        count *= dim
    return count


_ROUTERS = (".gate.weight", ".gate.wg.weight", "_expert_gate.weight", "_router.weight")
_ROUTING = (".router.", ".mlp.gate.")
"""Modules that are nothing but routers, of one matrix or more: LongCat's, ZAYA's, Ring's for mlx-lm."""

KEEP: tuple[Row, ...] = (
    Row(lambda t, _: t.dtype not in _FLOATS, SOURCE, "not a 16- or 32-bit float"),
    Row(lambda t, r: r.towers.hears(t.name), SOURCE, "audio tower"),
    Row(lambda t, r: r.towers.sees(t.name), SOURCE, "vision tower"),
    Row(lambda t, _: t.ends("bias"), SOURCE, "bias"),
    Row(lambda t, _: not t.stacked and t.is_in("norm", "ln_"), SOURCE, "norm"),
    Row(
        lambda t, _: not t.stacked and t.has("embed", "wpe.") and not (is_table(t) or is_head(t)),
        SOURCE,
        "auxiliary embedding",
    ),
    Row(lambda t, _: not t.stacked and not t.ends(".weight"), SOURCE, "parameter that is not a matrix"),
    Row(lambda t, _: t.has(*FILTERS), SOURCE, "convolution"),
    Row(lambda t, _: len(t.shape) != (3 if t.stacked and len(t.shape) == 3 else 2), SOURCE, "not a matrix"),
    Row(lambda t, _: _elements(t) < _SMALLEST, SOURCE, f"fewer than {_SMALLEST} elements"),
    Row(
        lambda t, _: (
            (t.ends(*_ROUTERS) and not t.ends(".attention.gate.weight"))  # which is RWKV's
            or t.has(*_ROUTING)
        ),
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


def choose(
    tensor: Tensor,
    request: Request,
    family: tuple[Row, ...] = (),
    *,
    draft: bool = False,
    plain: bool = False,
) -> Choice:
    """The format of one tensor.

    `family` are the rows of its `Checkpoint`; `draft` puts the head at the requested format, `plain` every
    matrix.
    """
    if not request.format.quantized:
        return _cast(tensor, request.format)
    for row in (*KEEP, *(DRAFT if draft else ()), *family, *GENERIC):
        if (not plain or row.offers in (SOURCE, REQUESTED)) and row.when(tensor, request):
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
