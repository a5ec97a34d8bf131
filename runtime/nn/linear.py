"""Linear layers, tables and stacks of experts, called so that they see the step.

A network never calls `mlx.nn.Linear` and its like by themselves: they hold weights, the table of operations
computes with them, packed or not, and what a step adds for some of its rows comes here (`Step.adapters`). A
module of any other class that somebody has put in place of one is called as it is.

step None: nothing is added.
"""

from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.blocks import BlockEmbedding, BlockLinear
from runtime.nn.operations import ops
from runtime.step import Step

MATRICES = frozenset({nn.Linear, nn.QuantizedLinear, BlockLinear})
Takes = Literal["matrix", "experts"]
"""What a class says of itself (`takes_pairs`) that is none of these and is asked as one of them."""
TABLES = frozenset({nn.Embedding, nn.QuantizedEmbedding, BlockEmbedding})


def linear(module: nn.Module, x: mx.array, step: Step | None) -> mx.array:
    """[B, ..., in] -> [B, ..., out]: x Wᵀ + b."""
    y = ops.table.linear(module, x) if type(module) in MATRICES else module(x)
    return y if step is None or step.adapters is None else step.adapters.linear(module, x, y)


def added(module: nn.Module, x: mx.array, y: mx.array, step: Step | None) -> mx.array:
    """y [B, ..., out], what a module with `takes_pairs` has computed as x Wᵀ by itself, with what the step
    adds.
    """
    return y if step is None or step.adapters is None else step.adapters.linear(module, x, y)


def embed(module: nn.Module, ids: mx.array, step: Step | None) -> mx.array:
    """ids [B, ...] -> the rows of a table, [B, ..., D]."""
    y = ops.table.embed(module, ids) if type(module) in TABLES else module(ids)
    return y if step is None or step.adapters is None else step.adapters.embed(module, ids, y)


def tied(module: Any, x: mx.array, step: Step | None) -> mx.array:
    """[B, ..., D] -> [B, ..., V]: a table as the output head."""
    y = ops.table.linear(module, x) if type(module) in TABLES else module.as_linear(x)
    return y if step is None or step.adapters is None else step.adapters.head(module, x, y)


def head_of(network: Any) -> nn.Module | None:
    """The table that is this network's head too; None where its head is a module of its own."""
    return getattr(network, "tied_table", None)
