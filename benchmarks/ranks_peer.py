"""One process of mlx-lm for benchmarks/ranks.py: python ranks_peer.py FOLDER TOKENS

Its own tensor parallelism (`shard`) and its own loop, each rank drawing the same token. Prints what
benchmarks/ranks.py prints for ours.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

PROMPT = 32


def main() -> None:
    folder, tokens = Path(sys.argv[1]), int(sys.argv[2])
    group = mx.distributed.init(strict=True, backend="ring")
    model, _ = load_model(folder, lazy=True)
    model.shard(group)
    mx.eval(model.parameters())
    held = mx.get_active_memory()
    sums, add_up = [0], mx.distributed.all_sum

    def counted(*given: Any, **named: Any) -> mx.array:
        sums[0] += 1
        return add_up(*given, **named)

    mx.distributed.all_sum = counted  # as its layers call it
    steps = generate_step(mx.zeros((PROMPT,), mx.int32), model, max_tokens=tokens + 6)
    for _ in range(5):
        next(steps)
    before = sums[0]
    next(steps)
    said_sums = sums[0] - before
    began, used = time.perf_counter(), time.process_time()
    for _ in steps:
        pass
    took, cpu = time.perf_counter() - began, time.process_time() - used
    said = {"rate": tokens / took, "cpu_ms": cpu / tokens * 1e3, "held": held, "planned": 0}
    said["sums"] = said_sums
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
