"""The tensors of compressed-tensors, outputs first: `X.weight_packed` or, of bytes, `X.weight`; and
`X.weight_scale`, `X.weight_zero_point`, `X.weight_g_idx`.
"""

from collections.abc import Mapping, Sequence

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.codes.config_claims import Stated
from modelkit.source.codes.value import CodeMatrix
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.tensor import TensorInfo

CODES = ".weight_packed"
_SCALES = ("F16", "BF16", "F32")
_WORD_BITS = 32
_WORD_BYTES = 4


def matrix_of(
    module: str, ways: Sequence[Stated], tensors: Mapping[str, TensorInfo], origin: str
) -> CodeMatrix:
    """ways: those that config.json knows. Raises MalformedFile for tensors that fit none of them,
    UnsupportedSource for those that fit several, and where there is none.
    """
    if not ways:
        raise UnsupportedSource(
            f"{origin}: config.json does not say how its weights are packed (config_groups)", hint=FLOAT_HINT
        )
    packed = tensors.get(f"{module}{CODES}")
    codes = packed or tensors[f"{module}.weight"]
    scales = tensors.get(f"{module}.weight_scale")
    if scales is None:
        raise MalformedFile(f"{origin}: `{codes.name}` has no `{module}.weight_scale`")
    fitting = (_fitting(module, way, codes, scales, tensors) for way in ways)
    found = [matrix for matrix in fitting if matrix is not None]
    if not found:
        known = ", ".join(f"{way.bits} bits in groups of {way.group_size or 'a row'}" for way in ways)
        raise MalformedFile(
            f"{origin}: `{codes.name}` is {codes.dtype} {list(codes.shape)} and `{scales.name}` "
            f"{scales.dtype} {list(scales.shape)}, which is not {known}"
        )
    if len(found) > 1:
        raise UnsupportedSource(
            f"{origin}: `{codes.name}` may be any of several ways that config.json knows (config_groups)",
            hint=FLOAT_HINT,
        )
    return found[0]


def _fitting(
    module: str, way: Stated, codes: TensorInfo, scales: TensorInfo, tensors: Mapping[str, TensorInfo]
) -> CodeMatrix | None:
    """The matrix, where the tensors are packed in this way."""
    zeros, order = (tensors.get(f"{module}.{leaf}") for leaf in ("weight_zero_point", "weight_g_idx"))
    if len(codes.shape) != 2 or len(scales.shape) != 2 or scales.dtype not in _SCALES:
        return None
    outputs, across = codes.shape
    as_bytes = codes.name.endswith(".weight")
    groups, bits = scales.shape[1], 8 if as_bytes else way.bits  # codes of fewer bits may take a byte, too
    inputs = across if as_bytes else across * _WORD_BITS // bits
    size = way.group_size or inputs
    fits = (
        codes.dtype == ("I8" if as_bytes else "I32")
        and inputs % _WORD_BYTES == 0
        and inputs * bits == across * (8 if as_bytes else _WORD_BITS)
        and groups > 0
        and scales.shape == (outputs, groups)
        and groups * size == inputs
        and (order is None or (order.dtype, order.shape) == ("I32", (inputs,)))
        and _zeros_fit(zeros, way, outputs, groups, None if as_bytes else bits)
    )
    if not fits:
        return None
    return CodeMatrix(
        f"{module}.weight",
        (outputs, inputs),
        "bytes" if as_bytes else "rows",
        bits,
        size,
        codes,
        scales,
        zeros,
        symmetric=way.symmetric,
        groups=order,
        by_activation=way.by_activation and groups > 1,
    )


def _zeros_fit(zeros: TensorInfo | None, way: Stated, outputs: int, groups: int, bits: int | None) -> bool:
    """bits: of packed codes; None: they are bytes."""
    if zeros is None:
        return way.symmetric
    said, as_bytes = (zeros.dtype, zeros.shape), ("I8", (outputs, groups))
    if said == as_bytes:
        return bits is None or way.symmetric  # older versions write them so beside packed codes
    return bits is not None and said == ("I32", (-(-outputs * bits // _WORD_BITS), groups))
