"""What the number of threads for products costs and wins, on a quiet machine and beside busy programs.

    python benchmarks/threads.py [--busy 0 1 4 20] [--callers 1 4] [--engines 1] [--share 1.0] [--nice 0]

A made-up llama (30 M parameters) answers with one thread, with one per core, and with as many as the engine
chooses, in turn and within seconds of each other, so that what else the machine does touches all alike. Per
load: medians of milliseconds of wall and of processor time per token, for decoding and for reading a prompt,
how many times as fast as with one thread (median of the ratios of neighbours), and what was chosen.

--busy: so many processes that do nothing but compute, for each figure; --share: that part of the time, in
pieces of 20 ms. --callers: requests at once. --engines:
that many engines of each kind in this process answer at once. --nice: how far this process stands back.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

import known_text  # noqa: E402

from runtime import host  # noqa: E402
from runtime.cpu import bind_blas  # noqa: E402
from runtime.engine.engine import Engine, Options  # noqa: E402
from runtime.engine.request import Request  # noqa: E402
from runtime.loading.load import load_model  # noqa: E402
from runtime.sampling.params import SamplingParams  # noqa: E402

LAYERS, WIDTH, PROMPT = 6, 768, 256
PIECE_S = 0.02
SETTLE_S = 1.0  # under a new load, before anything is measured


@dataclass(frozen=True)
class Cost:
    """Milliseconds per token, wall and processor."""

    wall: float
    own: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 4, 20])
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args()
    os.nice(options.nice)
    print(bind_blas().config, "with", host.cores(), "cores; others keep", _others(), "of them busy now")
    asked = {"1": 1, "all": host.cores(), "chosen": None}
    with tempfile.TemporaryDirectory() as folder:
        config, shards = known_text.make(Path(folder), known_text.order(1), layers=LAYERS, width=WIDTH)

        def start(threads: int | None) -> Engine:
            return Engine(lambda: load_model(config, shards), Options(2048, threads=threads))

        kinds = {name: [start(count) for _ in range(options.engines)] for name, count in asked.items()}
        for busy in options.busy:
            with load(busy, options.share):
                for callers in options.callers:
                    for what, tokens in (("decode", options.tokens), ("prompt", 1)):
                        costs = measure(kinds, callers, tokens, options.rounds)
                        chosen = ",".join(str(engine.threads().threads) for engine in kinds["chosen"])
                        show(f"busy {busy:>2}, callers {callers}, {what}", costs, chosen)
        for engine in [engine for group in kinds.values() for engine in group]:
            engine.close()


def _others() -> str:
    before = host.processor_times()
    time.sleep(0.5)
    now = host.processor_times()
    if before is None or now is None:
        return "an unknown part"
    return f"{now.processors - (now.idle_s - before.idle_s) / (now.at_s - before.at_s):.1f}"


@contextmanager
def load(count: int, share: float) -> Iterator[None]:
    """`count` processes that compute for this share of the time until the end of the block."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=spin, args=(share,), daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def spin(share: float) -> None:
    while True:
        stop = time.thread_time() + PIECE_S * share
        while time.thread_time() < stop:
            pass
        time.sleep(PIECE_S * (1 - share))


def measure(kinds: dict[str, list[Engine]], callers: int, tokens: int, rounds: int) -> dict[str, list[Cost]]:
    """One cost of each kind per round. The first round warms up."""
    costs: dict[str, list[Cost]] = {name: [] for name in kinds}
    for turn in range(rounds + 1):
        for name, engines in kinds.items():
            cost = answer(engines, callers, tokens, seed=turn)
            if turn:
                costs[name].append(cost)
    return costs


def answer(engines: list[Engine], callers: int, tokens: int, seed: int) -> Cost:
    """All callers of all engines at once. More than one token: the time of decoding; one: of the prompt."""
    prompt = PROMPT if tokens == 1 else 8
    ids = [known_text.walk(known_text.order(1), 31 * caller + 7 * seed, prompt) for caller in range(callers)]
    jobs = [
        threading.Thread(
            target=ask, args=(engine, Request(tuple(its), tokens, SamplingParams(temperature=0)))
        )
        for engine in engines
        for its in ids
    ]
    began, own = time.perf_counter(), time.process_time()
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    made = len(jobs) * (prompt if tokens == 1 else tokens)
    passed, spent = time.perf_counter() - began, time.process_time() - own
    return Cost(1e3 * passed / made, 1e3 * spent / made)


def ask(engine: Engine, request: Request) -> None:
    for _ in engine.submit(request):
        pass


def show(label: str, costs: dict[str, list[Cost]], chosen: str) -> None:
    parts: list[str] = []
    for name, values in costs.items():
        pairs = zip(costs["1"], values, strict=True)
        ratio = statistics.median(one.wall / value.wall for one, value in pairs)
        wall, own = (statistics.median(getattr(value, kind) for value in values) for kind in ("wall", "own"))
        parts.append(f"{name} {wall:8.2f} ms, cpu {own:7.2f}, {ratio:5.2f}x")
    print(f"{label:<28} | " + " | ".join(parts) + f" (now {chosen})", flush=True)


if __name__ == "__main__":
    main()
