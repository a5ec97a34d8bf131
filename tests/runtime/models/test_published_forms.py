"""Attention models as the hub and MLX's converter publish them: other tensor names, other config fields.

Each form must give the logits of the reference, whose names and fields are those of transformers 5.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.loading.load import load_model
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, bar, full_logits
from tests.support.published_states import (
    State,
    axk2_by_skt,
    dbrx_by_mlx,
    dbrx_in_stacks,
    dory_published,
    each_alone,
    ernie_by_baidu,
    ernie_vl_by_baidu,
    exaone_by_lg,
    filters_of_torch,
    glm_by_zai,
    gpt2_by_mlx,
    gpt2_of_old,
    hunyuan_by_tencent,
    hunyuan_joined,
    hy_v4_by_tencent,
    in_eight_cuts,
    inkling2_published,
    inkling_published,
    large4_by_mistral,
    llama4_by_mlx,
    longcat_by_meituan,
    mimo_in_shares,
    minimax_by_minimax,
    minimax_by_mlx,
    minimax_m3_by_minimax,
    minimax_with_rates,
    mlx_experts,
    molmo_by_ai2,
    neox_by_mlx,
    old_wrapper,
    one_by_one,
    padded_head,
    phi4_with_adapters,
    qwen4_in_shards,
    renamed,
    rwkv_by_mlx,
    rwkv_of_old,
    same,
    sarvam_by_sarvam,
    step_by_mlx,
    v4_by_deepseek,
    with_a_head,
    with_slopes,
    with_triangle,
    with_unused_keys,
    with_zero_biases,
)

Config = dict[str, Any]


def without(*names: str, **more: Any) -> Callable[[Config], Config]:
    return lambda config: {key: value for key, value in config.items() if key not in names} | more


def falcon_of_old(kind: str) -> Callable[[Config], Config]:
    """As its own code wrote it, which has no fields for sizes of MLPs and ways of grouping."""
    names = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "num_kv_heads": "n_head_kv"}
    left_out = ("new_decoder_architecture", "num_ln_in_parallel_attn", "architectures", "model_type")

    def respell(config: Config) -> Config:
        fields = {names.get(key, key): value for key, value in config.items() if key not in left_out}
        return {**fields, "architectures": ["RWForCausalLM"], "model_type": kind}

    return respell


def gemma3_of_old(config: Config) -> Config:
    ropes = config["rope_parameters"]
    old = without("rope_parameters", "layer_types")(config)
    full = dict(ropes["full_attention"])
    return {
        **old,
        "rope_theta": full.pop("rope_theta"),
        "rope_local_base_freq": ropes["sliding_attention"]["rope_theta"],
        "rope_scaling": full,
        "sliding_window_pattern": 3,
    }


def olmo3_of_old(config: Config) -> Config:
    full = dict(config["rope_parameters"]["full_attention"])
    return without("rope_parameters", rope_theta=full.pop("rope_theta"), rope_scaling=full)(config)


def phi3_of_old(config: Config) -> Config:
    rope = {key: value for key, value in config["rope_parameters"].items() if key.endswith("factor")}
    rope.pop("partial_rotary_factor", None)
    rope = {key: value for key, value in rope.items() if value is not None}
    return without("rope_parameters", rope_theta=10000.0, rope_scaling={**rope, "type": "su"})(config)


def neox_of_old(config: Config) -> Config:
    rope = config["rope_parameters"]
    share, base = rope["partial_rotary_factor"], rope["rope_theta"]
    return without("rope_parameters", rotary_pct=share, rotary_emb_base=base)(config)


def exaone_moe_of_old(config: Config) -> Config:
    rope = dict(config["rope_parameters"])
    kinds = config["mlp_layer_types"]
    return without(
        "rope_parameters",
        "mlp_layer_types",
        "layer_types",
        sliding_window_pattern="LLLG",
        is_moe_layer=[kind == "sparse" for kind in kinds],
        first_k_dense_replace=0,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        rope_theta=rope.pop("rope_theta"),
        rope_scaling={**rope, "type": rope.pop("rope_type")},
    )(config)


def minimax_of_old(config: Config) -> Config:
    rope = config["rope_parameters"]
    layers = config["num_hidden_layers"]
    return without(
        "rope_parameters",
        rope_theta=rope["rope_theta"],
        rotary_dim=int(config["head_dim"] * rope.get("partial_rotary_factor", 1.0)),
        attn_type_list=[1] * layers,
        scoring_func="sigmoid",
        qk_norm_type="per_layer",
        use_qk_norm=True,
        use_routing_bias=True,
        shared_intermediate_size=0,
    )(config)


def minimax_of_2025(kind: str) -> Callable[[Config], Config]:
    """As the code that came with Text-01 and M1 names its fields."""
    names = {
        f"{ours}_{factor}_factor": f"layernorm_{theirs}_{factor}"
        for ours, theirs in (
            ("full_attn", "full_attention"),
            ("linear_attn", "linear_attention"),
            ("mlp", "mlp"),
        )
        for factor in ("alpha", "beta")
    }

    def respell(config: Config) -> Config:
        rope, kinds = config["rope_parameters"], config["layer_types"]
        old = without("rope_parameters", "layer_types", "architectures")(config)
        return {
            **{names.get(name, name): value for name, value in old.items()},
            "architectures": [{"minimax_m1": "MiniMaxM1ForCausalLM"}.get(kind, "MiniMaxText01ForCausalLM")],
            "model_type": kind,
            "attn_type_list": [int(one == "full_attention") for one in kinds],
            "postnorm": True,
            "rope_theta": rope["rope_theta"],
            "shared_intermediate_size": 0,
        }

    return respell


def mimo_of_2026(config: Config) -> Config:
    """As V2.5's files, which have one block for rotations, say it."""
    full, sliding = (config["rope_parameters"][f"{kind}_attention"] for kind in ("full", "sliding"))
    old = without("rope_parameters", "layer_types", "mlp_layer_types", "sliding_window", "rms_norm_eps")
    return old(config) | {
        "architectures": ["MiMoV2ForCausalLM"],
        "model_type": "mimo_v2",
        "attention_projection_layout": "fused_qkv",
        "add_swa_attention_sink_bias": True,
        "hybrid_layer_pattern": [int(kind == "sliding_attention") for kind in config["layer_types"]],
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "layernorm_epsilon": config["rms_norm_eps"],
        "n_shared_experts": None,
        "rope_parameters": full,
        "swa_rope_theta": sliding["rope_theta"],
        "swa_num_key_value_heads": 2 * config["num_key_value_heads"],
        "sliding_window": config["sliding_window"] - 1,
        "sliding_window_size": config["sliding_window"] - 1,
        "vision_config": {},
    }


