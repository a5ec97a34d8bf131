"""A model on several ranks of one machine, beside one process with as many threads; and what several machines
would do.

    python benchmarks/ranks.py [--ranks 2] [--layers 8] [--width 2048] [--tokens 64] [--peer PYTHON]
    python benchmarks/ranks.py --simulate [--step-ms 40] [--head-ms 2] [--layers 64] [--width 6144]

The model is a made-up llama in 4 bits. Each rank is a process on loopback with one thread for products.
Beside them: one process with as many threads, and one with one thread, as each of several machines is alone.
Per way: tokens per second of one sequence, of eight together, and of a prompt of 1024 that is read, both by
an engine; milliseconds of all processes' processor time per token of one sequence, what the fullest one holds
once weights are loaded, and what the plan said. --peer: a Python with mlx-lm, whose tensor-parallel llama is
measured on the same ranks. A decoded token is fed back by rank 0, as an engine does.
"pairs" are two stages, each of them shared by --ranks processes, so twice as many.

Then the goals (`ranks_goals`), each with its bar, what was found, and whether it is met; speeds say something
on a machine that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.ranks_goals import PEER, Rank, counting, goals, led, step_of  # noqa: E402
from benchmarks.ranks_simulation import Model, print_tables  # noqa: E402
from benchmarks.ranks_traffic import crowd  # noqa: E402
from tests.support.ranks import environments  # noqa: E402

GROUP_SIZE, BITS, PROMPT = 64, 4, 32
ALONE = ("one", "one thread")
"""Ways that are a single process."""
WAYS = (*ALONE, "stages", "shards", "pairs")
BEFORE = 5
"""Steps before those that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python with mlx-lm")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--step-ms", type=float, default=40.0, help="of one token on one machine")
    parser.add_argument("--head-ms", type=float, default=2.0, help="of it, what rank 0 does alone")
    parser.add_argument("--answer", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        print_tables(Model(options.step_ms, options.head_ms, options.layers or 64, options.width or 6144))
    elif options.answer:
        print(json.dumps(answer(options.answer, options.folder, options.ranks, options.tokens)))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.layers or 8, options.width or 2048)
        ours = [sys.executable, __file__, "--folder", name]
        ours += ["--ranks", str(options.ranks), "--tokens", str(options.tokens)]
        ways = {way: [*ours, "--answer", way] for way in WAYS}
        if options.peer:
            peer = str(ROOT / "benchmarks" / "ranks_peer.py")
            ways[PEER] = [options.peer, peer, name, str(options.tokens)]
        names = ("tokens/s", "of rows", "prompt", "ms CPU", "MB held", "MB planned")
        print(f"{'way':<16}" + "".join(f"{name:>{12 if name == names[-1] else 10}}" for name in names))
        found: dict[str, list[list[Rank]]] = {}
        for way, command in ways.items():
            size = 1 if way in ALONE else 2 * options.ranks if way == "pairs" else options.ranks
            found[way] = [at_once(folder, size, command, options.ranks) for _ in range(options.rounds)]
            show(way, found[way])
        print()
        for goal in goals(found, options.ranks):
            print(goal)


def show(way: str, rounds: list[list[Rank]]) -> None:
    """The best round: others use the machine, too."""
    ranks = max(rounds, key=lambda found: found[0]["rate"])
    cpu = min(sum(one["cpu_ms"] for one in found) for found in rounds)
    held, planned = (max(one[what] for one in ranks) / 1e6 for what in ("held", "planned"))
    said = f"{planned:>12.1f}" if planned else ""
    many = "".join(
        f"{max(found[0][what] for found in rounds):>10.1f}" if what in ranks[0] else f"{'':10}"
        for what in ("rows_rate", "read_rate")
    )
    print(f"{way:<16}{ranks[0]['rate']:>10.1f}{many}{cpu:>10.2f}{held:>10.1f}{said}", flush=True)


def at_once(folder: Path, size: int, command: list[str], threads: int) -> list[Rank]:
    """What each of these ranks says. threads: of one process alone, for large products of floats."""
    given = environments(folder, size) if size > 1 else [dict(os.environ)]
    own = {"OPENBLAS_NUM_THREADS": "1" if size > 1 else str(threads), "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(command, env=env | own, stdout=subprocess.PIPE, text=True, cwd=folder)
        for env in given
    ]
    return [json.loads(one.communicate(timeout=300)[0].splitlines()[-1]) for one in started]


def make(folder: Path, layers: int, width: int) -> None:
    """A package's files: config.json and weights, matrices packed."""
    import mlx.core as mx

    from benchmarks.known_text import make as make_floats
    from benchmarks.known_text import order

    config, (path,) = make_floats(folder, order(0), layers=layers, width=width)
    packed: dict[str, Any] = {}
    for name, array in mx.load(str(path)).items():  # pyright: ignore[reportAttributeAccessIssue] -- a file of tensors
        if array.ndim < 2:
            packed[name] = array
            continue
        parts = mx.quantize(array, GROUP_SIZE, BITS)
        packed |= dict(zip((name, f"{name[:-6]}scales", f"{name[:-6]}biases"), parts, strict=True))
    mx.eval(packed)
    mx.save_safetensors(str(path), packed)
    config["quantization"] = {"group_size": GROUP_SIZE, "bits": BITS}
    (folder / "config.json").write_text(json.dumps(config))


