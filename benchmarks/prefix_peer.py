"""The other side of prefix.py: the same requests through mlx-lm's prompt cache, as its server uses it.

Reads {"kinds", "window", "requests"} from standard input, writes the prompt tokens computed for each request.
Runs in any Python that can import mlx-lm; the caches hold one number per token and no model is needed.
"""

import copy
import json
import sys
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, LRUPromptCache, RotatingKVCache


def fresh(kinds: list[str], window: int) -> list[Any]:
    made = {"full": KVCache, "rotating": lambda: RotatingKVCache(window), "arrays": lambda: ArraysCache(1)}
    return [made[kind]() for kind in kinds]


def advance(caches: list[Any], count: int) -> None:
    for cache in caches:
        if isinstance(cache, ArraysCache):
            cache[0] = mx.zeros((1, 1))
        else:
            cache.update_and_fetch(mx.zeros((1, 1, count, 1)), mx.zeros((1, 1, count, 1)))


def main() -> None:
    job = json.load(sys.stdin)
    store, computed = LRUPromptCache(), []
    for request in job["requests"]:
        prompt = request["prompt"]
        caches, rest = store.fetch_nearest_cache("model", prompt)
        caches = fresh(job["kinds"], job["window"]) if caches is None else caches
        computed.append(len(rest))
        at = len(prompt) - len(rest)
        for end, kind in zip(request["ends"], ("system", "user", "assistant"), strict=False):
            if end > at:
                advance(caches, end - at)
                at = end
                if end < len(prompt):
                    store.insert_cache("model", prompt[:end], copy.deepcopy(caches), cache_type=kind)
        for _ in request["answer"][:-1]:
            advance(caches, 1)
        store.insert_cache("model", prompt + request["answer"][:-1], caches)
    print(json.dumps(computed))


if __name__ == "__main__":
    main()
