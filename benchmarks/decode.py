"""Plain and speculative decoding against mlx-lm, on random llamas, in paired fresh processes.

    python benchmarks/decode.py --peer PYTHON [--size tiny|small] [--rounds 5]

PYTHON is an interpreter with mlx-lm (and the same MLX). Each round runs every engine once, in turn; medians
of rounds are printed, with the ratio of medians. All generate the same number of tokens greedily from the
same ids; the first tokens of the exact engines are compared. "tiny" is all overhead and shows what Python
costs per token; "small" (125 M parameters) is mostly arithmetic.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SIZES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "vocab_size": 1000},
    "small": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "vocab_size": 32000},
}
HEADS = {"tiny": (2, 1, 32), "small": (12, 4, 64)}
PROMPT, WARM = 32, 16

OURS = """
import json, sys, time
sys.path.insert(0, {root!r})
import mlx.core as mx
from pathlib import Path
from runtime import cpu
from runtime.device import device
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.loading.load import load_model
from runtime.sampling.params import SamplingParams
folder, tokens, ids, bind = Path({folder!r}), {tokens}, {ids}, {bind}
def load():
    if bind:
        cpu.bind_blas()
    config = json.loads((folder / "config.json").read_text())
    return load_model(config, [folder / "model.safetensors"], on=device())
engine = Engine(load, Options(context_length=4096))
def run(count):
    return [t for d in engine.submit(Request(tuple(ids), count, SamplingParams(temperature=0))) for t in
    d.ids]
run({warm})
start = time.perf_counter()
out = run(tokens)
print(json.dumps({{"seconds": time.perf_counter() - start, "ids": out[:8]}}))
engine.close()
"""

THEIRS = """
import json, time
import mlx.core as mx
from mlx_lm.utils import load_model
from mlx_lm.generate import generate_step
from pathlib import Path
model, _ = load_model(Path({folder!r}))
ids, tokens = {ids}, {tokens}
def run(count):
    return [int(t) for t, _ in generate_step(mx.array(ids), model, max_tokens=count)]
run({warm})
start = time.perf_counter()
out = run(tokens)
print(json.dumps({{"seconds": time.perf_counter() - start, "ids": out[:8]}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="an interpreter that has mlx-lm")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = _model(Path(place), options.size)
        ids = [(7 * i * i + 3) % 900 + 5 for i in range(PROMPT)]
        given = {"root": str(ROOT), "folder": str(folder), "tokens": options.tokens, "ids": ids, "warm": WARM}
        engines = {
            "modelkit": (sys.executable, OURS.format(**given, bind=True)),
            "modelkit, reference BLAS": (
                sys.executable,
                "import os; os.environ['MODELKIT_KERNELS'] = 'off'\n" + OURS.format(**given, bind=False),
            ),
            "mlx-lm": (options.peer, THEIRS.format(**given)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        first: dict[str, list[int]] = {}
        for _ in range(options.rounds):
            for name, (python, code) in engines.items():
                answer = _run(python, code)
                seconds[name].append(answer["seconds"])
                first[name] = answer["ids"]
    _print(seconds, options.tokens)
    print("same first tokens:", len({tuple(ids) for ids in first.values()}) == 1)


def _model(folder: Path, size: str) -> Path:
    from tests.support.tiny import write_model

    heads, kv_heads, head_dim = HEADS[size]
    return write_model(
        folder / "model",
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=4096,
        **SIZES[size],
    )


def _run(python: str, code: str) -> dict[str, object]:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def _print(seconds: dict[str, list[float]], tokens: int) -> None:
    base = statistics.median(seconds["mlx-lm"])
    print(f"{'engine':<28}{'tokens/s':>10}{'us/token':>10}{'of mlx-lm':>11}   min-max us/token")
    for name, values in seconds.items():
        middle = statistics.median(values)
        low, high = 1e6 * min(values) / tokens, 1e6 * max(values) / tokens
        print(
            f"{name:<28}{tokens / middle:>10.1f}{1e6 * middle / tokens:>10.0f}{base / middle:>10.2f}x"
            f"   {low:.0f}-{high:.0f}"
        )


if __name__ == "__main__":
    main()
