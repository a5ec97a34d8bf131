"""What an engine reaches with a long prompt and with several rows, on one machine or leading others: for
benchmarks/ranks.py.
"""

import time
from statistics import median
from typing import Any

PROMPT, CHUNK = 1024, 128
"""Tokens of the prompt that is read, and of a step that reads it."""
ROWS, SHORT, TOKENS = 8, 25, 57
ROUNDS = 3

Rates = dict[str, float]


def crowd(group: Any, model: Any, threads: int) -> Rates:
    """Tokens per second, on rank 0: read of a prompt, the best of a few rounds, as others may use the
    machine, and written to all rows together, their median.
    """
    from runtime.engine.engine import Engine
    from runtime.engine.options import Options
    from runtime.ranks.follow import Follower
    from runtime.ranks.lead import Leading

    if group.rank:
        Follower(group, model).run()
        return {}
    options = Options(PROMPT + TOKENS, budget_tokens=CHUNK, max_rows=ROWS, threads=threads)
    engine = Engine(lambda: model, options, leading=None if group.size == 1 else Leading(group))
    try:
        return _rates(engine)
    finally:
        engine.close()


def _rates(engine: Any) -> Rates:
    _written(engine, rows=ROWS, prompt=4, tokens=4)
    return {
        "read_rate": max(
            PROMPT / _written(engine, rows=1, prompt=PROMPT, tokens=1)[0] for _ in range(ROUNDS)
        ),
        "rows_rate": median(_rate(engine) for _ in range(ROUNDS)),  # a difference: its best would be noise
    }


def _rate(engine: Any) -> float:
    """Of what rows write that are all there: how they come and go is left out."""
    long_s, short_s = (_written(engine, rows=ROWS, prompt=4, tokens=count)[1] for count in (TOKENS, SHORT))
    return ROWS * (TOKENS - SHORT) / (long_s - short_s)


def _written(engine: Any, *, rows: int, prompt: int, tokens: int) -> tuple[float, float]:
    """Seconds until the first token of any row, and until all have ended."""
    from runtime.engine.request import Request
    from runtime.sampling.params import SamplingParams

    began = time.perf_counter()
    plain = SamplingParams(temperature=0)
    asked = [
        Request(tuple((7 * n + place) % 96 for n in range(prompt)), tokens, plain) for place in range(rows)
    ]
    streams = [engine.submit(one) for one in asked]
    first = None
    for stream in streams:
        for _ in stream:
            first = time.perf_counter() if first is None else first
    assert first is not None
    return first - began, time.perf_counter() - began
