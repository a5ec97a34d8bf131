"""Nemotron-H: each layer is a state space, attention, a feed-forward or a mixture alone."""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.hybrid import (
    PLACES,
    TRAINED,
    attention_layers,
    put_kv_heads,
)
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    NORMALIZED,
    ROUTED_SCALE,
    is_sparse,
    shared_inner,
)
from modelkit.source.gguf.architectures.parts import (
    HEAD_COUNT,
    HEAD_DIM,
    HIDDEN,
    PAIRED_ATTENTION,
    VOCAB,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rules import Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from modelkit.source.gguf.architectures.state import (
    any_bias,
    heads_of_state,
    mamba2,
    no_limits,
)


def _read_nemotron(file: Reading) -> None:
    attending, sparse = attention_layers(file), is_sparse(file)
    kinds: list[str] = []
    for layer in range(file.layers):
        if file.has(layer, "ssm_a"):
            kinds.append("mamba")
        elif attending[layer]:
            kinds.append("attention")
        elif sparse[layer]:
            kinds.append("moe")
        elif file.has(layer, "ffn_up"):
            kinds.append("mlp")
        else:
            file.refuse(f"block {layer} has no tensors of any kind of layer")
    file.config["layers_block_type"] = kinds
    file.config.pop("num_hidden_layers")
    file.skip("feed_forward_length")
    dense = [file.rows(layer, "ffn_up") for layer, kind in enumerate(kinds) if kind == "mlp"]
    if dense:
        file.config["intermediate_size"] = dense[0]
    heads, size = heads_of_state(file)
    file.config |= {
        "mamba_num_heads": heads,
        "mamba_head_dim": size,
        "n_groups": file.count("ssm.group_count"),
        "ssm_state_size": file.count("ssm.state_size"),
        "conv_kernel": file.count("ssm.conv_kernel"),
    }
    file.skip("rope.dimension_count", "rope.scaling.finetuned", "context_length")
    file.config["max_position_embeddings"] = TRAINED


_KINDS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}


def nemotron_kinds(facts: Facts) -> list[str]:
    told = facts.get("layers_block_type", "layer_types", "hybrid_override_pattern", default=())
    words = {"linear_attention": "mamba", "full_attention": "attention"}
    return [_KINDS.get(str(one)) or words.get(str(one), str(one)) for one in told]


def _write_nemotron(out: Writing) -> None:
    facts = out.facts
    kinds = nemotron_kinds(facts)
    sparse = "moe" in kinds
    heads, size = facts.count("mamba_num_heads", default=128), facts.count("mamba_head_dim", default=64)
    put_kv_heads(out, [kind == "attention" for kind in kinds])
    inner = facts.count("moe_intermediate_size" if sparse else "intermediate_size")
    wanted = "moe" if sparse else "mlp"
    out.put("feed_forward_length", [inner if kind == wanted else 0 for kind in kinds])
    out.put("context_length", PLACES)
    out.put("rope.dimension_count", facts.hidden // facts.heads)
    out.put("rope.scaling.finetuned", False)
    out.put("ssm.conv_kernel", facts.count("conv_kernel", "mamba_d_conv", default=4))
    out.put("ssm.state_size", facts.count("ssm_state_size", default=128))
    out.put("ssm.group_count", facts.count("n_groups", "mamba_n_groups", default=8))
    out.put("ssm.inner_size", heads * size)
    out.put("ssm.time_step_rank", heads)


def _rms(file: Reading) -> None:
    """Where both are told, this is the one that counts."""
    told = file.get("attention.layer_norm_rms_epsilon")
    if told is not None:
        file.config["layer_norm_epsilon"] = told


_NEMOTRON = (
    HIDDEN,
    HEAD_COUNT,
    HEAD_DIM,
    Same("attention.layer_norm_epsilon", ("layer_norm_epsilon", "rms_norm_eps"), default=1e-5, kind=float),
    Special(lambda file: _rms(file)),
    VOCAB,
    Special(_read_nemotron, _write_nemotron),
    Always("mlp_hidden_act", "relu2"),
    any_bias("attention_bias", "attn_q"),
    any_bias("mlp_bias", "ffn_up"),
    any_bias("use_bias", "ssm_in"),
    any_bias("use_conv_bias", "ssm_conv1d"),
    Special(writing=no_limits),
)
_NEMOTRON_TOP = rules("""
    token_embd.weight = backbone.embeddings.weight
    output_norm.weight = backbone.norm_f.weight
    output.weight = lm_head.weight
""")
_NEMOTRON_BLOCK = (
    rule("attn_norm.weight", "norm.weight"),
    *(
        Rule(
            one.theirs,
            tuple(name.replace("self_attn.", "mixer.") for name in one.ours),
            one.move,
            one.written,
        )
        for one in PAIRED_ATTENTION
    ),
    *mamba2("mixer"),
    *rules("""
        ffn_up.* = mixer.up_proj.*
        ffn_down.* = mixer.down_proj.*
        ffn_gate_inp.weight = mixer.gate.weight
        exp_probs_b.bias = mixer.gate.e_score_correction_bias
        ffn_up_exps.* = mixer.switch_mlp.fc1.*
        ffn_down_exps.* = mixer.switch_mlp.fc2.*
        ffn_up_shexp.* = mixer.shared_experts.up_proj.*
        ffn_down_shexp.* = mixer.shared_experts.down_proj.*
        ffn_latent_down.* = mixer.fc1_latent_proj.*
        ffn_latent_up.* = mixer.fc2_latent_proj.*
    """),
)


def _is_sparse_nemotron(config: Mapping[str, Any]) -> bool:
    return "moe" in nemotron_kinds(Facts(config))


def _is_dense_nemotron(config: Mapping[str, Any]) -> bool:
    return not _is_sparse_nemotron(config)


NEMOTRON_H = Architecture(
    "nemotron_h",
    (Kind("nemotron_h", "NemotronHForCausalLM"),),
    _NEMOTRON,
    _NEMOTRON_TOP,
    _NEMOTRON_BLOCK,
    home="backbone.layers.{}.",
    exact="function; A_log within 1.2e-7",
    otherwise=("context_length",),
    condition=_is_dense_nemotron,
)
NEMOTRON_H_MOE = Architecture(
    "nemotron_h_moe",
    (Kind("nemotron_h", "NemotronHForCausalLM"),),
    (
        *_NEMOTRON,
        Same("expert_count", ("n_routed_experts", "num_local_experts"), needed=True),
        Same("expert_used_count", ("num_experts_per_tok",), needed=True),
        Same("expert_group_count", ("n_group",)),
        Same("expert_group_used_count", ("topk_group",)),
        MOE_INNER,
        shared_inner("moe_shared_expert_intermediate_size"),
        Same("expert_shared_count", ("n_shared_experts",)),
        Same("moe_latent_size", ("moe_latent_size",)),
        NORMALIZED,
        ROUTED_SCALE,
    ),
    _NEMOTRON_TOP,
    _NEMOTRON_BLOCK,
    home="backbone.layers.{}.",
    exact="function; A_log within 1.2e-7",
    otherwise=("context_length",),
    condition=_is_sparse_nemotron,
)
