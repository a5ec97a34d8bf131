"""Matrix products under MLX's own BLAS and under the bound one: python -m benchmarks.blas

Each round runs both in fresh processes, one after the other; printed are medians over rounds. Decoding is the
one-row product (memory speed is the limit), prefill the square one (arithmetic is).
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

ROUNDS = 3


def seconds(product: "Callable[[], object]", repeats: int) -> float:
    import mlx.core as mx

    def once() -> float:
        begin = time.perf_counter()
        mx.eval(product())
        return time.perf_counter() - begin

    once()
    return statistics.median(once() for _ in range(repeats))


def measure(enabled: bool) -> dict[str, float]:
    """Milliseconds by case. Four weight matrices take turns, so that no cache holds them."""
    import mlx.core as mx

    from runtime.cpu import bind_blas

    begin = time.perf_counter()
    report = bind_blas(enabled=enabled)
    times = {"bind": time.perf_counter() - begin}
    print(report, file=sys.stderr)
    weights = [mx.random.normal((4096, 4096)) for _ in range(4)]
    row, square = mx.random.normal((1, 4096)), mx.random.normal((2048, 2048))
    mx.eval(weights, row, square)
    for rows in (1, 2, 8):
        x = mx.random.normal((rows, 4096))
        times[f"{rows}x4096 @ 4096x4096.T"] = seconds(lambda x=x: [x @ w.T for w in weights], 7) / len(
            weights
        )
    times["1x4096 @ 4096x4096"] = seconds(lambda: [row @ w for w in weights], 7) / len(weights)
    times["2048^3"] = seconds(lambda: square @ square, 5 if enabled else 1)
    return {case: 1000 * value for case, value in times.items()}


def main() -> None:
    runs: dict[str, list[dict[str, float]]] = {"stock": [], "bound": []}
    for _ in range(ROUNDS):
        for mode, found in runs.items():
            argv = [sys.executable, "-m", "benchmarks.blas", mode]
            found.append(json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout))
    print(f"{'case':28}{'stock ms':>10}{'bound ms':>10}{'ratio':>8}")
    for case in runs["stock"][0]:
        stock, bound = (statistics.median(run[case] for run in runs[mode]) for mode in ("stock", "bound"))
        print(f"{case:28}{stock:10.2f}{bound:10.2f}{stock / bound:8.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1] == "bound")))
    else:
        main()
