"""What a GPU does: modelkit beside mlx-lm and transformers, on the same random models, in one run.

    python benchmarks/gpu.py [--shapes "llama 1B,experts"] [--formats bf16,q4] [--rounds 2] [--place DIR]
                             [--engines modelkit,mlx-lm,transformers] [--jobs "decode,rows 8,prefill 2048"]

Each engine runs in fresh processes, all in turn, `--rounds` times, each job twice, of which the better one
counts (kernels are compiled at their first use); a figure is the median of rounds. Ours goes through the
whole engine (scheduler, sampler, cache, threads); mlx-lm's is its batch generator; transformers' is generate
in bf16 with its own attention, left out where it is not installed.

jobs, all in tokens per second: decode; rows N, so many at once behind prompts of 32 tokens; prefill N.
first: seconds from the process's start to its first token. Packages are made plain, so that both sides pack
every matrix in 4 bits, in groups of 64. --place keeps models and packages for the next run.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama 1B": {
        **_LLAMA,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "llama 8B": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "experts": {
        **_LLAMA,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    },
}
DECODED = 128
BITS = {"q4": 4, "q8": 8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shapes", default="llama 1B,experts")
    parser.add_argument("--formats", default="bf16,q4")
    parser.add_argument("--engines", default="modelkit,mlx-lm,transformers")
    parser.add_argument("--jobs", default="decode,rows 8,prefill 2048")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "FOLDER", "FORMAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, folder, packed = options.one
        print(json.dumps(ENGINES[engine](Path(folder), packed, options.jobs.split(","))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        _compare(options, options.place or Path(temporary))


def _compare(options: argparse.Namespace, place: Path) -> None:
    from runtime.device import describe

    device = describe()["device"]
    print(f"{device['name']} ({device['kind']})")
    for shape in options.shapes.split(","):
        folder = place / shape.replace(" ", "-").lower()
        if not (folder / "config.json").is_file():
            _make(folder, SHAPES[shape])
        for packed in options.formats.split(","):
            _pack(folder, packed)
            engines = [one for one in options.engines.split(",") if _can(one, packed)]
            found: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
            for _ in range(options.rounds):
                for engine in engines:
                    found[engine].append(_run(engine, folder, packed, options.jobs))
            _print(shape, packed, found)


def _can(engine: str, packed: str) -> bool:
    return engine != "transformers" or (packed == "bf16" and find_spec("transformers") is not None)


def _make(folder: Path, config: dict[str, Any]) -> None:
    from benchmarks.processor_models import write

    write(folder, config)


def _pack(folder: Path, packed: str) -> None:
    import modelkit

    recipe = folder / "Modelfile"
    recipe.write_text("FROM .\n", encoding="utf-8")
    how = {} if packed == "bf16" else {"quantize": packed, "plain": True}
    started = time.perf_counter()
    modelkit.create(recipe, name=packed, home=folder / "home", **how)
    print(f"{folder.name} {packed}: created in {time.perf_counter() - started:.1f} s", flush=True)


def _run(engine: str, folder: Path, packed: str, jobs: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", engine, str(folder), packed, "--jobs", jobs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{engine}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _print(shape: str, packed: str, found: dict[str, list[dict[str, float]]]) -> None:
    ours = found.get("modelkit")
    for engine, rounds in found.items():
        words: list[str] = []
        for job in rounds[0]:
            middle = statistics.median(one[job] for one in rounds)
            mine = statistics.median(one[job] for one in ours) if ours else middle
            ratio = middle / mine if job == "first" else mine / middle
            words.append(f"{job} {middle:.4g}" + ("" if engine == "modelkit" else f" ({ratio:.2f})"))
        print(f"{shape:<10}{packed:<6}{engine:<14}{'   '.join(words)}", flush=True)


def prompt(length: int, seed: int) -> list[int]:
    """Never the same twice, so that nothing is found among earlier prompts."""
    numbers = random.Random(f"{length} {seed}")
    return [numbers.randrange(5, 240) for _ in range(length)]


Generate = Callable[[list[list[int]], int], float]
"""Prompts, and how many tokens each gets -> seconds until all are there."""


def _do(generate: Generate, jobs: list[str]) -> dict[str, float]:
    generate([prompt(8, 0)], 1)
    said = {"first": time.perf_counter() - STARTED}
    for job in jobs:
        kind, _, number = job.partition(" ")
        rates: list[float] = []
        for seed in range(2):
            if kind == "prefill":
                rates.append(int(number) / generate([prompt(int(number), seed)], 1))
                continue
            rows = [prompt(32, 1000 * seed + place) for place in range(int(number or 1))]
            short = generate([row[::-1] for row in rows], 1)
            rates.append(len(rows) * (DECODED - 1) / (generate(rows, DECODED) - short))
        said[job] = max(rates)
    return said


def _modelkit(folder: Path, packed: str, jobs: list[str]) -> dict[str, float]:
    from concurrent.futures import ThreadPoolExecutor

    import modelkit

    options = {"draft_num_predict": 0, "temperature": 0.0}
    with modelkit.load(packed, home=folder / "home", num_ctx=4096, cache_memory=0, **options) as model:

        def generate(prompts: list[list[int]], count: int) -> float:
            started = time.perf_counter()
            with ThreadPoolExecutor(len(prompts)) as pool:
                list(pool.map(lambda ids: model.generate(ids, num_predict=count), prompts))
            return time.perf_counter() - started

        return _do(generate, jobs)


def _mlx_lm(folder: Path, packed: str, jobs: list[str]) -> dict[str, float]:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.utils import load_model

    network, _ = load_model(folder, lazy=True)
    if packed in BITS:
        nn.quantize(network, 64, BITS[packed])
    mx.eval(network.parameters())

    def generate(prompts: list[list[int]], count: int) -> float:
        started = time.perf_counter()
        generator = BatchGenerator(network, max_tokens=count)
        generator.insert(prompts)
        while generator.next_generated():
            pass
        return time.perf_counter() - started

    return _do(generate, jobs)


def _transformers(folder: Path, packed: str, jobs: list[str]) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to("cuda")

    @torch.inference_mode()
    def generate(prompts: list[list[int]], count: int) -> float:
        started = time.perf_counter()
        ids = torch.tensor(prompts, device="cuda")
        network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        return time.perf_counter() - started

    return _do(generate, jobs)


ENGINES = {"modelkit": _modelkit, "mlx-lm": _mlx_lm, "transformers": _transformers}


if __name__ == "__main__":
    main()
