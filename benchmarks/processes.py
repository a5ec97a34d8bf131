"""Several processes that answer at once, each with one thread for products, with all, and with as many as its
engine chooses.

    python benchmarks/processes.py [--processes 1 2 4] [--rounds 2] [--seconds 4]

All processes of a row begin together; rows of the same kind are spread over the rounds. Per row: tokens per
second of all processes together, milliseconds of processor time per token, and the numbers of threads that
were chosen. The model is that of benchmarks/threads.py.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

KINDS = ("1", "all", "chosen")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--answer", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer(options.answer, options.seconds)
        return
    for count in options.processes:
        for _ in range(options.rounds):
            for kind in KINDS:
                show(count, kind, at_once(count, kind, options.seconds))


def at_once(count: int, kind: str, seconds: float) -> list[dict[str, float]]:
    """What each of `count` processes says of itself."""
    argv = [sys.executable, __file__, "--answer", kind, "--seconds", str(seconds)]
    workers = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()  # loaded
    return [json.loads(said) for said in _begin(workers)]


def _begin(workers: list["subprocess.Popen[str]"]) -> list[str]:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [worker.communicate()[0] for worker in workers]


def answer(kind: str, seconds: float) -> None:
    """One process: answers short requests for `seconds`, once it is told to."""
    import known_text
    from threads import LAYERS, WIDTH

    from runtime import host
    from runtime.cpu import bind_blas
    from runtime.engine.engine import Engine, Options
    from runtime.engine.request import Request
    from runtime.loading.load import load_model
    from runtime.sampling.params import SamplingParams

    bind_blas()
    threads = {"1": 1, "all": host.cores(), "chosen": None}[kind]
    with tempfile.TemporaryDirectory() as folder:
        config, shards = known_text.make(Path(folder), known_text.order(1), layers=LAYERS, width=WIDTH)
        engine = Engine(lambda: load_model(config, shards), Options(2048, threads=threads))
        ids = tuple(known_text.walk(known_text.order(1), 3, 8))
        request = Request(ids, 8, SamplingParams(temperature=0))
        list(engine.submit(request))
        print("loaded", flush=True)
        sys.stdin.readline()
        tokens, chosen = 0, set[int]()
        began, own = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            tokens += sum(len(delta.ids) for delta in engine.submit(request))
            chosen.add(engine.threads().threads)
        passed, spent = time.monotonic() - began, time.process_time() - own
        engine.close()
    print(json.dumps({"tokens": tokens, "wall": passed, "own": spent, "chosen": sorted(chosen)}))


def show(count: int, kind: str, said: list[dict[str, float]]) -> None:
    rate = sum(one["tokens"] / one["wall"] for one in said)
    own = 1e3 * sum(one["own"] for one in said) / sum(one["tokens"] for one in said)
    chosen = [one["chosen"] for one in said]
    print(
        f"{count} processes, {kind:<6} {rate:7.1f} tokens/s, {own:7.1f} ms cpu a token, threads {chosen}",
        flush=True,
    )


if __name__ == "__main__":
    main()
