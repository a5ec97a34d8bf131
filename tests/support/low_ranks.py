"""Adapters for tiny networks: everything that takes a pair has one."""

from typing import Any

import mlx.core as mx
import numpy as np

from runtime.nn.adapters.adapter import kind_of, logical_shape
from runtime.nn.adapters.fusion import floats
from runtime.nn.adapters.low_rank import LowRank
from runtime.nn.linear import MATRICES


def pairs_of(network: Any, seed: int, dora: bool) -> dict[str, LowRank]:
    """For everything that takes one, of rank 2 or 3, with magnitudes or biases where they may be; none for
    tied tables, where fusing would change the head too.
    """
    random, pairs = np.random.default_rng(seed), {}

    def array(*shape: int) -> mx.array:
        return mx.array(random.normal(size=shape).astype(np.float32) * 0.2)

    # Some stand in two places.
    once = {id(module): (name, module) for name, module in network.named_modules()}
    for name, module in once.values():
        kind = kind_of(module)
        if kind is None or module is getattr(network, "tied_table", None):
            continue
        *stack, out, width = logical_shape(module)
        first, last = (out, width) if kind == "table" else (width, out)
        down = array(*(stack if kind == "experts" else ()), first, 2 + seed % 2)
        magnitude = bias = None
        if dora and kind != "experts":
            norm = mx.linalg.norm(floats(module), axis=0 if kind == "table" else -1)
            magnitude = norm * (1 + array(*norm.shape))
        elif type(module) in MATRICES:
            bias = array(last)
        pairs[name] = LowRank(down, array(*stack, down.shape[-1], last), 0.7, magnitude, bias)
    return pairs
