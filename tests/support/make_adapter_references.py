"""Compute the answers of tests/data/adapters with PEFT.

    python -m tests.support.make_adapter_references [CASE ...]

Run by hand, where torch and peft are installed. Each case is an adapter on a tiny network of
tests/data/references. Its numbers come from `checkpoints.random_tensor`, so what is stored is PEFT's own
adapter_config.json, the keys and shapes of the file that PEFT wrote, and some columns of the logits.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from safetensors import safe_open

from tests.support.adapter_references import FOLDER, adapter_tensor
from tests.support.make_references import _reference_model, entries
from tests.support.parity import Reference

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_lora": ("llama", {"r": 4, "lora_alpha": 6, "target_modules": [*ATTENTION, "up_proj", "lm_head"]}),
    "llama_patterns": (
        "llama",
        {
            "r": 3,
            "lora_alpha": 4,
            "target_modules": ["q_proj", "down_proj", "gate_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 5, "^model.layers.2.mlp.down_proj": 2},
            "alpha_pattern": {"down_proj": 7.5},
        },
    ),
    "llama_rslora": ("llama", {"r": 4, "use_rslora": True, "target_modules": ["v_proj", "embed_tokens"]}),
    "llama_dora": ("llama", {"r": 2, "use_dora": True, "target_modules": ["q_proj", "down_proj", "lm_head"]}),
    "llama_saved": (
        "llama_biases_tied",
        {"r": 2, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["norm"], "bias": "all"},
    ),
    "llama_lora_bias": (
        "llama_biases_tied",
        {"r": 2, "target_modules": ["q_proj", "o_proj"], "lora_bias": True},
    ),
    "llama_untied_saved": (
        "llama",
        {"r": 2, "target_modules": ["k_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
    ),
    "llama_tied_table": ("llama_biases_tied", {"r": 2, "target_modules": ["embed_tokens", "q_proj"]}),
    "llama_tied_parameter": (
        "llama_biases_tied",
        {
            "r": 2,
            "target_modules": ["q_proj"],
            "target_parameters": ["embed_tokens.weight", "up_proj.weight"],
        },
    ),
    "llama_tied_tokens": (
        "llama_biases_tied",
        {"r": 2, "target_modules": ["q_proj"], "trainable_token_indices": [3, 17, 90, 5, 60, 61]},
    ),
    "llama_tokens_apart": (
        "llama_biases_tied",
        {
            "r": 2,
            "target_modules": ["q_proj"],
            "trainable_token_indices": {"embed_tokens": [3, 81, 50], "lm_head": [6, 27, 81, 98]},
        },
    ),
    "gpt2_tokens_of_the_head": (
        "gpt2",
        {
            "r": 2,
            "fan_in_fan_out": True,
            "target_modules": ["c_attn"],
            "trainable_token_indices": {"lm_head": [16, 110]},
        },
    ),
    "gpt2_ensured": (
        "gpt2",
        {
            "r": 2,
            "fan_in_fan_out": True,
            "target_modules": ["wte", "c_fc"],
            "ensure_weight_tying": True,
        },
    ),
    "qwen3_moe_parameters": (
        "qwen3_moe",
        {
            "r": 2,
            "target_modules": ["q_proj"],
            "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"],
        },
    ),
    "gpt_oss_parameters": (
        "gpt_oss",
        {
            "r": 2,
            "target_modules": ["o_proj"],
            "target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"],
        },
    ),
    "gpt_oss_saved_experts": (
        "gpt_oss",
        {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["experts"]},
    ),
    "gpt_oss_router": (
        "gpt_oss",
        {
            "r": 2,
            "target_modules": ["q_proj"],
            "target_parameters": ["mlp.router.weight"],
            "rank_pattern": {"router.weight": 3},
            "alpha_pattern": {"mlp.router": 99, "mlp.router.weight": 5},
        },
    ),
    "glm4_moe_layers": (
        "glm4_moe",
        {
            "r": 3,
            "use_rslora": True,
            "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"],
            "rank_pattern": {"down_proj": 2},
        },
    ),
    "qwen3_vl_towers": ("qwen3_vl", {"r": 2, "target_modules": "all-linear"}),
    "mixtral_down": (
        "mixtral",
        {"r": 3, "target_modules": ["v_proj"], "target_parameters": ["mlp.experts.down_proj"]},
    ),
    "gpt2_dora": (
        "gpt2",
        {"r": 3, "fan_in_fan_out": True, "use_dora": True, "target_modules": ["c_attn", "c_proj", "c_fc"]},
    ),
    "phi3_fused": ("phi3_window", {"r": 3, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]}),
    "qwen3_next_hybrid": (
        "qwen3_next",
        {
            "r": 2,
            "target_modules": ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "shared_expert_gate"],
        },
    ),
    "deepseek_v3_latent": (
        "deepseek_v3",
        {"r": 2, "target_modules": ["kv_b_proj", "kv_a_proj_with_mqa", "q_b_proj", "o_proj"]},
    ),
    "lfm3_gates": ("lfm3", {"r": 2, "target_modules": ["g_proj", "in_proj", "o_proj", "w1", "w2"]}),
    "minimax_lightning": ("minimax", {"r": 2, "target_modules": ["qkv_proj", "output_gate", "out_proj"]}),
    "gptj_table": ("gptj", {"r": 3, "target_modules": ["v_proj", "fc_in", "wte", "lm_head"]}),
    "codegen_fused": ("codegen", {"r": 2, "target_modules": ["qkv_proj", "out_proj"]}),
    "falcon_grouped": ("falcon_40b", {"r": 2, "target_modules": ["query_key_value", "dense"]}),
    "olmo_hybrid_joined": ("olmo_hybrid", {"r": 2, "target_modules": ["q_proj", "v_proj"]}),
    "llama_dora_table": (
        "llama",
        {"r": 2, "use_dora": True, "target_modules": ["embed_tokens", "v_proj"]},
    ),
    "zamba_shared": ("zamba", {"r": 2, "target_modules": ["q_proj", "o_proj", "gate_proj", "in_proj"]}),
    "zamba2_shared": (
        "zamba2",
        {"r": 2, "target_modules": ["q_proj", "o_proj", "gate_up_proj", "in_proj"]},
    ),
    "dbrx_dora": ("dbrx", {"r": 2, "use_dora": True, "target_modules": ["Wqkv", "out_proj", "lm_head"]}),
    "encoders/bert_lora": (
        "bert",
        {"r": 3, "lora_alpha": 4, "target_modules": ["query", "value", "dense", "word_embeddings"]},
    ),
    "encoders/distilbert_dora": (
        "distilbert",
        {"r": 2, "use_dora": True, "target_modules": ["q_lin", "lin2"]},
    ),
    "encoders/modernbert_saved": (
        "modernbert",
        {"r": 2, "use_rslora": True, "target_modules": "all-linear", "modules_to_save": ["tok_embeddings"]},
    ),
    "encoders/embedding_gemma_lora": ("embedding_gemma", {"r": 2, "target_modules": ["k_proj", "up_proj"]}),
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = entries()
    for name in names or list(CASES):
        base, wanted = CASES[name]
        (FOLDER / name).parent.mkdir(exist_ok=True)
        reference, model = Reference.called(base), _reference_model(*table[base])
        ids, columns = reference.answers["ids"], reference.answers["columns"][::3]
        record, logits, std = _run(model, wanted, ids)
        (FOLDER / f"{name}.json").write_text(json.dumps({"base": base, **record}) + "\n", encoding="utf-8")
        np.savez_compressed(FOLDER / f"{name}.npz", columns=columns, logits=logits[:, columns], std=std)
        print(name, f"moved by {std:.3g}", flush=True)


def _run(
    model: Any, wanted: dict[str, Any], ids: np.ndarray
) -> tuple[dict[str, Any], np.ndarray, np.float32]:
    given = torch.from_numpy(ids.astype(np.int64))[None]
    with torch.no_grad():
        plain = model(given).logits[0].numpy()
    adapted = get_peft_model(model, LoraConfig(**wanted)).eval()
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        config = json.loads(Path(folder, "adapter_config.json").read_text(encoding="utf-8"))
        with safe_open(Path(folder, "adapter_model.safetensors"), "np") as opened:
            shapes = {key: list(opened.get_slice(key).get_shape()) for key in list(opened.keys())}
    state = {key: torch.from_numpy(adapter_tensor(key, tuple(shape))) for key, shape in shapes.items()}
    loaded = set_peft_model_state_dict(adapted, state)
    assert not loaded.unexpected_keys, loaded.unexpected_keys
    with torch.no_grad():
        logits = adapted(given).logits[0].numpy()
    assert np.abs(logits - plain).max() > 0.05 * logits.std()
    config = {key: value for key, value in config.items() if key not in ("auto_mapping",)}
    return {"config": config, "tensors": shapes}, logits, np.float32(logits.std())


if __name__ == "__main__":
    main(sys.argv[1:])
