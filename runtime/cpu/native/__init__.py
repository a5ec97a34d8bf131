"""Kernels of our own on the processor: C, put into MLX's graph as nodes (`src/`), built by `building`.

They compute on weights as they lie in the package, packed or in 16 bits, and so that a row's numbers are the
same bits alone, in a batch of any size, for any chunking of its prompt and on any number of threads
(docs/determinism.md). Where they are not there (no compiler at installation, another release of MLX, another
platform), models compute by MLX and a bound BLAS, and `status` says why.

    building, hook    compiling the extension; the same while the project is installed
    loading           the extension, checked, or the reason why there is none
    mapped_weights    arrays over mapped files of weights
    module_cache      what is computed once from a module's weights, and again when these are replaced
Operations of the table, one module for each kind:
    products, experts, tables, latent    matrices: linear layers, experts, embeddings, latent attention
    attend, rope, scans                  attention, rotation, recurrences
    norms, activations, route, streams, quantize
    draws, penalties                     logits to tokens
    pairs                                what adapters add
Several operations as one node of MLX's graph:
    sublayers, recurrent, altup, appended    one sublayer
    layers                                   consecutive layers
    guesses                                  a whole small decoder, from ids to ids

Rooms of `src/`; what a file includes is in its own or in one above it. Kernels are C, in files compiled once
for each column or, where they share work among threads (`*_rows.c`), once; nodes of MLX's graph are C++:
    src/simd         sixteen lanes in registers, the columns of a machine, lines of memory asked for early
    src/threads      the pool of threads, where they run, and memory for a job
    src/graph        what all nodes share, mapped files, modules watched for change
    src/rows         what goes along a row: activations, norms, softmax, rotation, quantization, streams
    src/products     rows times matrices, packed or in floats; tables; what adapters add
    src/experts      routing, and rows times matrices of experts
    src/attention    attention, and the memory of keys and values
    src/recurrent    convolutions and scans, and states
    src/ranks        meeting other processes, exchanges with them
    src/sublayers    whole sublayers as one node, and chains of them
    src/sampling     penalties, draws, and decoders from ids to ids

`kernels` is the extension module, or None. Nothing else of the project imports it by itself.

MODELKIT_KERNELS chooses: off; required, for an error where there are none; or the name of a column (plain,
avx2, avxvnni, avx512, neon, dotprod, i8mm) for the sake of comparison. MODELKIT_KERNELS_ACTIVATIONS=f32 has
packed integers multiplied in float32, slower, where i16 makes whole numbers of activations.
"""

from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime import host
from runtime.cpu.native.loading import VARIABLE, Status, load
from runtime.cpu.thread_limits import as_allowed

__all__ = [
    "VARIABLE",
    "Status",
    "by_pages",
    "kernels",
    "of_processor",
    "on_processor",
    "status",
    "table",
]

kernels, status = load()
if kernels is not None:
    kernels.set_threads(as_allowed(host.cores()))  # until an engine chooses


def on_processor() -> bool:
    """Does MLX run on the processor here, where it has no fused kernels and every node of a graph is felt?"""
    return mx.default_device().type == mx.DeviceType.cpu


def of_processor() -> Any:
    """The kernels where MLX runs on the processor, else None."""
    return kernels if kernels is not None and on_processor() else None


def by_pages() -> bool:
    """Does layer memory take of the machine's only what is written (`src/attention/blank.cpp`)? Not where
    addresses are limited (`ulimit -v`): there the room of all rows is taken at once.
    """
    return on_processor() and kernels is not None and host.address_room() is None and kernels.by_pages()


def table(otherwise: Any) -> dict[str, Any]:
    """The operations that kernels compute, by their names in `runtime.nn.operations.signatures.Operations`;
    empty without any. otherwise: the column for what they do not cover, such as other types of activations.
    """
    if kernels is None:
        return {}
    from runtime.cpu.native import (
        activations,
        attend,
        draws,
        experts,
        guesses,
        latent,
        layers,
        norms,
        pairs,
        penalties,
        products,
        rope,
        route,
        scans,
        streams,
        sublayers,
        tables,
    )

    made = {
        "penalise": penalties.penalise(kernels),
        "draw": draws.draw(kernels),
        "embed": tables.embed(kernels, otherwise.embed),
        "by_heads": latent.by_heads(kernels, otherwise.by_heads),
        "add_pairs": pairs.adding(kernels, otherwise.add_pairs),
        "linear": products.linear(kernels, otherwise.linear),
        "route": route.route(kernels),
        "rotate": rope.rotating(kernels, otherwise.rotate),
        **activations.table(kernels, otherwise),
        **attend.table(kernels, otherwise),
        **experts.table(kernels, otherwise),
        **norms.table(kernels, otherwise),
        **scans.table(kernels, otherwise),
        **streams.table(kernels, otherwise),
        "steady": True,
    }
    # What has no kernel as a whole is put together from those of its parts.
    parts = sublayers.table(kernels, replace(otherwise, **made))
    return {
        **made,
        **parts,
        "guess": guesses.guess(kernels),
        "layers": layers.running(kernels, otherwise.layers),
    }
