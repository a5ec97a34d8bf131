"""Weights as codes with a scale per group: of GPTQ, AWQ, AutoRound, compressed-tensors, ModelOpt and Quark.

    value          one matrix of codes, and all of a checkpoint
    config_claims  what config.json says of them
    by_columns     tensors of GPTQ, AWQ and AutoRound
    by_rows        tensors of compressed-tensors
    micro          small floats: MXFP4, MXFP8, NVFP4
    read           a checkpoint -> its matrices, or None

MLX holds just such numbers: codes of a row as one stream of bits, a scale and (of whole numbers) a bias per
group, the bias being what the zero point takes away. So nothing is quantized again.
"""

from modelkit.source.codes.read import read_code_weights
from modelkit.source.codes.value import CodeMatrix, CodeWeights

__all__ = ["CodeMatrix", "CodeWeights", "read_code_weights"]
