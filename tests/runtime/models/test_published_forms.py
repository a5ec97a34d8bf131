"""Attention models as the hub and MLX's converter publish them: other tensor names, other config fields.

Each form must give the logits of the reference, whose names and fields are those of transformers 5.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.loaded import load_model
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, bar, full_logits

State = dict[str, np.ndarray]
Config = dict[str, Any]


def renamed(*pairs: tuple[str, str]) -> Callable[[State], State]:
    """Replace the first of these beginnings or parts that a name has."""

    def rename(name: str) -> str:
        return next((name.replace(ours, theirs, 1) for ours, theirs in pairs if ours in name), name)

    return lambda state: {rename(name): array for name, array in state.items()}


def old_wrapper(state: State) -> State:
    """transformers 4 and MLX: language_model.model, and a tower."""
    named = renamed(
        ("model.language_model.", "language_model.model."),
        ("model.vision_tower.", "vision_tower."),
        ("model.multi_modal_projector.", "multi_modal_projector."),
        ("model.embed_vision.", "embed_vision."),
        ("model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
    )(state)
    return {**named, "vision_tower.patch.weight": np.zeros((2, 2), np.float32)}


def mlx_experts(stack: str) -> Callable[[State], State]:
    """Gate and up apart, each [E, out, in], under the name `stack`."""

    def respell(state: State) -> State:
        out: State = {}
        for name, array in state.items():
            stem, found, leaf = name.rpartition(".experts.")
            for part, matrix in _parts(leaf, array) if found else [("", array)]:
                out[f"{stem}.{stack}.{part}.weight" if found else name] = matrix
        return out

    return respell


def _parts(leaf: str, stack: np.ndarray) -> list[tuple[str, np.ndarray]]:
    if leaf != "gate_up_proj":
        return [(leaf, stack)]
    gate, up = np.split(stack, 2, axis=1)
    return [("gate_proj", gate), ("up_proj", up)]


def one_by_one(state: State) -> State:
    """Gemma 4's experts as single matrices."""
    out: State = {}
    for name, array in mlx_experts("moe.experts")(state).items():
        stem, found, leaf = name.rpartition(".moe.experts.")
        if found:
            out.update({f"{stem}.moe.experts.{i}.{leaf}": one for i, one in enumerate(array)})
        else:
            out[name.replace(".router.per_expert_scale", ".moe.per_expert_scale")] = array
    return out


def llama4_by_mlx(state: State) -> State:
    turned = {
        n: a.swapaxes(1, 2) if n.endswith(("experts.gate_up_proj", "experts.down_proj")) else a
        for n, a in state.items()
    }
    return mlx_experts("experts")(turned)


def with_unused_keys(layer: int) -> Callable[[State], State]:
    """Published files keep keys and values for layers that read another layer's."""

    def respell(state: State) -> State:
        kept = [n for n in state if ".layers.1.self_attn.k" in n or ".layers.1.self_attn.v" in n]
        return state | {n.replace(".layers.1.", f".layers.{layer}."): state[n] for n in kept}

    return respell


def gpt2_of_old(state: State) -> State:
    named = {n.removeprefix("transformer."): a for n, a in state.items()}
    mask = np.ones((1, 1, 96, 96), np.float32)
    return {**named, "h.0.attn.bias": mask, "h.0.attn.masked_bias": np.array(-1e4, np.float32)}


def gpt2_by_mlx(state: State) -> State:
    turned = {n: a.T if a.ndim == 2 and ".c_" in n else a for n, a in state.items()}
    return {n.replace("transformer.", "model."): a for n, a in turned.items()}


def with_triangle(name: str) -> Callable[[State], State]:
    return lambda state: {**state, name: np.ones((1, 1, 96, 96), np.float32)}


def in_eight_cuts(state: State) -> State:
    """CodeGen2's 1B and 3.7B have [8][query, value, key] where CodeGen has [4][query, value, key]."""

    def recut(matrix: np.ndarray) -> np.ndarray:
        parts = matrix.reshape(4, 3, -1, matrix.shape[1]).swapaxes(0, 1).reshape(3, 8, -1, matrix.shape[1])
        return parts.swapaxes(0, 1).reshape(matrix.shape)

    return {name: recut(array) if ".qkv_proj." in name else array for name, array in state.items()}


