"""Microseconds per drawn token, by sampler setting and vocabulary: python -m benchmarks.sampler

Beside ours stands mlx-lm's sampler chain where mlx-lm can be imported: its sampler takes log-probabilities,
so it is timed with the `logits - logsumexp(logits)` that its generation loop puts before every sampler,
greedy included.
"""

import statistics
import time
from collections.abc import Callable

import mlx.core as mx

from runtime.cpu import bind_blas
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler

ROUNDS = 15
RECENT = list(range(100, 164))
CASES = {
    "greedy": {"temperature": 0.0},
    "T 0.8": {"temperature": 0.8},
    "top_k 40": {"temperature": 0.8, "top_k": 40},
    "top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "min_p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "top_k, top_p, min_p": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
    "the same, penalised": {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
    },
}


def ours(settings: dict[str, float]) -> Callable[[mx.array], mx.array]:
    sampler = Sampler([SamplingParams(seed=7, **settings)])  # pyright: ignore[reportArgumentType]  # a table
    inputs = mx.array([[5]])
    return lambda logits: sampler.sample(logits[None], [100], history=[RECENT], inputs=inputs)


def mlx_lm(settings: dict[str, float]) -> Callable[[mx.array], mx.array] | None:
    try:
        from mlx_lm.sample_utils import (  # pyright: ignore[reportMissingImports]
            make_logits_processors,
            make_sampler,
        )
    except ImportError:
        return None
    chain = {name: settings[name] for name in ("top_k", "top_p", "min_p") if name in settings}
    sampler = make_sampler(temp=settings["temperature"], **chain)
    penalties = [settings.get(f"{name}_penalty") for name in ("repeat", "presence", "frequency")]
    processors = make_logits_processors(None, penalties[0], 64, penalties[1], 64, penalties[2], 64)
    recent = mx.array(RECENT)

    def draw(logits: mx.array) -> mx.array:
        for processor in processors:
            logits = processor(recent, logits)
        return sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True))

    return draw


def microseconds(draw: Callable[[mx.array], mx.array], size: int) -> float:
    """Median over rounds; fresh logits each time, shaped like a model's (a few likely ids, a long tail)."""
    times: list[float] = []
    for _ in range(ROUNDS + 2):
        logits = 3 * mx.random.normal((1, size))
        mx.eval(logits)
        begin = time.perf_counter()
        mx.eval(draw(logits))
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times[2:])


def main() -> None:
    bind_blas()
    print(f"{'setting':22}{'vocabulary':>12}{'ours us':>10}{'mlx-lm us':>11}")
    for size in (32_000, 151_936):
        for name, settings in CASES.items():
            peer = mlx_lm(settings)
            theirs = f"{microseconds(peer, size):11.0f}" if peer else f"{'-':>11}"
            print(f"{name:22}{size:12,}{microseconds(ours(settings), size):10.0f}{theirs}")


if __name__ == "__main__":
    main()
