"""Which block type a number in a file stands for; types that are no longer written are refused by name."""

from modelkit.errors import MalformedFile, UnsupportedSource
from runtime.blocks.types import BLOCK_TYPES, BlockType

_BY_NUMBER = {row.number: row for row in BLOCK_TYPES.values()}

# Q8_1 and Q8_K hold activations while ggml computes; no writer puts them into files.
_REFUSED = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
_OF_IK = range(133, 400)  # from Q6_0 to IQ4_K and its kin, and their rows side by side


def block_type(number: int, where: str) -> BlockType:
    """The type with this number; `where` names file and tensor.

    Raises UnsupportedSource for types that llama.cpp has given up or never had, MalformedFile for numbers
    without a type.
    """
    known = _BY_NUMBER.get(number)
    if known is not None:
        return known
    if number in _REFUSED:
        raise UnsupportedSource(
            f"{where} is {_REFUSED[number]}, a type that llama.cpp no longer stores",
            hint="Quantize the model again with a current llama.cpp.",
        )
    if number in _OF_IK:
        raise UnsupportedSource(
            f"{where} has type {number}, one of those that only ik_llama.cpp has (IQ4_K, IQ4_KS, ...)",
            hint="Take a file with llama.cpp's own types, such as Q4_K_M.",
        )
    raise MalformedFile(
        f"{where} has type {number}, which is not known here",
        hint="The file is damaged, or its type is newer than this version of modelkit.",
    )