def dots3_of_2026(config: Config) -> Config:
    """As released files say sizes of layers in a window, and which layers are under an indexer."""
    sizes, ropes = config["per_layer_config"]["1"], config["rope_parameters"]
    kinds = [kind.replace("indexed", "full") for kind in config["layer_types"]]
    old = without(
        "per_layer_config", "rope_parameters", "mlp_layer_types", "shared_experts_intermediate_size"
    )
    return old(config) | {
        **{f"swa_{name}": size for name, size in sizes.items()},
        "layer_types": kinds,
        "use_dsa": True,
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "moe_shared_expert_intermediate_size": config["shared_experts_intermediate_size"],
        "rope_theta": ropes["indexed_attention"]["rope_theta"],
        "swa_rope_theta": ropes["sliding_attention"]["rope_theta"],
    }


def with_heads_behind(state: State) -> State:
    """A draft head as a fifth layer, and more of one by itself."""
    spare = np.ones((2, 2), np.float32)
    return {**each_alone(state), "model.layers.4.eh_proj.weight": spare, "model.mtp.norm.weight": spare}


def minimax_m3_of_old(config: Config) -> Config:
    block = {
        "use_sparse_attention": True,
        "sparse_num_index_heads": config["index_n_heads"],
        "sparse_index_dim": config["index_head_dim"],
        "sparse_block_size": config["index_block_size"],
        "sparse_topk_blocks": config["index_topk_blocks"],
        "sparse_local_block": config["index_local_blocks"],
        "sparse_init_block": 0,
        "sparse_score_type": "max",
        "sparse_attention_freq": [int("sparse" in kind) for kind in config["layer_types"]],
        "sparse_disable_index_value": [int("sparse" in kind) for kind in config["layer_types"]],
    }
    return without(
        *("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks", "index_local_blocks"),
        *("rope_parameters", "layer_types", "mlp_layer_types", "model_type"),
        rope_theta=config["rope_parameters"]["rope_theta"],
        moe_layer_freq=[int(kind == "sparse") for kind in config["mlp_layer_types"]],
        sparse_attention_config=block,
        partial_rotary_factor=0.5,
        hidden_act="swigluoai",
        qk_norm_type="per_head",
        scoring_func="sigmoid",
        n_shared_experts=1,
        num_mtp_modules=7,
        **dict.fromkeys(("use_qk_norm", "use_gemma_norm", "use_routing_bias"), True),
    )(config)


