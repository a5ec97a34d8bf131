"""What adapters cost a batch: rows with four different ones, or all with one, against the same step without.

    python benchmarks/adapters.py [--width 2048] [--layers 4] [--rank 16] [--rows 8] [--rounds 15] [--bits 4]

A llama of random weights, in float32 or packed (--bits, in groups of 64); adapters in bfloat16 on all seven
matrices of every layer. One process; each round
runs the plain step, the step with adapters and the plain step again, and the ratio of a round is that of the
middle one to the mean of its neighbours, so that what else the machine does falls out. Medians are printed,
of a decoding step (one token a row), of a round of speculation (five) and of a prompt (256 tokens, one row).

--processor: seconds of the processor in place of those of the clock, for a machine that others use too; set
OPENBLAS_NUM_THREADS=1 then, since threads that wait for each other spin.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.known_text import make, order
from runtime import cpu
from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.nn.adapters.adapter import Adapter, logical_shape
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.nn.adapters.rows import Members, RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.linear import MATRICES
from runtime.step import Inputs, Step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("width", 2048), ("layers", 4), ("rank", 16), ("rows", 8), ("rounds", 15)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--bits", type=int, help="pack matrices")
    parser.add_argument("--processor", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.processor else time.perf_counter
    print(cpu.bind_blas())
    with tempfile.TemporaryDirectory() as folder:
        config, shards = make(Path(folder), order(0), layers=options.layers, width=options.width)
        model = load_model(*(packed(config, shards, options.bits) if options.bits else (config, shards)))
        adapters = [an_adapter(model, options.rank, seed) for seed in range(4)]
        stacks = AdapterStacks(adapters)
        print(f"{adapters[0].nbytes / model.weight_bytes:.1%} of the weights' bytes each")
        for label, rows, width in (
            ("decoding", options.rows, 1),
            ("five a row", options.rows, 5),
            ("prompt", 1, 256),
        ):
            same: list[Members] = [((adapters[0], 1.0),)] * rows
            four: list[Members] = [((adapters[row % 4], 1.0),) for row in range(rows)]
            scaled: list[Members] = [((adapters[row % 4], 0.5),) if row % 2 else () for row in range(rows)]
            kinds = ("one for all", same), ("one each", four), ("scaled, every other row", scaled)
            for what, its in kinds[0 if rows > 1 else 1 :]:
                if any(its):
                    step = stepping(model, rows, width, clock)
                    ratio, plain_s = measure(step, RowAdapters(stacks, its), options.rounds)
                    print(f"{label:11} {rows} x {width:3}  {what:24} {ratio:.3f}  ({plain_s * 1e3:.1f} ms)")


def packed(
    config: dict[str, Any], shards: Sequence[Path], bits: int
) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """The same checkpoint, its matrices quantized."""
    weights: dict[str, mx.array] = {}
    for shard in shards:
        arrays = mx.load(str(shard))
        assert isinstance(arrays, dict)
        for name, array in arrays.items():
            if array.ndim < 2:
                weights[name] = array
                continue
            parts = mx.quantize(array, group_size=64, bits=bits)
            leaves = zip(("weight", "scales", "biases"), parts, strict=True)
            weights |= {f"{name.removesuffix('.weight')}.{leaf}": part for leaf, part in leaves}
    mx.eval(weights)
    return {**config, "quantization": {"group_size": 64, "bits": bits}}, weights


def an_adapter(model: LoadedModel, rank: int, seed: int) -> Adapter:
    mx.random.seed(seed)
    pairs: dict[str, LowRank] = {}
    for name, module in model.network.named_modules():
        if type(module) in MATRICES and "layers" in name:
            out, width = logical_shape(module)
            down, up = mx.random.normal((width, rank)) * 0.01, mx.random.normal((rank, out)) * 0.01
            pairs[name] = LowRank(down.astype(mx.bfloat16), up.astype(mx.bfloat16))
    return Adapter(model.network, LowRanks(pairs), model.dtype)


def stepping(
    model: LoadedModel, rows: int, width: int, clock: Callable[[], float]
) -> Callable[[RowAdapters | None], float]:
    """A step behind 64 tokens of each row, as often as one likes: seconds of it."""
    memory = build_memory(model.described.layout, dtype=model.dtype)
    memory.resize(rows)
    ids = mx.zeros((rows, 64), mx.int32)
    step = Step((0,) * rows, (64,) * rows, inputs=Inputs(ids))
    memory.prepare(step)
    model.network(step, memory)
    memory.commit(step, step.counts)
    memory.evaluate()

    def run(adapters: RowAdapters | None) -> float:
        began = clock()
        step = Step(
            (64,) * rows,
            (width,) * rows,
            inputs=Inputs(ids[:, :1] * mx.ones((1, width), mx.int32)),
            adapters=adapters,
        )
        memory.prepare(step)
        mx.eval(mx.argmax(model.network.logits(model.network(step, memory)[:, -1:], step), axis=-1))
        memory.commit(step, (0,) * rows)
        return clock() - began

    return run


def measure(
    run: Callable[[RowAdapters | None], float], adapters: RowAdapters, rounds: int
) -> tuple[float, float]:
    """(time with adapters over time without, seconds without), medians."""
    for _ in range(2):
        run(None)
        run(adapters)
    ratios: list[float] = []
    plain: list[float] = []
    for _ in range(rounds):
        before, own, after = run(None), run(adapters), run(None)
        ratios.append(2 * own / (before + after))
        plain += [before, after]
    return statistics.median(ratios), statistics.median(plain)


if __name__ == "__main__":
    main()
