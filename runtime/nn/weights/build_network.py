"""Networks whose weights are yet to come.

MLX's layers draw random weights when they are made. Nobody computes those, but each draw leads MLX's random
key on by a step, and the steps are kept until somebody draws in earnest: some 50 kB more with every model
that was opened.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import mlx.core as mx

Config = TypeVar("Config")
Network = TypeVar("Network")


def build_network(build: Callable[[Config], Network], config: Config) -> Network:
    """What `build` makes of `config`. MLX's random key is what it was before, as for any numbers that the
    caller's own program draws.
    """
    key: Any = mx.random.state
    high, low = key[0].tolist()
    try:
        return build(config)
    finally:
        mx.random.seed(high << 32 | low)