def qwen4_by_qwen(config: Config) -> Config:
    kinds = [kind.replace("indexed", "full") for kind in config["layer_types"]]
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "text_config": {**config, "layer_types": kinds},
    }


def kimi_wrapped(config: Config) -> Config:
    kind = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3"}
    return {**kind, "text_config": kimi_alone(config)}


def kimi_alone(config: Config) -> Config:
    return {**config, "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear"}


def with_tower(state: State) -> State:
    return {**state, **{f"{part}.patch.weight": np.zeros((2, 2), np.float32) for part in _TOWER}}


_TOWER = "vision_tower", "mm_projector"


def glm_by_block(config: Config) -> Config:
    block = {
        "num_heads": config["linear_num_heads"],
        "head_dim": config["linear_head_dim"],
        "short_conv_kernel_size": config["linear_conv_kernel_dim"],
        "gate_lower_bound": config["linear_lower_bound"],
        "safe_gate": True,
    }
    names = "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound"
    return without(*names, linear_attn_config=block)(config)


def in_attention(**fields: Any) -> Callable[[Config], Config]:
    return lambda config: {**config, "attn_config": {**config["attn_config"], **fields}}


def dbrx_of_old(config: Config) -> Config:
    """The base stands in attn_config alone."""
    return without("rope_parameters", "num_key_value_heads")(config)


def inner(change: Callable[[Config], Config]) -> Callable[[Config], Config]:
    return lambda config: {**config, "text_config": change(config["text_config"])}


_OF_SARVAM = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}


def ernie_vl_of_old(config: Config) -> Config:
    """As before transformers had it, all fields beside those for images."""
    text = config["text_config"]
    kinds = text.pop("mlp_layer_types")
    assert kinds == ["dense", "sparse", "sparse", "dense"]
    own = {"moe_layer_start_index": [1, 1], "moe_layer_end_index": [2, 2], "moe_layer_interval": 1}
    rope = {"type": "default", "mrope_section": [3, 3, 2]}
    return {
        **text,
        **own,
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "model_type": "ernie4_5_moe_vl",
        "moe_num_experts": [8, 8],
        "rope_parameters": None,
        "rope_theta": 500000.0,
        "rope_scaling": rope,
        "tie_word_embeddings": False,
        "vision_config": {"depth": 1},
    }


def molmo_of_old(config: Config) -> Config:
    """With names of fields from before transformers had it."""
    names = {"attention_bias": "qkv_bias", "rms_norm_eps": "layer_norm_eps"}
    text = {names.get(name, name): x for name, x in config["text_config"].items()}
    rope = text.pop("rope_parameters")
    scaling = rope if rope["rope_type"] != "default" else None
    own = {"use_qk_norm": True, "rope_theta": rope["rope_theta"], "rope_scaling": scaling}
    return {**config, "vit_config": config["vision_config"], "text_config": {**text, **own}}


