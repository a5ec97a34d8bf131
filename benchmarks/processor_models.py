"""Random checkpoints of the shapes that are measured on a processor, and their packages and GGUF files.

Weights are bf16 and mean nothing; all engines get the same. Packages are made plain (`--plain`: every matrix
alike), so that both sides pack everything in 4.5 or 8.5 bits: ours affine in groups of 64, llama.cpp's Q4_0
and Q8_0 in groups of 32, made by llama.cpp itself from the exported file. In q4_k_m both read the very same
file of llama.cpp's, ours imported.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.tiny import write_tokenizer

ROOT = Path(__file__).resolve().parents[1]

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama 125M": {
        **_LLAMA,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
    "llama 0.5B": {
        **_LLAMA,
        "hidden_size": 1536,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
    },
    "sliding (gemma3)": {
        **_LLAMA,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    "experts (qwen3_moe)": {
        **_LLAMA,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 512,
        "intermediate_size": 1536,
        "moe_intermediate_size": 256,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
    },
    "hybrid (qwen3_5)": {
        **_LLAMA,
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "linear_num_key_heads": 6,
        "linear_num_value_heads": 12,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "rms_norm_eps": 1e-6,
    },
    "latent (deepseek_v2)": {
        **_LLAMA,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "q_lora_rank": 384,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "moe_intermediate_size": 256,
        "n_routed_experts": 32,
        "n_shared_experts": 2,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "topk_method": "greedy",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
    "streams (gemma3n)": {  # 4 streams, 256, 10 layers and 20 are what llama.cpp takes for granted
        **_LLAMA,
        "architectures": ["Gemma3nForCausalLM"],
        "model_type": "gemma3n_text",
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 25,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 5,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "final_logit_softcapping": 30.0,
        "vocab_size_per_layer_input": 32000,
        "hidden_size_per_layer_input": 256,
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "altup_correct_scale": True,
        "num_kv_shared_layers": 5,
        "laurel_rank": 64,
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 15,
    },
    "tables (gemma4)": {
        **_LLAMA,
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 15,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 256,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 3,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1000000.0,
                "partial_rotary_factor": 0.25,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "final_logit_softcapping": 30.0,
        "vocab_size_per_layer_input": 32000,
        "hidden_size_per_layer_input": 64,
        "num_kv_shared_layers": 5,
        "enable_moe_block": False,
    },
    "convolutions (lfm2)": {
        **_LLAMA,
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 14,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_auto_adjust_ff_dim": False,
        "layer_types": (["conv", "conv", "full_attention"] * 5)[:14],
        "tie_word_embeddings": True,
    },
    "state spaces (granitemoehybrid)": {
        **_LLAMA,
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "hidden_size": 768,
        "intermediate_size": 2048,
        "shared_intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "position_embedding_type": "nope",
        "layer_types": (["mamba"] * 5 + ["attention"]) * 2,
        "embedding_multiplier": 12.0,
        "logits_scaling": 3.0,
        "residual_multiplier": 0.246,
        "attention_multiplier": 0.015625,
        "mamba_n_heads": 24,
        "mamba_n_groups": 1,
        "mamba_d_state": 128,
        "mamba_d_head": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 256,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "tie_word_embeddings": True,
    },
    "experts (gpt_oss)": {
        **_LLAMA,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "hidden_size": 768,
        "intermediate_size": 768,
        "num_hidden_layers": 8,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 4,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "attention_bias": True,
        "swiglu_limit": 7.0,
    },
}
FORMATS = {"q4": "Q4_0", "q8": "Q8_0", "q4_k_m": "Q4_K_M", "bf16": "bf16"}
IMPORTED = ("q4_k_m",)
"""Formats in which our package is llama.cpp's file."""

_QUANTIZE = """
import llama_cpp, sys
wanted = llama_cpp.llama_model_quantize_default_params()
wanted.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + sys.argv[3])
wanted.pure, wanted.nthread = len(sys.argv) < 5, 2
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), wanted))
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One model in one format, as both sides have it."""

    shape: str
    format: str
    package: str
    """Its name in the store."""
    gguf: Path | None
    """None where llama.cpp's side is not measured, or cannot be."""
    packed_bytes: int
    """Of the package's weights."""


