"""What one decoded token costs a layer's memory: ours, a cache that concatenates, and mlx-lm's where it is
installed.

    python benchmarks/cache_append.py [--context 1024] [--window 1024] [--rounds 7]

Each figure is the time to append one token's keys and values [1, 8, 1, 128] and to make what comes back
ready for attention, in a model of 16 such layers: what a step knows is worked out once for all of them. The
rivals take turns, so that a busy machine is busy for all; figures are medians over rounds of 64 tokens.
"build" is the part spent in Python before anything is computed.
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.snapshot import Reach
from runtime.cache.visibility import see
from runtime.step import Step

HEADS, SIZE, TOKENS, LAYERS = 8, 128, 64, 16
Append = Callable[[mx.array, mx.array], Any]
Make = Callable[[], Append]
Take = Callable[[mx.array, mx.array], list[Any]]


class Concatenating:
    """The plainest cache there is: every token copies all that came before."""

    def __init__(self) -> None:
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def append(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self._keys = keys if self._keys is None else mx.concatenate([self._keys, keys], axis=2)
        self._values = values if self._values is None else mx.concatenate([self._values, values], axis=2)
        return self._keys, self._values


class Ring:
    """A window as a ring of window + slack slots: nothing moves, but every token needs a mask."""

    def __init__(self, window: int, slack: int) -> None:
        self._window, self._capacity, self._length = window, window + slack, 0
        self._keys = mx.zeros((1, HEADS, self._capacity, SIZE))
        self._values = mx.zeros((1, HEADS, self._capacity, SIZE))

    def append(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        at = 0
        while at < keys.shape[2]:
            slot = self._length % self._capacity
            n = min(keys.shape[2] - at, self._capacity - slot)
            self._keys[:, :, slot : slot + n] = keys[:, :, at : at + n]
            self._values[:, :, slot : slot + n] = values[:, :, at : at + n]
            self._length, at = self._length + n, at + n
        last = self._length - 1
        held = last - (last - mx.arange(self._capacity)) % self._capacity
        return self._keys, self._values, see(mx.array([[last]]), held[None], Reach(window=self._window))


def ours(spec: LayerSpec, slack: int = 16) -> Take:
    assert isinstance(spec, Full | Rotating)
    caches = [KVCache(spec, slack=slack) for _ in range(LAYERS)]

    def take(keys: mx.array, values: mx.array) -> list[Any]:
        step = Step(caches[0].lengths, (keys.shape[2],))
        views = [cache.append(step, keys, values) for cache in caches]
        for cache in caches:
            cache.commit(step, step.counts)
        return views

    return take


def layers(make: Make) -> Take:
    """As many of a rival's caches as ours has layers."""
    appends = [make() for _ in range(LAYERS)]
    return lambda keys, values: [append(keys, values) for append in appends]


def peers(window: int) -> dict[str, dict[str, Take]]:
    """mlx-lm's caches by the kind they compare with; empty where mlx-lm is not installed."""
    try:
        peer = importlib.import_module("mlx_lm.models.cache")
    except ImportError:
        return {"full": {}, "window": {}}
    return {
        "full": {"mlx-lm KVCache": layers(lambda: peer.KVCache().update_and_fetch)},
        "window": {
            "mlx-lm RotatingKVCache": layers(lambda: peer.RotatingKVCache(max_size=window).update_and_fetch)
        },
    }


def compare(rivals: dict[str, Take], context: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Microseconds per token and layer: (all, build). Every rival first reads `context` tokens."""
    prompt, token = mx.random.normal((1, HEADS, context, SIZE)), mx.random.normal((1, HEADS, 1, SIZE))
    for take in rivals.values():
        mx.eval(_arrays(take(prompt, prompt)))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, take in rivals.items():
            taken[name] += [_one(take, token) for _ in range(TOKENS)]
    return {
        name: (statistics.median(a for a, _ in times), statistics.median(b for _, b in times))
        for name, times in taken.items()
    }


def _one(take: Take, token: mx.array) -> tuple[float, float]:
    begun = time.perf_counter()
    views = take(token, token)
    built = time.perf_counter()
    mx.eval(_arrays(views))
    return (time.perf_counter() - begun) * 1e6 / LAYERS, (built - begun) * 1e6 / LAYERS


def _arrays(views: list[Any]) -> list[mx.array]:
    return [x for view in views for x in view if isinstance(x, mx.array)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of one decoded token in a layer's memory.")
    parser.add_argument("--context", type=int, default=1024, help="tokens read before")
    parser.add_argument("--window", type=int, default=1024, help="of the rotating layer")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    found = peers(args.window)
    window = Rotating(HEADS, SIZE, args.window)
    tables = {
        "full": {
            "ours": ours(Full(HEADS, SIZE)),
            "concatenating": layers(lambda: Concatenating().append),
            **found["full"],
        },
        "window": {
            "ours": ours(window),
            "ring with a mask": layers(lambda: Ring(args.window, 16).append),
            **found["window"],
        },
    }
    for kind, rivals in tables.items():
        print(f"{kind}, {args.context} tokens read, window {args.window}")
        for name, (total, build) in compare(rivals, args.context, args.rounds).items():
            print(f"  {name:24} {total:9.1f} us   build {build:6.1f} us")


if __name__ == "__main__":
    main()
