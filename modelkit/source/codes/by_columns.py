"""The tensors of GPTQ and AWQ: `X.qweight`, `X.scales`, `X.qzeros` and, of GPTQ, `X.g_idx`, inputs first."""

from collections.abc import Mapping, Sequence

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.codes.config_claims import Stated
from modelkit.source.codes.value import CodeMatrix, Layout
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.tensor import TensorInfo

CODES = ".qweight"
_SCALES = ("F16", "BF16", "F32")
_WORD_BITS = 32
_OUTPUTS = 8  # of AWQ in a word

_Wanted = tuple[TensorInfo | None, tuple[str, ...], tuple[int, ...]]
"""A tensor, None where it is not there; the dtypes that it may have; its shape."""


def matrix_among(
    module: str, layout: Layout, ways: Sequence[Stated], tensors: Mapping[str, TensorInfo], origin: str
) -> CodeMatrix:
    """ways: those that config.json knows; the first is the usual one. Raises as `matrix_of`, and
    UnsupportedSource for tensors that fit several.
    """
    usual, *others = ways
    fitting: list[CodeMatrix] = []
    for way in ways if others else ():
        try:
            fitting.append(matrix_of(module, layout, way, tensors, origin))
        except MalformedFile:
            continue
    if len(fitting) > 1:
        raise UnsupportedSource(
            f"{origin}: `{module}{CODES}` may be any of several ways that config.json knows "
            "(dynamic, extra_config)",
            hint=FLOAT_HINT,
        )
    return fitting[0] if fitting else matrix_of(module, layout, usual, tensors, origin)


def matrix_of(
    module: str, layout: Layout, stated: Stated, tensors: Mapping[str, TensorInfo], origin: str
) -> CodeMatrix:
    """Raises MalformedFile for tensors that do not fit each other."""
    codes = tensors[f"{module}{CODES}"]
    scales, zeros, order = (tensors.get(f"{module}.{leaf}") for leaf in ("scales", "qzeros", "g_idx"))
    if scales is None:
        raise MalformedFile(f"{origin}: `{codes.name}` has no `{module}.scales`")
    if zeros is None and not stated.symmetric:
        raise MalformedFile(f"{origin}: `{codes.name}` has no `{module}.qzeros`")
    inputs, outputs = _size(codes, layout, stated.bits)
    size = stated.group_size or inputs
    groups, words = inputs // size if inputs else 0, outputs * stated.bits // _WORD_BITS
    whole = (
        groups > 0
        and groups * size == inputs
        and words * _WORD_BITS == outputs * stated.bits
        and (layout == "awq" or inputs * stated.bits == codes.shape[0] * _WORD_BITS)
    )
    wanted: list[_Wanted] = [
        (codes, ("I32",), codes.shape),
        (scales, _SCALES, (groups, outputs)),
        (zeros, ("I32",), (groups, words)),
        (order, ("I32",), (inputs,)),
    ]
    for tensor, dtypes, shape in wanted:
        if not whole or (tensor is not None and (tensor.dtype not in dtypes or tensor.shape != shape)):
            form = f"{list(codes.shape)} at {stated.bits} bits in groups of {size}"
            raise _unfit(tensor or codes, f"`{codes.name}` {form}", dtypes, shape, origin)
    return CodeMatrix(
        f"{module}.weight",
        (outputs, inputs),
        layout,
        stated.bits,
        size,
        codes,
        scales,
        zeros,
        less_one=stated.less_one,
        symmetric=stated.symmetric,
        groups=order,
        by_activation=stated.by_activation and groups > 1,
    )


def _size(codes: TensorInfo, layout: Layout, bits: int) -> tuple[int, int]:
    """Inputs and outputs; (0, 0) for what is not a matrix."""
    if len(codes.shape) != 2:
        return 0, 0
    first, last = codes.shape
    return (first, last * _OUTPUTS) if layout == "awq" else (first * _WORD_BITS // bits, last)


def _unfit(
    found: TensorInfo, codes: str, dtypes: tuple[str, ...], shape: tuple[int, ...], origin: str
) -> MalformedFile:
    """codes: what asks for this dtype and shape."""
    return MalformedFile(
        f"{origin}: `{found.name}` is {found.dtype} {list(found.shape)}; {codes} takes "
        f"{' or '.join(dtypes)} {list(shape)}"
    )