def neox_by_mlx(state: State) -> State:
    buffers = {"gpt_neox.layers.0.attention.bias": np.ones((1, 1, 8, 8), np.float32)}
    return renamed(
        ("gpt_neox.layers.", "model.h."), ("gpt_neox.", "model."), ("lm_head.", "model.embed_out.")
    )({**state, **buffers})


def ernie_by_baidu(state: State) -> State:
    named = renamed((".mlp.gate.moe_statics.", ".mlp.moe_statics."))(state)
    head = {"model.mtp_linear_proj.0.weight": np.zeros((2, 2), np.float32)}
    return {**_each_alone(named), **head}


def exaone_by_lg(state: State) -> State:
    named = renamed((".mlp.gate.e_score_correction_bias", ".mlp.e_score_correction_bias"))(state)
    return with_a_head(named)


def with_a_head(state: State) -> State:
    return {**_each_alone(state), "mtp.fc.weight": np.zeros((2, 2), np.float32)}


def hunyuan_by_tencent(state: State) -> State:
    named = renamed(
        (".mlp.gate.weight", ".mlp.router.gate.weight"),
        (".mlp.e_score_correction_bias", ".mlp.expert_bias"),
        (".mlp.shared_experts.", ".mlp.shared_mlp."),
    )(state)
    return {**_each_alone(named), "model.layers.4.eh_proj.weight": np.zeros((2, 2), np.float32)}


def minimax_by_minimax(state: State) -> State:
    numbers = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    out: State = {}
    for name, array in _each_alone(state).items():
        stem, found, leaf = name.rpartition(".experts.")
        if found:
            index, matrix, _ = leaf.split(".")
            name = f"{stem}.experts.{index}.{numbers[matrix]}.weight"
        out[name.replace(".mlp.", ".block_sparse_moe.")] = array
    return out


def minimax_with_rates(state: State) -> State:
    """With what transformers computes of the config, and saves."""
    rates = {"model.layers.0.self_attn.slope_rate": np.ones((4, 1, 1), np.float32)}
    return {**minimax_by_minimax(state), **rates}


def minimax_by_mlx(state: State) -> State:
    named = mlx_experts("switch_mlp")(state)
    return {name.replace(".mlp.", ".block_sparse_moe."): array for name, array in named.items()}


def _each_alone(state: State) -> State:
    """Stacked experts one by one, gate and up apart."""
    out: State = {}
    for name, array in mlx_experts("experts")(state).items():
        stem, found, leaf = name.rpartition(".experts.")
        if found:
            out.update({f"{stem}.experts.{i}.{leaf}": one for i, one in enumerate(array)})
        else:
            out[name] = array
    return out


def longcat_by_meituan(state: State) -> State:
    """Without what transformers holds, and saves, for experts that have no matrices."""
    return {name: x for name, x in _each_alone(state).items() if not re.search(r"\.experts\.[567]\.", name)}


def step_by_mlx(state: State) -> State:
    """Norms whole, and its own names."""
    named = renamed(
        (".moe.router_bias", ".mlp.gate.router_bias"),
        (".moe.gate.", ".mlp.gate.gate."),
        (".moe.", ".mlp.switch_mlp."),
        (".share_expert.", ".mlp.share_expert."),
    )(state)
    return {name: x + 1 if name.endswith("norm.weight") else x for name, x in named.items()}


def padded_head(state: State) -> State:
    """As PLaMo 2's class makes it, with rows that no id has."""
    head = state["lm_head.weight"]
    return state | {"lm_head.weight": np.concatenate([head, np.ones_like(head[:8])])}


def filters_of_torch(state: State) -> State:
    return {n: x.swapaxes(1, 2) if n.endswith("conv1d.weight") else x for n, x in state.items()}


def rwkv_of_old(state: State) -> State:
    """With the shares of the token before in one array."""
    kept = {name: x for name, x in state.items() if ".attn.x_" not in name}
    for layer in (0, 1):
        parts = [state[f"model.layers.{layer}.attn.x_{part}"][0, 0] for part in "rwkvag"]
        kept[f"model.layers.{layer}.attn.x_x"] = np.stack(parts)
    return kept


def rwkv_by_mlx(state: State) -> State:
    heads = (".k_k", ".k_a", ".g_norm.weight", ".g_norm.bias")
    return {name: x.reshape(-1, 16) if name.endswith(heads) else x for name, x in state.items()}


