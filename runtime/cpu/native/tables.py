"""Embedding by the kernels: rows of a table of any format, as float32."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.native.products import matrix_of

ANSWERS_IN = "answers_in"
"""The attribute of a packed table that says in which type its rows come out. MLX would have it that those of
a microscaled one are bfloat16, whatever the activations are.
"""

Embed = Callable[[Any, mx.array], mx.array]


def embed(kernels: Any, otherwise: Embed) -> Embed:
    rows = kernels.table_rows

    def embed(module: Any, ids: mx.array) -> mx.array:
        table = matrix_of(kernels, module) if vars(module).get(ANSWERS_IN, mx.float32) == mx.float32 else None
        return otherwise(module, ids) if table is None else rows(ids, table)

    return embed
