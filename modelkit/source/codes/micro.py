"""The tensors of MXFP4, MXFP8 and NVFP4, outputs first, as compressed-tensors, ModelOpt and Quark write them.

    X.weight_packed, X.weight   U8: two floats of four bits, the first of them low; or F8_E4M3
    X.weight_scale, _scale_inv  U8 or F8_E8M0: a power of two for 32 of them; F8_E4M3: a float for 16
    X.weight_scale_2            what NVFP4's numbers are times besides; X.weight_global_scale: by what divided

Stacks of experts have them too, [experts, outputs, inputs], and factors for each:

    X_weight_scale, _weight_scale_2               beside X, ModelOpt's (Muse Spark)
    X.scale, X.scale2                             Inkling's
    X_scale, X_amax, X_outer_scale_denominator    Inkling 2's; the last divides the one before
    X_scale, X_scale_inv                          of MXFP8 (Hunyuan V4), as transformers has them

They say it all themselves: no other kind has these types and shapes.
"""

import math
from collections.abc import Mapping

from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.codes.value import CodeMatrix, Layout
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.tensor import FLOATS, TensorInfo

TIMES = ".weight_scale_2"
_CODES = (".weight_packed", ".weight")
_SCALES = (".weight_scale", ".weight_scale_inv")
_SCALES_OF_STACKS = (*_SCALES, "_weight_scale", ".scale", "_scale", "_scale_inv")
_FACTORS = (
    (TIMES, None),
    (None, ".weight_global_scale"),
    ("_weight_scale_2", None),
    (".scale2", None),
    ("_amax", "_outer_scale_denominator"),
)
"""What numbers are times, and what they are divided by."""
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
    codes = tensors[name]
    ending, deep = next((one for one in _CODES if name.endswith(one)), ""), len(codes.shape) > 2
    stem = name.removesuffix(ending)
    endings = _SCALES_OF_STACKS if deep else _SCALES
    scales = next((tensors[stem + one] for one in endings if stem + one in tensors), None)
    kind = _LAYOUTS.get((codes.dtype, scales.dtype)) if scales and (ending or deep) else None
    if kind is None or scales is None:
        return None
    layout, bits, size = kind
    if len(codes.shape) > (2 if ending == ".weight" else 3):
        if codes.dtype != "U8":
            return None
        raise UnsupportedSource(
            f"{origin}: `{name}` is {layout} in {len(codes.shape)} dimensions; matrices of 2 are read",
            hint=FLOAT_HINT,
        )
    leading, across = codes.shape[:-1], codes.shape[-1] if len(codes.shape) > 1 else 0
    inputs = across * 8 // bits
    if not inputs or inputs % size or scales.shape != (*leading, inputs // size):
        if codes.dtype != "U8":
            return None  # FP8 of another kind
        raise _misfit(codes, scales, layout, size, origin)
    more = next((tensors[f"{stem}{leaf}"] for leaf in _MORE if f"{stem}{leaf}" in tensors), None)
    if more is not None:
        raise UnsupportedSource(f"{origin}: `{more.name}` changes the numbers of `{name}`", hint=FLOAT_HINT)
    factor, over = _factors(stem, codes, layout, tensors, origin)
    return CodeMatrix(
        stem if deep else f"{stem}.weight",
        (*leading, inputs),
        layout,
        bits,
        size,
        codes,
        scales,
        factor=factor,
        over=over,
    )


def _misfit(codes: TensorInfo, scales: TensorInfo, layout: Layout, size: int, origin: str) -> SourceError:
    """Why codes of four bits and their scales are no matrix."""
    if len(codes.shape) > 2:
        leading, across = codes.shape[:-1], codes.shape[-1]
        if scales.shape == (leading[0], 2 * leading[1] // size, across):
            return UnsupportedSource(
                f"{origin}: `{codes.name}` is {layout} with inputs first; stacks with outputs first are read",
                hint=FLOAT_HINT,
            )
    return MalformedFile(
        f"{origin}: `{codes.name}` is U8 {list(codes.shape)} and `{scales.name}` {scales.dtype} "
        f"{list(scales.shape)}, which is not {layout}: two codes in a byte, a scale for {size} of them"
    )


def _factors(
    stem: str, codes: TensorInfo, layout: Layout, tensors: Mapping[str, TensorInfo], origin: str
) -> tuple[TensorInfo | None, TensorInfo | None]:
    """What numbers are times, and what they are divided by."""
    stack = codes.shape[0] if len(codes.shape) > 2 else None
    for pair in _FACTORS:
        names = [stem + ending for ending in pair if ending]
        if not any(name in tensors for name in names):
            continue
        for name in names:
            found = tensors.get(name)
            if found is None:
                raise MalformedFile(f"{origin}: `{codes.name}` has no `{name}`")
            fits = math.prod(found.shape) in ((1, stack, 2 * stack) if stack else (1,))
            if not fits or found.dtype not in (FLOATS if stack else ("F32",)) or layout != "nvfp4":
                raise MalformedFile(
                    f"{origin}: `{name}` is {found.dtype} {list(found.shape)}; one F32 beside nvfp4 is read"
                    + (f", or one or two for each of {stack}" if stack else "")
                )
        times, over = (tensors[stem + ending] if ending else None for ending in pair)
        return times, over
    return None, None
