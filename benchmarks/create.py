"""Time and memory of a conversion: python -m benchmarks.create [--peer PYTHON] [--format q4] [--gigabytes 1]

A llama with random bfloat16 weights is written into a temporary folder. Each round converts it in fresh
processes, ours and, with `--peer` (an interpreter that has mlx-lm), `mlx_lm.convert`, one after the other;
printed are medians over rounds of time and peak memory of the whole process. Ours hashes sources and
output and syncs the package to disk; the peer does neither. What was written before is on the disk when a
round begins. Needs four times the model in free disk.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 5
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
PEER_MODES = {"q4": ("affine", 4), "q8": ("affine", 8), "mxfp4": ("mxfp4", 4), "mxfp8": ("mxfp8", 8)}


def write_model(folder: Path, size_bytes: float) -> None:
    """A model of about that size, in shards of one layer each."""
    import mlx.core as mx

    hidden, inner, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    narrow = hidden // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    per_layer = 2 * hidden * (2 * hidden + 2 * narrow + 3 * inner)
    layers = max(int((size_bytes - 4 * hidden * vocab) / per_layer), 1)
    ends = {"model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "model.norm": (hidden,)}
    shards: list[dict[str, tuple[int, ...]]] = [{f"{name}.weight": shape for name, shape in ends.items()}]
    for layer in range(layers):
        at = f"model.layers.{layer}"
        rows = {"q": hidden, "k": narrow, "v": narrow, "o": hidden}
        shapes: dict[str, tuple[int, ...]] = {
            f"{at}.{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")
        }
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shards.append(shapes | {f"{at}.mlp.down_proj.weight": (hidden, inner)})
    placed: dict[str, str] = {}
    for number, shapes in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        arrays = {key: (mx.random.normal(shape) * 0.02).astype(mx.bfloat16) for key, shape in shapes.items()}
        mx.save_safetensors(str(folder / name), arrays, metadata={"format": "pt"})
        placed |= dict.fromkeys(arrays, name)
    total = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    _write_tokenizer(folder)


def _write_tokenizer(folder: Path) -> None:
    vocab = {"<unk>": 0, **{f"w{number}": number for number in range(1, CONFIG["vocab_size"])}}
    document = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"})
    )


def measure(argv: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """(seconds on the wall, seconds of all cores together, megabytes at the peak) of one process."""
    os.sync()
    begin = time.perf_counter()
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[0]} failed:\n{said.decode(errors='replace')[-2000:]}")
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, kilobytes here
    wall_s = time.perf_counter() - begin
    return wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale / 1e6


def create(folder: Path, home: Path, wanted: str) -> None:
    """What a `modelkit create` does, in this process."""
    from modelkit.modelfile import Modelfile
    from modelkit.pack.build import build
    from modelkit.store.name import Name
    from modelkit.store.store import Store

    recipe = Modelfile.parse("FROM .").recipe(folder)
    build(recipe, Name.parse("benchmark"), Store(home), quantize=wanted)


def rounds(folder: Path, wanted: str, peer: str | None) -> dict[str, list[tuple[float, float, float]]]:
    source = folder / "source"
    found: dict[str, list[tuple[float, float, float]]] = {"modelkit": []} | (
        {"mlx_lm.convert": []} if peer else {}
    )
    for _ in range(ROUNDS):
        home, output = folder / "home", folder / "peer"
        ours = [sys.executable, "-m", "benchmarks.create", "--child", str(source), str(home), wanted]
        found["modelkit"].append(measure(ours, dict(os.environ)))
        shutil.rmtree(home)
        if peer:
            mode, bits = PEER_MODES[wanted]
            argv = [peer, "-m", "mlx_lm", "convert", "--hf-path", str(source), "--mlx-path", str(output)]
            argv += ["-q", "--q-mode", mode, "--q-bits", str(bits)]
            found["mlx_lm.convert"].append(measure(argv, {**os.environ, "HF_HUB_OFFLINE": "1"}))
            shutil.rmtree(output)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="a Python interpreter that has mlx-lm")
    parser.add_argument("--format", default="q4", choices=sorted(PEER_MODES))
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        create(Path(options.child[0]), Path(options.child[1]), options.child[2])
        return
    if options.write:
        write_model(options.write, options.gigabytes * 1e9)
        return
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        source.mkdir()
        # In a process of its own: Linux lets a child's peak memory begin at its parent's.
        argv = [sys.executable, "-m", "benchmarks.create", "--write", str(source)]
        subprocess.run([*argv, "--gigabytes", str(options.gigabytes)], check=True)
        total = sum(path.stat().st_size for path in source.glob("*.safetensors"))
        print(f"{total / 1e9:.2f} GB of bfloat16 to {options.format}, medians of {ROUNDS} rounds")
        for name, runs in rounds(Path(temporary), options.format, options.peer).items():
            wall_s, cpu_s, megabytes = (statistics.median(run[at] for run in runs) for at in range(3))
            print(f"{name:16}{wall_s:8.2f} s wall{cpu_s:8.2f} s of cores{megabytes:8.0f} MB")


if __name__ == "__main__":
    main()
