"""What kernels that decode one row read from memory per second: products with weights in each form, and
attention behind many tokens in each form that keys and values are kept in.

    python benchmarks/memory.py [--threads 1] [--rounds 9] [--mb 160] [--seen 3800]

Each round reads --mb of other weights, or the keys and values of as many layers as that makes, so that caches
of the processor help little; medians of rounds, in GB/s of what is read. First stands what numpy's sum of as
many bytes reads, on one thread and with the same kind of pages: the others beside it say how well a kernel
keeps the memory busy. A node of the graph costs some 10 us beside.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import numpy as np  # noqa: E402

from runtime.cache.build import build_memory  # noqa: E402
from runtime.cache.layout import Full  # noqa: E402
from runtime.cache.memory import LayerMemory  # noqa: E402
from runtime.cache.protocol import by_layout  # noqa: E402
from runtime.cpu import native  # noqa: E402
from runtime.cpu.threads import set_threads  # noqa: E402
from runtime.nn.operations import ops  # noqa: E402
from runtime.parts.attention import Scoring  # noqa: E402
from runtime.step import Inputs, Step  # noqa: E402
from runtime.weights.holding import weight_bytes  # noqa: E402

OUTPUTS, INPUTS, GROUP = 3072, 2048, 64
HEADS, SIZES = 4, (64, 128)
"""Of keys and values."""
PER_KEY = (1, 2, 8)
"""Heads of queries that read a key."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("threads", 1), ("rounds", 9), ("mb", 160), ("seen", 3800)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    ops.settle()
    if native.kernels is None:
        sys.exit(f"there are no kernels to measure: {native.status.reason}")
    set_threads(options.threads)
    many = np.ones(options.mb * 10**6 // 4, np.float32)
    measure("numpy's sum", many.nbytes, options.rounds, lambda: many.sum())
    for bits in (16, 8, 4):
        products(bits, options)
    for size in SIZES:
        for per_key in PER_KEY:
            for kept in (None, "bf16", "q8", "q4"):
                attention(size, per_key, kept, options)


def measure(what: str, nbytes: int, rounds: int, run: Callable[[], object]) -> None:
    run()
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    print(f"{what:54}{nbytes / statistics.median(took) / 1e9:6.1f} GB/s", flush=True)


def products(bits: int, options: argparse.Namespace) -> None:
    """One row through matrices that are all read once."""
    first = matrix(bits)
    nbytes = weight_bytes(first)
    count = max(options.mb * 10**6 // nbytes, 1)
    matrices = [first, *(matrix(bits) for _ in range(count - 1))]
    x = mx.ones((1, 1, INPUTS))
    mx.eval(x)
    what = f"a row through matrices in {'bf16' if bits == 16 else f'q{bits}'}"
    measure(
        what, count * nbytes, options.rounds, lambda: mx.eval([ops.table.linear(one, x) for one in matrices])
    )


def matrix(bits: int) -> nn.Module:
    weight = mx.random.normal((OUTPUTS, INPUTS)).astype(mx.bfloat16)
    made: nn.Module = nn.Linear(INPUTS, OUTPUTS, bias=False)
    made.weight = weight
    if bits < 16:
        made = nn.QuantizedLinear.from_linear(made, GROUP, bits)
    mx.eval(made.parameters())
    return made


def attention(size: int, per_key: int, kept: str | None, options: argparse.Namespace) -> None:
    """One token behind many, in as many layers as make the bytes."""
    layer = Full(HEADS, size)
    memory = filled(layer, 1, kept, options.seen)
    nbytes = sum(array.nbytes for array in memory.caches[0].arrays)
    count = max(options.mb * 10**6 // nbytes, 1)
    memory = filled(layer, count, kept, options.seen)
    what = f"a token behind {options.seen}, heads of {size}, {per_key} to a key, {kept or 'f32'}"

    def run() -> None:
        mx.eval(seen_by(memory, layer, per_key, options.seen))

    measure(what, count * nbytes, options.rounds, run)


def filled(layer: Full, count: int, kept: str | None, tokens: int) -> LayerMemory:
    memory = build_memory((layer,) * count, kept_format=kept, grain=1)
    step, keys = step_of(0, tokens), mx.ones((1, layer.kv_heads, tokens, layer.head_dim))
    memory.prepare(step)
    for cache in by_layout(memory):
        cache.append(step, keys, keys)
    memory.commit(step, step.counts)
    memory.evaluate()
    return memory


def step_of(start: int, width: int) -> Step:
    return Step((start,), (width,), inputs=Inputs(mx.zeros((1, width), mx.int32)))


def seen_by(memory: LayerMemory, layer: Full, per_key: int, start: int) -> list[mx.array]:
    """What each layer's queries see of one token, which is forgotten."""
    step, inner = step_of(start, 1), layer.kv_heads * layer.head_dim
    memory.prepare(step)
    keys, queries = mx.ones((1, 1, inner)), mx.ones((1, 1, inner * per_key))
    by = Scoring(layer.head_dim, layer.head_dim**-0.5)
    seen = [ops.table.remember(step, cache, queries, keys, keys, by) for cache in by_layout(memory)]
    memory.commit(step, (0,))
    return seen


if __name__ == "__main__":
    main()