def same(state: State) -> State:
    return state


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


def in_attention(**fields: Any) -> Callable[[Config], Config]:
    return lambda config: {**config, "attn_config": {**config["attn_config"], **fields}}


def dbrx_of_old(config: Config) -> Config:
    """The base stands in attn_config alone."""
    return without("rope_parameters", "num_key_value_heads")(config)


_DBRX = {"w1": "gate_proj", "v1": "up_proj", "w2": "down_proj"}


def dbrx_by_mlx(state: State) -> State:
    out: State = {}
    for name, array in state.items():
        stem, found, matrix = name.rpartition(".experts.mlp.")
        parts = np.split(array, 6) if found else []
        out |= {
            f"{stem}.experts.{i}.{matrix}.weight": one.T if matrix == "w2" else one
            for i, one in enumerate(parts)
        } or {name: array}
    return out


def dbrx_in_stacks(state: State) -> State:
    """As packages have them that were made anew."""
    out: State = {}
    for name, array in state.items():
        stem, found, matrix = name.rpartition(".experts.mlp.")
        stack = array.reshape(6, -1, 64) if found else array
        stack = stack.swapaxes(1, 2) if matrix == "w2" else stack
        out[f"{stem}.switch_mlp.{_DBRX[matrix]}.weight" if found else name] = stack
    return out


def inner(change: Callable[[Config], Config]) -> Callable[[Config], Config]:
    return lambda config: {**config, "text_config": change(config["text_config"])}


FORMS: dict[str, tuple[str, Callable[[Config], Config], Callable[[State], State]]] = {
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
    "exaone_moe as published": ("exaone_moe", exaone_moe_of_old, exaone_by_lg),
    "dbrx as published": ("dbrx", dbrx_of_old, same),
    "dbrx by MLX": ("dbrx", without(), dbrx_by_mlx),
    "dbrx in stacks": ("dbrx", without(), dbrx_in_stacks),
    "dbrx without bounds": ("dbrx_plain", in_attention(clip_qkv=None), same),
    "afmoe as published": (
        "afmoe",
        without("layer_types", score_func="sigmoid", route_norm=True, n_group=1, topk_group=1),
        _each_alone,
    ),
    "afmoe by MLX": ("afmoe", without(), mlx_experts("experts")),
    "mellum with a draft head": ("mellum", without(num_mtp_layers=1), with_a_head),
    "mellum by MLX": ("mellum", without(), mlx_experts("switch_mlp")),
    "exaone_moe by MLX": ("exaone_moe", without(), mlx_experts("switch_mlp")),
    "dots1 by MLX": ("dots1", without("layer_types"), mlx_experts("experts")),
    "dots1 with its own word": ("dots1_plain", without(scoring_func="noaux_tc"), _each_alone),
    "solar_open as published": (
        "solar_open_plain",
        without(first_k_dense_replace=0, use_qk_norm=False, partial_rotary_factor=1.0),
        _each_alone,
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
    "minimax_m2 as published": ("minimax_m2", minimax_of_old, minimax_by_minimax),
    "minimax_m2 by MLX": ("minimax_m2_whole", without(), minimax_by_mlx),
    "mistral4 wrapped of old": ("mistral4_wrapped", without(), old_wrapper),
    "lfm3 published": ("lfm3", without(), renamed((".self_attn.g_proj.", ".self_attn.gate_proj."))),
    "minimax published": ("minimax", without(), minimax_with_rates),
    "youtu as published": ("youtu", without(model_type="youtu_llm"), same),
    "plamo2 published": ("plamo2", without("mamba_chunk_size"), filters_of_torch),
    "plamo2 with a padded head": ("plamo2_untied", without(), padded_head),
    "ring_linear published": ("ring_linear", without(rotary_dim=8), renamed((".gate.gate_proj.", ".gate."))),
    "rwkv7 of old": ("rwkv7", without(value_dim=[64, 64], num_heads=4), rwkv_of_old),
    "rwkv7 by MLX": ("rwkv7", without("head_dim", num_heads=4), rwkv_by_mlx),
    "longcat_flash saved": ("longcat_flash", without(), _each_alone),
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
    model = load_model(config, [path])
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)
