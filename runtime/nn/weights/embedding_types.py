"""What is done to a network once its weights are in place: tables are told in which type to answer.

Their rows may be stored in another one than that of the activations, and MLX would have it that those of a
microscaled one are bfloat16.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cpu.native.tables import ANSWERS_IN
from runtime.nn.blocks import BlockEmbedding


def set_embedding_types(network: nn.Module, dtype: mx.Dtype = mx.float32) -> None:
    """dtype: of activations."""
    for module in network.modules():
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding | BlockEmbedding):
            vars(module)[ANSWERS_IN] = dtype
