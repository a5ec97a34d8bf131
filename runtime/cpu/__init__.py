"""The processor wing: what makes MLX fast on Linux CPU, whose wheel links the reference BLAS and has no fused
kernels.

bind           a fast BLAS under MLX's products: the decision, the self-test and the report
slots          where a loaded library keeps the addresses of the functions it imports
gemv           a few machine instructions that send one-row products to the matrix-vector routine
threads        how many threads a step gets, of the kernels' pool and of the BLAS
thread_limits  how many the environment leaves
products       linear layers and norms in few nodes
activation, grouped_attention, turn, blocks  so activations, attention, rotation, experts
query_parts    so many queries at a time, of attention whose scores have a bias
composed       sublayers put together from any column's own operations
native         kernels of our own, which take the place of all of these where they are built

`table` is what models compute by here: the processor's column of `runtime.nn.operations.ops`.
"""

from collections.abc import Callable
from typing import Any

from runtime.cpu.bind import BlasReport, bind_blas, report
from runtime.cpu.threads import set_threads, thread_count, threads_now

__all__ = ["BlasReport", "bind_blas", "report", "set_threads", "table", "thread_count", "threads_now"]


def table(otherwise: Any) -> dict[str, Callable[..., Any]]:
    """The operations that have a form of their own on a processor, by their names in
    `runtime.nn.operations.signatures.Operations`, without kernels of our own. otherwise: the column that
    computes what these forms do not cover.
    """
    from runtime.cpu import (  # MLX, which a report can do without
        activation,
        blocks,
        grouped_attention,
        products,
        turn,
    )

    return {
        "linear": products.linear,
        "rms_norm": products.rms_norm,
        "rotate": turn.rotate,
        "attend": grouped_attention.attending(otherwise.attend),
        "ask": blocks.asking(otherwise.ask),
        "softmax": activation.softmax,
        "silu": activation.silu,
        "gelu": activation.gelu,
        "gelu_tanh": activation.gelu_tanh,
        "relu2": activation.relu2,
        "gated": activation.gating(otherwise.gated),
    }