def make(shape: str, packed: str, place: Path, llama: str | None) -> Pair:
    """In the folder `place`, where the store is too. llama: an interpreter with llama-cpp-python."""
    import modelkit

    folder = place / shape.split()[-1].strip("()")
    if not (folder / "config.json").is_file():
        write(folder, SHAPES[shape])
    recipe = folder / "Modelfile"
    recipe.write_text("FROM .\n", encoding="utf-8")
    name = f"{folder.name.lower().replace('.', '-')}-{packed}"
    home = place / "home"
    gguf = None if llama is None else _gguf(folder, packed, home, llama)
    if packed == "bf16":
        modelkit.create(recipe, name=name, home=home)
    elif packed not in IMPORTED:
        modelkit.create(recipe, name=name, quantize=packed, plain=True, home=home)
    elif gguf is not None:
        recipe.write_text(f"FROM {gguf.name}\n", encoding="utf-8")
        modelkit.create(recipe, name=name, home=home)
    else:
        sys.exit(f"{packed} is made by llama.cpp: give --llama an interpreter with llama-cpp-python")
    return Pair(shape, packed, name, gguf, _weight_bytes(home, name))


def of_file(gguf: Path, place: Path, llama: str | None) -> Pair:
    """The model that is in this file, in the formats that it has, on both sides."""
    import modelkit

    recipe, name = place / "Modelfile", re.sub(r"[^a-z0-9]+", "-", gguf.stem.lower())
    recipe.write_text(f'FROM "{gguf.resolve()}"\n', encoding="utf-8")
    modelkit.create(recipe, name=name, home=place / "home")
    size = _weight_bytes(place / "home", name)
    return Pair(gguf.stem, "as it is", name, None if llama is None else gguf.resolve(), size)


def _weight_bytes(home: Path, name: str) -> int:
    from modelkit.store.store import Store

    files = Store(home).resolve(name).files
    return sum(path.stat().st_size for inside, path in files.items() if inside.endswith(".safetensors"))


def write(folder: Path, config: dict[str, Any]) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from runtime.models.registry.described import describe

    described = describe(config)
    network = described.family.build(described.config)
    mx.random.seed(1)
    weights = {
        name: (mx.random.normal(array.shape) * 0.02 + (array.ndim == 1)).astype(mx.bfloat16)
        for name, array in tree_flatten(network.parameters())
    }
    for name in [name for name in weights if name.endswith(".k_b_proj.weight")]:  # files have both as one
        heads = [weights.pop(name), weights.pop(name.replace(".k_b_", ".v_b_"))]
        weights[name.replace(".k_b_", ".kv_b_")] = mx.concatenate(heads, axis=1).flatten(0, 1)
    if (
        config["model_type"] == "gemma3n_text"
    ):  # llama.cpp wants keys and values in layers that have no use for them
        kinds = ("k_proj.weight", "v_proj.weight", "k_norm.weight")
        for layer in range(config["num_hidden_layers"]):
            for kind in kinds:
                name = f"model.layers.{layer}.self_attn.{kind}"
                weights.setdefault(name, weights[name.replace(f".{layer}.", ".0.")])
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    write_tokenizer(folder, tokens=250)  # no token ends an answer
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _gguf(folder: Path, packed: str, home: Path, llama: str) -> Path | None:
    """llama.cpp's own quantization of the exported checkpoint; None where it cannot be had."""
    import modelkit

    type_, mixed = FORMATS[packed], ["mixed"] if packed in IMPORTED else []
    wide, target = folder / "bf16.gguf", folder / f"{type_}.gguf"
    if target.is_file():
        return target
    if not wide.is_file():
        modelkit.create(folder / "Modelfile", name="wide", home=home)
        _command(home, "export", "wide", str(wide))
    if target == wide:
        return wide
    done = subprocess.run(
        [llama, "-c", _QUANTIZE, str(wide), str(target), type_, *mixed], capture_output=True, check=False
    )
    return target if done.returncode == 0 else None


def _command(home: Path, *words: str) -> None:
    environment = {**os.environ, "MODELKIT_HOME": str(home), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "modelkit", *words], env=environment, check=True)
