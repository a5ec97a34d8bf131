"""One process of mlx-lm for benchmarks/ranks.py: python ranks_peer.py FOLDER TOKENS

Its own tensor parallelism (`shard`) and its own loop, each rank drawing the same token. Prints what
benchmarks/ranks.py prints for ours.
"""

import json
import sys
import time
from pathlib import Path

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
    steps = generate_step(mx.zeros((PROMPT,), mx.int32), model, max_tokens=tokens + 5)
    for _ in range(5):
        next(steps)
    began, used = time.perf_counter(), time.process_time()
    for _ in steps:
        pass
    took, cpu = time.perf_counter() - began, time.process_time() - used
    said = {"rate": tokens / took, "cpu_ms": cpu / tokens * 1e3, "held": held, "planned": 0}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
