"""What is done to a network once its weights are in place: types of tables."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.weights.embedding_types import set_embedding_types


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_a_microscaled_table_answers_in_the_type_of_activations(mode: str, dtype: mx.Dtype) -> None:
    network: Any = Module()
    network.table, ids = nn.Embedding(8, 64).to_quantized(None, None, mode), mx.array([[5, 0, 7]])
    before = network.table(ids)
    set_embedding_types(network, dtype)
    got = ops.table.embed(network.table, ids)
    assert got.dtype == dtype
    assert mx.array_equal(got.astype(mx.float32), before.astype(mx.float32))
