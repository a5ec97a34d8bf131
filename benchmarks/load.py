"""From a process's start to the first logits, against mlx-lm, on the same files: bf16 and 4-bit.

    python benchmarks/load.py --peer PYTHON [--rounds 5] [--layers 16]

PYTHON is an interpreter with mlx-lm (and the same MLX). The checkpoint is a random llama of 300 MB in bf16.
Every figure is of a fresh process, engines in turn, medians of rounds; the files are in the page cache, as
they have just been written. Tokenizers are left out on both sides. "import" is what Python loads, "load" ends
with weights in place, "logits" is a forward pass over 8 tokens. "peak" is the most memory the process ever
held. Ours maps the file, as it does a stored package's; without kernels (MODELKIT_KERNELS=off) it reads it,
and a processor then keeps weights in float32.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

IDS = [(7 * i * i + 3) % 900 + 5 for i in range(8)]
CONFIG = {
    "hidden_size": 768,
    "intermediate_size": 2560,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}

OURS = """
import json, resource, sys, time
started = time.perf_counter()
sys.path.insert(0, {root!r})
import mlx.core as mx
from pathlib import Path
from runtime import cpu, device
from runtime.cache.build import build_memory
from runtime.loading.load import begin_load
from runtime.step import Inputs, Step
imported = time.perf_counter()
folder, ids = Path({folder!r}), {ids}
cpu.bind_blas()
config = json.loads((folder / "config.json").read_text())
on = device.device()
model = begin_load(config, [folder / "model.safetensors"], on=on, fixed=True).read(on)
loaded = time.perf_counter()
step = Step((0,), (len(ids),), inputs=Inputs(mx.array([ids])))
memory = build_memory(model.described.layout, dtype=model.dtype)
memory.prepare(step)
logits = model.network.logits(model.network(step, memory))
"""

THEIRS = """
import json, resource, time
started = time.perf_counter()
import mlx.core as mx
from mlx_lm.utils import load_model
from pathlib import Path
imported = time.perf_counter()
ids = {ids}
model, _ = load_model(Path({folder!r}))
loaded = time.perf_counter()
logits = model(mx.array([ids]))
"""

REPORT = """
best = int(mx.argmax(logits[0, -1]).item())
done = time.perf_counter()
print(json.dumps({"import": imported - started, "load": loaded - imported, "logits": done - loaded,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "best": best}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="an interpreter that has mlx-lm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        plain = _plain(Path(place) / "bf16", options.layers)
        for folder in (plain, _quantized(plain, Path(place) / "q4")):
            given = {"root": str(ROOT), "folder": str(folder), "ids": IDS}
            engines = {
                "modelkit": (sys.executable, OURS.format(**given) + REPORT),
                "mlx-lm": (options.peer, THEIRS.format(**given) + REPORT),
            }
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
            for _ in range(options.rounds):
                for name, (python, code) in engines.items():
                    runs[name].append(_run(python, code))
            _print(folder, runs)


def _plain(folder: Path, layers: int) -> Path:
    """A checkpoint in bf16."""
    import mlx.core as mx

    from tests.support.tiny import CONFIG as TINY
    from tests.support.tiny import llama_shapes

    config = {**TINY, **CONFIG, "num_hidden_layers": layers}
    weights = {
        name: (mx.random.normal(shape) * 0.02 + (len(shape) == 1)).astype(mx.bfloat16)
        for name, shape in llama_shapes(config).items()
    }
    return _write(folder, config, weights)


def _quantized(plain: Path, folder: Path) -> Path:
    """The same in 4 bits, as MLX stores them."""
    import mlx.core as mx

    config = json.loads((plain / "config.json").read_text(encoding="utf-8"))
    stored = mx.load(str(plain / "model.safetensors"))
    assert isinstance(stored, dict)
    weights: dict[str, Any] = {}
    for name, array in stored.items():
        if array.ndim == 1:
            weights[name] = array
            continue
        stem = name.removesuffix(".weight")
        weights[name], weights[f"{stem}.scales"], weights[f"{stem}.biases"] = mx.quantize(array, 64, 4)
    return _write(folder, {**config, "quantization": {"group_size": 64, "bits": 4}}, weights)


def _write(folder: Path, config: dict[str, Any], weights: dict[str, Any]) -> Path:
    import mlx.core as mx

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _run(python: str, code: str) -> dict[str, float]:
    began = time.perf_counter()
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return {"total": time.perf_counter() - began, **json.loads(done.stdout.splitlines()[-1])}


def _print(folder: Path, runs: dict[str, list[dict[str, float]]]) -> None:
    size = (folder / "model.safetensors").stat().st_size / 1e6
    print(f"{folder.name}, {size:.0f} MB")
    print(f"  {'engine':<10}{'import s':>10}{'load s':>10}{'logits s':>10}{'total s':>10}{'peak MB':>10}")
    for name, rounds in runs.items():
        parts = [
            statistics.median(run[key] for run in rounds) for key in ("import", "load", "logits", "total")
        ]
        peak = max(run["peak"] for run in rounds)
        print(f"  {name:<10}" + "".join(f"{part:>10.3f}" for part in parts) + f"{peak:>10.0f}")
    same = {run["best"] for rounds in runs.values() for run in rounds}
    print("  same likeliest token:", len(same) == 1)


if __name__ == "__main__":
    main()
