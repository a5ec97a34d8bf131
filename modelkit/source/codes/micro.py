"""The tensors of MXFP4, MXFP8 and NVFP4, outputs first, as compressed-tensors, ModelOpt and Quark write them.

    X.weight_packed, X.weight   U8: two floats of four bits, the first of them low; or F8_E4M3
    X.weight_scale, _scale_inv  U8 or F8_E8M0: a power of two for 32 of them; F8_E4M3: a float for 16
    X.weight_scale_2            what NVFP4's numbers are times besides; X.weight_global_scale: by what divided

They say it all themselves: no other kind has these types and shapes.
"""

from collections.abc import Mapping

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.codes.value import CodeMatrix, Layout
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.tensor import TensorInfo

TIMES = ".weight_scale_2"
_OVER = ".weight_global_scale"
_CODES = (".weight_packed", ".weight")
_LAYOUTS: "dict[tuple[str, str], tuple[Layout, int, int]]" = {
    ("U8", "U8"): ("mxfp4", 4, 32),
    ("U8", "F8_E8M0"): ("mxfp4", 4, 32),
    ("F8_E4M3", "U8"): ("mxfp8", 8, 32),
    ("F8_E4M3", "F8_E8M0"): ("mxfp8", 8, 32),
    ("U8", "F8_E4M3"): ("nvfp4", 4, 16),
}
"""By the types of codes and scales: bits, and how many share a scale."""
_MORE = (".pre_quant_scale", ".weight_zero_point")


def matrix_of(name: str, tensors: Mapping[str, TensorInfo], origin: str) -> CodeMatrix | None:
    """name: of a tensor; None where it has no such codes. Raises MalformedFile for tensors that do not fit
    each other, UnsupportedSource for what changes the numbers besides.
    """
    ending = next((one for one in _CODES if name.endswith(one)), None)
    module = name.removesuffix(ending or "")
    scales = tensors.get(f"{module}.weight_scale") or tensors.get(f"{module}.weight_scale_inv")
    codes = tensors[name]
    kind = _LAYOUTS.get((codes.dtype, scales.dtype)) if ending and scales else None
    if kind is None or scales is None:
        return None
    layout, bits, size = kind
    if len(codes.shape) > 2 and codes.dtype == "U8":
        raise UnsupportedSource(
            f"{origin}: `{name}` is {layout} in {len(codes.shape)} dimensions; matrices of 2 are read",
            hint=FLOAT_HINT,
        )
    rows, across = codes.shape if len(codes.shape) == 2 else (0, 0)
    inputs = across * 8 // bits
    if not inputs or inputs % size or scales.shape != (rows, inputs // size):
        if codes.dtype != "U8":
            return None  # FP8 of another kind
        raise MalformedFile(
            f"{origin}: `{name}` is U8 {list(codes.shape)} and `{scales.name}` {scales.dtype} "
            f"{list(scales.shape)}, which is not {layout}: two codes in a byte, a scale for {size} of them"
        )
    more = next((tensors[f"{module}{leaf}"] for leaf in _MORE if f"{module}{leaf}" in tensors), None)
    if more is not None:
        raise UnsupportedSource(f"{origin}: `{more.name}` changes the numbers of `{name}`", hint=FLOAT_HINT)
    factor = tensors.get(f"{module}{TIMES}") or tensors.get(f"{module}{_OVER}")
    if factor is not None and (factor.dtype != "F32" or factor.nbytes != 4 or layout != "nvfp4"):
        raise MalformedFile(
            f"{origin}: `{factor.name}` is {factor.dtype} {list(factor.shape)}; one F32 beside nvfp4 is read"
        )
    return CodeMatrix(
        f"{module}.weight",
        (rows, inputs),
        layout,
        bits,
        size,
        codes,
        scales,
        factor=factor,
        divided=factor is not None and factor.name.endswith(_OVER),
    )
