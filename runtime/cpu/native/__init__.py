"""Kernels of our own on the processor: C, put into MLX's graph as nodes (`src/`), built by `building`.

They compute on weights as they lie in the package, packed or in 16 bits, and so that a row's numbers are the
same bits alone, in a batch of any size, for any chunking of its prompt and on any number of threads
(docs/determinism.md). Where they are not there (no compiler at installation, another release of MLX, another
platform), models compute by MLX and a bound BLAS, and `status` says why.

`kernels` is the extension module, or None. Nothing else of the project imports it by itself.

MODELKIT_KERNELS chooses: off, or the name of a column (plain, avx2, avx512, neon) for the sake of comparison.
"""

import importlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from runtime import host
from runtime.cpu.threads import as_allowed

VARIABLE = "MODELKIT_KERNELS"
_BUILT = Path(__file__).with_name("built.json")


@dataclass(frozen=True, slots=True)
class Status:
    """What there is of kernels in this process."""

    column: str | None
    """The instruction set they compute by; None: they are not used."""
    columns: tuple[str, ...] = ()
    """Those that this processor has."""
    reason: str | None = None
    """Why they are not used, a clause; None where they are."""


def _load() -> tuple[Any, Status]:
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off":
        return None, Status(None, reason=f"{VARIABLE}=off is set")
    failed, mlx = _built()
    if failed is not None:
        return None, Status(None, reason=failed)
    if version("mlx") != mlx:
        return None, Status(None, reason=f"they were built for MLX {mlx}, and {version('mlx')} is installed")
    try:
        module = importlib.import_module("runtime.cpu.native._kernels")
    except ImportError as error:
        return None, Status(None, reason=f"they cannot be loaded: {error!s:.200}")
    columns = tuple(module.columns())
    if wanted and not module.use_column(wanted):
        return None, Status(
            None, columns, f"{VARIABLE} asks for {wanted!r:.40}, and there is {', '.join(columns)}"
        )
    if module.column() == "plain" and not wanted:
        return None, Status(None, columns, "this processor has none of the instructions they are made for")
    if not _computes(module):
        return None, Status(None, columns, "their self-test came out different from MLX")
    module.set_threads(as_allowed(host.cores()))  # until an engine chooses
    return module, Status(module.column(), columns)


def _built() -> tuple[str | None, str | None]:
    """Why they were not built, and else for which release of MLX."""
    try:
        said = json.loads(_BUILT.read_text())
    except (OSError, ValueError):
        return "they were not built when modelkit was installed", None
    return said.get("failed"), said.get("mlx")


def _computes(module: Any) -> bool:
    """Do arrays pass between MLX and the kernels as they should?"""
    with mx.stream(mx.cpu):
        x, weight = mx.arange(60.0).reshape(20, 3).T, mx.arange(20.0)  # seen through strides
        got = module.rms_norm(x, weight, 1e-5)
        return bool(mx.allclose(got, mx.fast.rms_norm(x, weight, 1e-5), rtol=1e-5).item())


kernels, status = _load()


def table(otherwise: Any) -> dict[str, Any]:
    """The operations that kernels compute, by their names in `runtime.nn.ops.Operations`; empty without any.
    otherwise: the column for what they do not cover, such as other types of activations.
    """
    if kernels is None:
        return {}
    from runtime.cpu.native import norms, products, scans

    return {
        "linear": products.linear(kernels, otherwise.linear),
        "rms_norm": norms.rms_norm(kernels, otherwise.rms_norm),
        **scans.table(kernels, otherwise),
    }
