"""One process of modelkit for benchmarks/processor.py: python processor_ours.py HOME NAME JOBS THREADS

Prints one line of JSON: for each job tokens per second, and what the process held. First of all it says
"first" as soon as it has a token.
"""

import json
import random
import sys
import threading
import time
from pathlib import Path

STARTED = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import modelkit  # noqa: E402
from benchmarks.peak_memory import peak_mb  # noqa: E402
from modelkit.model import Model  # noqa: E402

DECODED, BEHIND, ROWS_DECODED, VERIFIED = 128, 48, 48, 128


def prompt(length: int, seed: int) -> list[int]:
    """Never the same twice, so that nothing is found among earlier prompts."""
    numbers = random.Random(f"{length} {seed}")
    return [numbers.randrange(5, 240) for _ in range(length)]


def decode(model: Model, length: int, count: int, seed: int) -> float:
    usage = model.generate(prompt(length, seed), num_predict=count).usage
    return (usage.generated_tokens - 1) / usage.decode_s


def prefill(model: Model, length: int, seed: int) -> float:
    return length / model.generate(prompt(length, seed), num_predict=1).usage.prefill_s


def rows(model: Model, count: int, seed: int) -> float:
    """Tokens per second of all rows together, from the first token of any to the last: the others'
    prompts are read meanwhile.
    """
    firsts, lasts = [0.0] * count, [0.0] * count

    def ask(place: int) -> None:
        answer = model.generate(prompt(32, seed + place), num_predict=ROWS_DECODED)
        lasts[place] = time.perf_counter()
        firsts[place] = lasts[place] - answer.usage.decode_s

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count * (ROWS_DECODED - 1) / (max(lasts) - min(firsts))


def verify(model: Model, count: int, seed: int) -> float:
    """What a step with `count` tokens takes beside one with a single token, the logits of all asked for."""

    def step_s(width: int) -> float:
        started = time.perf_counter()
        model.logits(prompt(VERIFIED, seed), chunk=width)
        return (time.perf_counter() - started) / (VERIFIED / width)

    return min(step_s(count) for _ in range(3)) / min(step_s(1) for _ in range(3))


def run(model: Model, job: str) -> float:
    kind, _, number = job.partition(" ")
    if kind == "decode":
        return max(decode(model, 32, DECODED, seed) for seed in range(2))
    if kind == "prefill":
        return max(prefill(model, int(number), seed) for seed in range(2))
    if kind == "behind":
        return decode(model, int(number), BEHIND, 5)
    if kind == "verify":
        return verify(model, int(number), 6)
    if kind == "rows":
        return rows(model, int(number), 100)
    raise ValueError(job)


def main() -> None:
    home, name, jobs, threads = sys.argv[1:]
    said: dict[str, float] = {}
    wanted = json.loads(jobs)
    kept = [job[3:] for job in wanted if job.startswith("kv ")]
    keep = {"kv_format": kept[0]} if kept else {}
    options = {"draft_num_predict": 0, "temperature": 0.0, "num_thread": int(threads), **keep}
    with modelkit.load(name, home=home, num_ctx=4608, cache_memory=0, **options) as model:
        model.generate(prompt(8, 0), num_predict=1)
        said["first"] = time.perf_counter() - STARTED
        said["load peak"] = peak_mb()
        for job in wanted:
            if not job.startswith("kv "):
                said[job] = run(model, job)
    said["peak"] = peak_mb()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