def lfm2_of_old(config: Config) -> Config:
    """With the names of fields that its authors' code has."""
    attending = [i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
    own = {"block_ff_dim": config["intermediate_size"], "full_attn_idxs": attending, "block_use_swiglu": True}
    return without("intermediate_size", "layer_types", "rope_parameters", rope_theta=1e6, **own)(config)


def dory_counted_together(config: Config) -> Config:
    """As transformers has it before it writes it."""
    counts = ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers")
    assert [config[name] for name in counts] == [8, 2, 4, 2]
    halves = {name: config[name] // 2 for name in counts}
    return {**config, **halves, "layer_types": config["layer_types"][::2]}


def sarvam_of_old(config: Config) -> Config:
    """With its own names of fields."""
    names = {**_OF_SARVAM, "attention_bias": "use_qkv_bias"}
    own = {names.get(name, name): x for name, x in config.items()}
    return {**own, "architectures": ["SarvamMoEForCausalLM"]}


def sarvam_mla_of_old(config: Config) -> Config:
    """The same, with its own word for YaRN."""
    own = {_OF_SARVAM.get(name, name): x for name, x in config.items() if name != "rope_parameters"}
    block = {
        name: x for name, x in config["rope_parameters"].items() if name not in ("rope_type", "rope_theta")
    }
    more = {"architectures": ["SarvamMLAForCausalLM"], "head_dim": 32, "rope_theta": 10000.0}
    return {**own, **more, "rope_scaling": {**block, "type": "deepseek_yarn"}}


def llama_by(kind: str, class_: str, *left_out: str, **own: Any) -> Callable[[Config], Config]:
    """Llama in the words of others, who write down neither heads' sizes nor flags of their biases."""
    unsaid = ("attention_bias", "head_dim", "rope_parameters", *left_out)
    return without(*unsaid, architectures=[class_], model_type=kind, **own)


def v4_of_old(config: Config) -> Config:
    """As its authors say it, with entries for a draft head."""
    scaling = {name: x for name, x in config["rope_parameters"]["compress"].items() if "factor" not in name}
    scaling["type"], scaling["factor"] = scaling.pop("rope_type"), 4.0
    left = "rope_parameters", "layer_types", "mlp_layer_types", "compress_rates", "partial_rotary_factor"
    more = {"compress_ratios": [0, 4, 128, 0], "num_hash_layers": 1, "rope_scaling": scaling}
    rates = {"compress_rate_hca": 7, "rope_theta": 10000, "compress_rope_theta": 160000}
    return without(*left, **more, **rates)(config)


FORMS: dict[str, tuple[str, Callable[[Config], Config], Callable[[State], State]]] = {
    "InternLM 20B": ("llama", llama_by("internlm", "InternLMForCausalLM", bias=False), same),
    "InternLM 7B": (
        "llama",
        llama_by("internlm", "InternLMForCausalLM", rotary={"base": 10000, "type": "dynamic"}),
        with_zero_biases,
    ),
    "openPangu Embedded": (
        "llama",
        llama_by("PanguEmbedded", "PanguEmbeddedForCausalLM", bias=True, rope_theta=10000.0),
        with_zero_biases,
    ),
    "Aquila": (
        "llama_linear_rope",
        llama_by("aquila", "AquilaModel", rope_scaling={"type": "linear", "factor": 4.0}),
        same,
    ),
    "Yi's first files": (
        "llama",
        llama_by("Yi", "YiForCausalLM", rope_theta=10000.0),
        renamed((".input_layernorm.", ".ln1."), (".post_attention_layernorm.", ".ln2.")),
    ),
    "KORMo 10B": (
        "llama",
        llama_by("kormo", "KORMoForCausalLM"),
        renamed(
            (".input_layernorm.", ".pre_attention_layernorm."),
            (".post_attention_layernorm.", ".pre_mlp_layernorm."),
        ),
    ),
    "Llama's first files": ("llama", llama_by("llama", "LLaMAForCausalLM"), same),
    "LFM2's first files": ("lfm2", lfm2_of_old, same),
    "Jais 13B": (
        "jais",
        without(
            *("mup_embeddings_scale", "mup_output_alpha", "mup_width_scale", "mup_scale_qk_dot_by_d"),
            embeddings_scale=3.5,
            width_scale=0.55,
            scale_qk_dot_by_d=True,
            alibi_scaling={"type": "linear", "train_seq_len": 64},
        ),
        with_slopes,
    ),
    "BTLM": ("jais_six", without(architectures=["BTLMLMHeadModel"], model_type="btlm"), same),
    "StableLM 3B": (
        "stablelm",
        without(
            *("rope_parameters", "layer_norm_eps"),
            architectures=["StableLMEpochForCausalLM"],
            model_type="stablelm_epoch",
            norm_eps=1e-5,
            rope_pct=0.5,
            rope_theta=10000,
        ),
        same,
    ),
    "Kimi K3 in its wrapper": ("kimi_k3", kimi_wrapped, with_tower),
    "Kimi K3's text alone": ("kimi_k3_tied", kimi_alone, renamed(("language_model.", ""))),
    "GLM-5.3 as Z.ai has it": ("glm5_next", inner(glm_by_block), glm_by_zai),
    "Qwen4 as Qwen has it": ("qwen4_exp", qwen4_by_qwen, qwen4_in_shards),
    "Flint": ("flint", same, renamed((".self_attn.sinks", ".self_attn.softmax_offset"))),
    "DeepSeek V4": ("deepseek_v4", v4_of_old, v4_by_deepseek),
    "Mistral Large 4": ("mistral_large4", same, large4_by_mistral),
    "A.X K2": ("axk2", same, axk2_by_skt),
    "Sarvam 30B": ("sarvam_moe", sarvam_of_old, sarvam_by_sarvam),
    "Sarvam 105B": ("sarvam_mla", sarvam_mla_of_old, each_alone),
    "Inkling": (
        "inkling_text",
        lambda config: {
            **without("moe_intermediate_size")(config),
            "vocab_size": 168,
            "unpadded_vocab_size": 160,
            "intermediate_size": config["moe_intermediate_size"],
            "dense_intermediate_size": config["intermediate_size"],
        },
        inkling_published,
    ),
    "Phi-4 multimodal": (
        "phi3_longrope_long",
        without("architectures", model_type="phi4mm"),
        phi4_with_adapters,
    ),
    "Inkling 2 Mini": (
        "inkling2_loop_text",
        lambda config: {
            **without("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank")(
                config
            ),
            "vocab_size": 168,
            "loop_config": {"core_start": 2, "core_end": 4, "num_passes": 3, "gate_rank": 12},
        },
        inkling2_published,
    ),
    "Kolibri 1": (
        "kolibri1",
        same,
        renamed(
            (".post_self_attn_layernorm.", ".post_attn_norm."),
            (".post_mlp_layernorm.", ".post_ffn_norm."),
            (".mlp.gate.e_score_correction_bias", ".moe.router.expert_bias"),
        ),
    ),
    "A.X K1": ("axk1", same, renamed((".mlp.post_mlp_layernorm.", ".post_mlp_layernorm."))),
    "gemma3 with the old fields": ("gemma3_text", gemma3_of_old, same),
    "gemma3 wrapped of old": ("gemma3_wrapped", inner(gemma3_of_old), old_wrapper),
    "gemma3 text by MLX": ("gemma3_text", without(), old_wrapper),
    "gemma4 with global_head_dim": ("gemma4_text", without("per_layer_config", global_head_dim=32), same),
    "gemma4 with global key heads": (
        "gemma4_keys_as_values",
        without("per_layer_config", global_head_dim=32, num_global_key_value_heads=1),
        same,
    ),
    "gemma4 with unused keys": ("gemma4_text", without(), with_unused_keys(5)),
    "gemma4 wrapped by MLX": ("gemma4_wrapped", without(), old_wrapper),
    "gemma4 experts by MLX": ("gemma4_moe", without(), mlx_experts("experts.switch_glu")),
    "gemma4 experts one by one": ("gemma4_moe", without(), one_by_one),
    "gemma3n with unused keys": ("gemma3n", without(), with_unused_keys(4)),
    "olmo3 with rope_scaling": ("olmo3", olmo3_of_old, same),
    "exaone4 with a pattern of letters": (
        "exaone4",
        without("layer_types", sliding_window_pattern="LLG"),
        same,
    ),
    "smollm3 with an interval only": ("smollm3", without("no_rope_layers", "layer_types"), same),
    "cohere2 with a pattern only": ("cohere2", without("layer_types", sliding_window_pattern=3), same),
    "phi3 with su": ("phi3_longrope_long", phi3_of_old, same),
    "mistral3 of old": ("mistral3", without(), old_wrapper),
    "mistral3 without a text type": ("mistral3_mistral", inner(without("model_type")), same),
    "llama4 experts by MLX": ("llama4_text", without(), llama4_by_mlx),
    "ernie4_5_moe as published": (
        "ernie4_5_moe",
        without(moe_gate_act="softmax", moe_layer_end_index=-1, compression_ratio=1.0),
        ernie_by_baidu,
    ),
    "ernie4_5_moe by its other names": (
        "ernie4_5_moe",
        without("moe_num_experts", "moe_k", num_experts=8, num_experts_per_tok=3),
        same,
    ),
    "ernie4_5_vl_moe as published": ("ernie4_5_vl_moe_biases", ernie_vl_of_old, ernie_vl_by_baidu),
    "molmo2 as published": ("molmo2", molmo_of_old, molmo_by_ai2),
    "molmo2 on OLMo as published": ("molmo2_olmo", molmo_of_old, molmo_by_ai2),
    "dory as published": ("dory", without(), dory_published),
    "dory counted together": ("dory", dory_counted_together, same),
    "exaone_moe as published": ("exaone_moe", exaone_moe_of_old, exaone_by_lg),
    "dbrx as published": ("dbrx", dbrx_of_old, same),
    "dbrx by MLX": ("dbrx", without(), dbrx_by_mlx),
    "dbrx in stacks": ("dbrx", without(), dbrx_in_stacks),
    "dbrx without bounds": ("dbrx_plain", in_attention(clip_qkv=None), same),
    "afmoe as published": (
        "afmoe",
        without("layer_types", score_func="sigmoid", route_norm=True, n_group=1, topk_group=1),
        each_alone,
    ),
    "afmoe by MLX": ("afmoe", without(), mlx_experts("experts")),
    "mellum with a draft head": ("mellum", without(num_mtp_layers=1), with_a_head),
    "mellum by MLX": ("mellum", without(), mlx_experts("switch_mlp")),
    "exaone_moe by MLX": ("exaone_moe", without(), mlx_experts("switch_mlp")),
    "dots1 by MLX": ("dots1", without("layer_types"), mlx_experts("experts")),
    "dots1 with its own word": ("dots1_plain", without(scoring_func="noaux_tc"), each_alone),
    "solar_open as published": (
        "solar_open_plain",
        without(first_k_dense_replace=0, use_qk_norm=False, partial_rotary_factor=1.0),
        each_alone,
    ),
    "hy_v3 as published": (
        "hy_v3",
        without(
            "mlp_layer_types",
            first_k_dense_replace=1,
            route_norm=True,
            moe_router_enable_expert_bias=True,
            num_nextn_predict_layers=1,
        ),
        hunyuan_by_tencent,
    ),
    "hunyuan 7B as published": ("hunyuan_large_dense", without(), hunyuan_joined),
    "minimax_m2 as published": ("minimax_m2", minimax_of_old, minimax_by_minimax),
    "minimax_m2 by MLX": ("minimax_m2_whole", without(), minimax_by_mlx),
    "hy_v4 as published": (
        "hy_v4",
        without(
            "indexer_types",
            "mlp_layer_types",
            layer_types=["sparse_attention"] * 3,
            first_k_dense_replace=1,
            num_key_value_heads=2,
            gated_mla=True,
            gating_type="elementwise",
            learnable_sink=True,
            enable_ihc=True,
            num_nextn_predict_layers=1,
        ),
        hy_v4_by_tencent,
    ),
    "minimax_m3 as published": ("minimax_m3_wrapped", inner(minimax_m3_of_old), minimax_m3_by_minimax),
    "mistral4 wrapped of old": ("mistral4_wrapped", without(), old_wrapper),
    "lfm3 published": ("lfm3", without(), renamed((".self_attn.g_proj.", ".self_attn.gate_proj."))),
    "minimax published": ("minimax", without(), minimax_with_rates),
    "MiniMax Text-01": ("minimax", minimax_of_2025("minimax_text_01"), minimax_by_minimax),
    "MiniMax M1": ("minimax", minimax_of_2025("minimax_m1"), minimax_by_minimax),
    "Dots 3 Note": ("dots3_note", dots3_of_2026, with_heads_behind),
    "MiMo V2.5": ("mimo_v2_flash", mimo_of_2026, mimo_in_shares),
    "youtu as published": ("youtu", without(model_type="youtu_llm"), same),
    "plamo2 published": ("plamo2", without("mamba_chunk_size"), filters_of_torch),
    "plamo2 with a padded head": ("plamo2_untied", without(), padded_head),
    "ring_linear published": ("ring_linear", without(rotary_dim=8), renamed((".gate.gate_proj.", ".gate."))),
    "rwkv7 of old": ("rwkv7", without(value_dim=[64, 64], num_heads=4), rwkv_of_old),
    "rwkv7 by MLX": ("rwkv7", without("head_dim", num_heads=4), rwkv_by_mlx),
    "longcat_flash saved": ("longcat_flash", without(), each_alone),
    "longcat_flash published": ("longcat_flash", without("num_hidden_layers"), longcat_by_meituan),
    "step3p5 by MLX": ("step3p5", without(), step_by_mlx),
    "step3p5 with draft heads": (
        "step3p5",
        without(num_nextn_predict_layers=1, swiglu_limits=[0.0, 0.0, 0.25, 0.0, 7.0]),
        lambda state: state | {"model.layers.4.eh_proj.weight": np.zeros((2, 2), np.float32)},
    ),
    "plamo published": ("plamo", without(num_key_value_heads=6), same),
    "plamo3 of old": (
        "plamo3",
        without("window_size", "rope_theta", rope_global_theta=1000000, sliding_window=[9, 9, None, 9]),
        same,
    ),
    "gpt2 of old": ("gpt2", without(), gpt2_of_old),
    "gpt2 by MLX": ("gpt2_inverse_layers", without(), gpt2_by_mlx),
    "falcon_7b of old": ("falcon_7b", falcon_of_old("RefinedWebModel"), same),
    "falcon_40b of old": ("falcon_40b", falcon_of_old("RefinedWeb"), same),
    "falcon_rw of old": ("falcon_rw", falcon_of_old("RefinedWebModel"), same),
    "bloom without its head": ("bloom", without(), renamed(("transformer.", ""))),
    "gpt_bigcode of old": ("gpt_bigcode", without(), with_triangle("transformer.h.0.attn.bias")),
    "gptj by MLX": ("gptj", without(), renamed(("transformer.", "model."))),
    "gptj of old": ("gptj", without(), with_triangle("transformer.h.0.attn.bias")),
    "codegen of old": ("codegen", without(), with_triangle("transformer.h.0.attn.causal_mask")),
    "xglm of old": ("xglm", without(), with_triangle("model.embed_positions.weights")),
    "codegen2 1B": ("codegen", without(head_dim=16), in_eight_cuts),
    "gpt_neo of old": (
        "gpt_neo",
        without("attention_layers"),
        with_triangle("transformer.h.0.attn.attention.bias"),
    ),
    **{
        f"{name} without its head": (name, without(), renamed(("model.", "")))
        for name in (
            "glm_plain",
            "jais2_plain",
            "hyperclovax_biases",
            "hunyuan_moe",
            "olmo",
            "gemma2",
            "youtu",
            "minicpm3",
        )
    },
    "PLBart": (
        "bart_scaled",
        without("scale_embedding", architectures=["PLBartForConditionalGeneration"], model_type="plbart"),
        same,
    ),
    "MVP": ("bart", without(architectures=["MvpForConditionalGeneration"], model_type="mvp"), same),
    "opt without its head": ("opt", without(), renamed(("model.decoder.", "decoder."))),
    "gpt_neox of old": ("gpt_neox", neox_of_old, renamed(("lm_head.", "embed_out."))),
    "gpt_neox by MLX": ("gpt_neox", without(), neox_by_mlx),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_model_in_another_form(form: str, tmp_path: Path) -> None:
    name, refield, respell = FORMS[form]
    reference = Reference(name)
    config = refield(reference.record["config"])
    state = respell(random_state(reference.record["tensors"]))
    path = tmp_path / "model.safetensors"
    save_file({key: np.ascontiguousarray(array) for key, array in state.items()}, path)
    model = reference.reading(load_model(config, [path]))
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)