def answer(way: str, folder: Path, ranks: int, tokens: int) -> Rank:
    """One process's part of the work."""
    import mlx.core as mx

    from runtime.cpu import native
    from runtime.cpu.threads import set_threads
    from runtime.nn.operations import ops
    from runtime.ranks.group import Group

    ops.settle()
    threads = ranks if way == "one" else 1
    set_threads(threads)
    group = Group.alone() if way in ALONE else Group.join("ring", kernels=native.kernels)
    calls = counting(group)
    model, own = loaded(folder, group, {"shards": group.size, "pairs": ranks}.get(way, 1))
    held = mx.get_active_memory()
    group.keep_apart()  # as an engine does: both loops compute on the same processors
    first = bare(model, group, tokens)
    engine = led(group, model, PROMPT, tokens, threads)
    group.keep_apart()
    again = bare(model, group, tokens)
    found: Rank = {
        "rate": max(tokens / sum(loop.took_s) for loop in (first, again)),
        "cpu_ms": min(first.cpu_ms, again.cpu_ms),
        "held": held,
        "planned": own.weight_bytes,
        "layers": own.stop - own.start,
        "step_ms": step_of([*first.took_s, *again.took_s]),
        "thread_ms": (first.thread_ms + again.thread_ms) / 2,
    }
    if group.size > 1:
        forward = decoding(model, group)
        token = forward(mx.zeros((1, PROMPT), mx.int32))
        before = dict(calls())
        forward(token)
        broadcast = group.rank + 1 < group.size  # of the token that was drawn
        found["sums"] = calls()["sums"] - before["sums"]
        found["hops"] = calls()["sends"] - before["sends"] - broadcast
    return found | engine | crowd(group, model, threads)


class Loop(NamedTuple):
    """What steps took that nobody but a loop asked for."""

    took_s: list[float]
    """Seconds of each."""
    cpu_ms: float
    """Of the process, for a token."""
    thread_ms: float
    """Of the calling thread."""


def bare(model: Any, group: Any, tokens: int) -> Loop:
    """So many tokens behind a prompt, one sequence."""
    import mlx.core as mx

    forward = decoding(model, group)
    token = forward(mx.zeros((1, PROMPT), mx.int32))
    for _ in range(BEFORE - 1):
        token = forward(token)
    used, own_s, at = time.process_time(), time.thread_time(), [time.perf_counter()]
    for _ in range(tokens):
        token = forward(token)
        at.append(time.perf_counter())
    cpu_ms, thread_ms = ((time.process_time() - used) * 1e3, (time.thread_time() - own_s) * 1e3)
    took_s = [after - before for before, after in pairwise(at)]
    return Loop(took_s, cpu_ms / tokens, thread_ms / tokens)


def loaded(folder: Path, group: Any, shards: int) -> tuple[Any, Any]:
    """This rank's share of the model, and of the plan."""
    import mlx.core as mx

    from runtime.device import device
    from runtime.loading.load import load_model
    from runtime.ranks.load import Assignment, load_share
    from runtime.ranks.parts import parts_of
    from runtime.ranks.plan import Host, decide

    config, file = json.loads((folder / "config.json").read_text()), folder / "model.safetensors"
    names, stored = {mx.float32: "F32", mx.uint32: "U32"}, mx.load(str(file))
    assert isinstance(stored, dict)
    headers = {name: (names[one.dtype], one.shape) for name, one in stored.items()}
    plan = decide(parts_of(config, headers, shards=shards, on=device()), [Host("")] * group.size)
    whole = group.size == 1
    model = (
        load_model(config, [file], on=device())
        if whole
        else load_share(config, [file], Assignment(plan, group), on=device())
    )
    return model, plan.shares[group.rank]


def decoding(model: Any, group: Any) -> Callable[[Any], Any]:
    """Reads tokens [1, n], and gives the next one, which rank 0 draws and passes on."""
    import mlx.core as mx

    from runtime.cache.build import build_memory
    from runtime.step import Inputs, Step

    memory = build_memory(model.described.layout, dtype=model.dtype)
    length = 0

    def forward(ids: mx.array) -> mx.array:
        nonlocal length
        step = Step(starts=(length,), counts=(ids.shape[1],), inputs=Inputs(ids))
        memory.prepare(step)
        hidden = model.network(step, memory)
        drawn = None
        if group.rank == 0:
            drawn = model.network.logits(hidden[:, -1:], step).argmax(axis=-1).astype(mx.int32)
        drawn = group.broadcast(drawn, (1, 1), mx.int32)
        mx.eval(drawn, hidden)
        memory.commit(step, step.counts)
        length += ids.shape[1]
        return drawn

    return forward


if __name__ == "__main__":
    main()
