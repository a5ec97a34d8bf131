"""The table of operations: what every network computes by, in four columns.

plain   each operation as it is defined, in straight MLX; slow (`runtime.nn.operations.plain`)
gpu     the plain column, but for what MLX has fused kernels of (`runtime.nn.operations.gpu`)
blas    the gpu column, but for what has a form of its own on a processor (`runtime.cpu`)
cpu     the blas column, but for what kernels of our own compute (`runtime.cpu.native`), where they are built

A new operation is a field of `signatures.Operations` and a function per column; a kernel of our own is
another function in one of them. All columns answer alike to rounding
(tests/runtime/nn/operations/test_ops.py).

One column serves the whole process, since all models of it compute on one device: that of MLX's device,
unless somebody names another (`use`). So modules look it up when they compute, as `ops.table.silu(x)`, and
never keep what they found. MODELKIT_OPS=plain, which the rooms above read, tells a wrong kernel from a wrong
model.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime import cpu
from runtime.cpu import native
from runtime.cpu.composed import Composed, by_name
from runtime.errors import RuntimeFault
from runtime.nn.operations import gpu, plain
from runtime.nn.operations.cached_attention import Rotate, recalling, remembering
from runtime.nn.operations.recurrent import Scans
from runtime.nn.operations.signatures import Attend, Name, Operations


def _composed(of: Mapping[str, Any], rotate: Rotate, attend: Attend) -> dict[str, Any]:
    seeing = {"remember": remembering(rotate, attend), "recall": recalling(rotate, attend)}
    return {**seeing, **Composed({**of, **seeing}).table()}


_PLAIN = Operations(
    name="plain",
    linear=plain.linear,
    embed=plain.embed,
    matmul=plain.matmul,
    gather=plain.gather,
    by_heads=plain.by_heads,
    ask=plain.ask,
    rms_norm=plain.rms_norm,
    add_rms_norm=plain.add_rms_norm,
    rms=plain.rms,
    layer_norm=plain.layer_norm,
    standardize=plain.standardize,
    rotate=plain.rotate,
    attend=plain.attend,
    softmax=plain.softmax,
    likeliest=plain.likeliest,
    silu=plain.silu,
    gelu=plain.gelu,
    gelu_tanh=plain.gelu_tanh,
    relu2=plain.relu2,
    softplus=plain.softplus,
    sigmoid=mx.sigmoid,
    gated=plain.gated,
    clipped_gate=plain.clipped_gate,
    cut=plain.cut,
    bend=plain.bend,
    mix_streams=plain.mix_streams,
    correct_streams=plain.correct_streams,
    join_streams=plain.join_streams,
    softcap=plain.softcap,
    route=plain.route,
    penalise=plain.penalise,
    draw=plain.draw,
    guess=plain.guess,
    add_pairs=plain.add_pairs,
    pick=plain.pick,
    settled=mx.stop_gradient,
    **Scans(plain.silu, plain.softplus, plain.rms).table(),
    **_composed(vars(plain) | plain.ACTIVATIONS, plain.rotate, plain.attend),
)
_GPU = replace(
    _PLAIN,
    name="gpu",
    linear=gpu.linear,
    embed=gpu.embed,
    gather=gpu.gather,
    by_heads=gpu.by_heads,
    ask=gpu.ask,
    rms_norm=gpu.rms_norm,
    add_rms_norm=gpu.add_rms_norm,
    rms=gpu.rms,
    layer_norm=gpu.layer_norm,
    standardize=gpu.standardize,
    rotate=gpu.rotate,
    attend=gpu.attend,
    silu=nn.silu,
    gelu=nn.gelu,
    gelu_tanh=nn.gelu_approx,
    relu2=nn.relu2,
    gated=gpu.gated,
    pick=gpu.pick,
    settled=gpu.settled,
    **Scans(nn.silu, plain.softplus, gpu.rms).table(),
    **_composed(vars(plain) | vars(gpu) | gpu.ACTIVATIONS, gpu.rotate, gpu.attend),
)
_BOUND = replace(_GPU, name="blas", **cpu.table(_GPU))
_BLAS = replace(
    _BOUND,
    **Scans(_BOUND.silu, _BOUND.softplus, _BOUND.rms).table(),
    **_composed(by_name(_BOUND, plain.ACTIVATIONS), _BOUND.rotate, _BOUND.attend),
)


def _by_kernels() -> dict[str, Any]:
    """What lies in no lanes is shown as arrays, and kernels attend to those too."""
    made = native.table(_BLAS)
    if not made:
        return made
    rotate, attend = made["rotate"], made["attend"]
    viewed = replace(_BLAS, remember=remembering(rotate, attend), recall=recalling(rotate, attend))
    return native.table(viewed)


_CPU = replace(_BLAS, name="cpu", **_by_kernels())
COLUMNS: dict[Name, Operations] = {"plain": _PLAIN, "cpu": _CPU, "blas": _BLAS, "gpu": _GPU}


_wanted: Operations | None = None
table: Operations = _CPU if native.on_processor() else _GPU
"""What is computed by now. Look it up as `ops.table`: an imported name would stay what it was."""


def use(name: Name | None) -> None:
    """Compute by this column from now on; None: by that of MLX's device. RuntimeFault: kernels are
    required, and none are there.
    """
    global _wanted
    if native.status.required:
        raise RuntimeFault(f"{native.VARIABLE}=required is set, and there are none: {native.status.reason}")
    _wanted = None if name is None else COLUMNS[name]
    settle()


def settle() -> None:
    """Look again at what MLX runs on; for those who load a model."""
    global table
    table = _wanted or COLUMNS["cpu" if native.on_processor() else "gpu"]


def numbers() -> str:
    """By what numbers are made now, in words: what is made in another way has other last bits. Those of all
    instruction sets are the same.
    """
    if not native.on_processor():
        return f"MLX on its GPU ({table.name})"
    if table.name != "cpu" or native.kernels is None:
        return f"MLX on the processor ({table.name})"
    return f"kernels ({native.kernels.activations()})"


def changed(column: Operations, **parts: Any) -> Operations:
    """The column with other operations in place of some, of which those that are made of several are made,
    too.
    """
    made = replace(column, **parts)
    return replace(made, **Composed(by_name(made, plain.ACTIVATIONS)).table())


def by_kernels(*names: str) -> bool:
    """Are these operations computed by kernels of our own now?"""
    return table.name == "cpu" and all(getattr(table, name) is not getattr(_BLAS, name) for name in names)


@contextmanager
def using(column: Name | Operations) -> Generator[None]:
    """For a while: what tests and experiments compare columns with."""
    global _wanted
    before, _wanted = _wanted, column if isinstance(column, Operations) else COLUMNS[column]
    settle()
    try:
        yield
    finally:
        _wanted = before
        settle()
