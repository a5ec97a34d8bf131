"""LFM2 and its mixture: short convolutions between attention layers."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    SIGMOID,
    expert_settings,
    experts,
    gating,
    leading_dense,
)
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    FUSED_QKV,
    HEAD_COUNT,
    HIDDEN,
    INNER,
    VOCAB,
    feed_forward,
    output_norm,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from modelkit.source.gguf.architectures.state import FILTERS


def _read_layers(file: Reading) -> None:
    """Which layers are convolutions the tensors say; the heads of keys are an array with zeros for them."""
    conv = file.layers_with("shortconv.conv")
    counts = file.each("attention.head_count_kv")
    heads = {count for count, without in zip(counts, conv, strict=True) if not without}
    if len(heads) > 1:
        file.refuse(f"`{file.full('attention.head_count_kv')}` is not what the tensors of the blocks say")
    file.config["num_key_value_heads"] = next(iter(heads), file.config["num_attention_heads"])
    file.config["layer_types"] = ["conv" if one else "full_attention" for one in conv]
    file.config["conv_bias"] = any(f"blk.{i}.shortconv.conv.bias" in file.shapes for i in range(file.layers))


def _write_layers(out: Writing) -> None:
    kinds = out.facts.get("layer_types")
    if not kinds:
        listed = out.facts.get("full_attn_idxs", default=[])
        kinds = ["full_attention" if i in listed else "conv" for i in range(out.facts.layers)]
    heads = out.facts.kv_heads
    out.put("attention.head_count_kv", [0 if kind == "conv" else heads for kind in kinds])


def _write_inner(out: Writing) -> None:
    shapes = out.shapes
    found = [shapes.get(f"model.layers.0.feed_forward.{name}.weight") for name in ("w1", "gate_proj")]
    rows = next((shape[0] for shape in found if shape), None)
    if rows is not None:
        out.put("feed_forward_length", rows)


_COMMON = (
    CONTEXT,
    HIDDEN,
    INNER,
    Special(writing=_write_inner),
    HEAD_COUNT,
    Special(_read_layers, _write_layers),
    Same("attention.layer_norm_rms_epsilon", ("norm_eps",), default=1e-5, needed=True),
    Rope(theta=1000000.0, dimensions=False),
    VOCAB,
    Same("shortconv.l_cache", ("conv_L_cache",), default=3, needed=True),
)
_TOP = (rule("token_embd_norm.*", "model.embedding_norm.*"), *output_norm("model.embedding_norm"))
_BLOCK = (
    *rules("""
        attn_norm.* = operator_norm.*
        ffn_norm.* = ffn_norm.*
        attn_q.* = self_attn.q_proj.*
        attn_k.* = self_attn.k_proj.*
        attn_v.* = self_attn.v_proj.*
        attn_output.* = self_attn.out_proj.*
        attn_q_norm.* = self_attn.q_layernorm.*
        attn_k_norm.* = self_attn.k_layernorm.*
        shortconv.in_proj.* = conv.in_proj.*
        shortconv.out_proj.* = conv.out_proj.*
        shortconv.conv.bias = conv.conv.bias
    """),
    rule("shortconv.conv.weight", "conv.conv.weight", FILTERS),
    FUSED_QKV,
)

LFM2 = Architecture(
    "lfm2",
    (Kind("lfm2", "Lfm2ForCausalLM"),),
    (*_COMMON, Special(lambda file: file.config.update(block_auto_adjust_ff_dim=False))),
    _TOP,
    (
        *_BLOCK,
        *rules("""
            ffn_gate.* = feed_forward.w1.*
            ffn_up.* = feed_forward.w3.*
            ffn_down.* = feed_forward.w2.*
        """),
    ),
)
LFM2MOE = Architecture(
    "lfm2moe",
    (Kind("lfm2_moe", "Lfm2MoeForCausalLM"),),
    (
        *_COMMON,
        *expert_settings(),
        MOE_INNER,
        leading_dense("num_dense_layers", default=2),
        gating(SIGMOID),
        Always("norm_topk_prob", True),
        Always("routed_scaling_factor", 1.0),
        Special(
            lambda file: file.config.update(
                use_expert_bias=any(file.has(i, "exp_probs_b") for i in range(file.layers))
            )
        ),
    ),
    _TOP,
    (
        *_BLOCK,
        *feed_forward("feed_forward"),
        *rules("""
            ffn_gate_inp.weight = feed_forward.gate.weight
            exp_probs_b.bias = feed_forward.expert_bias
        """),
        *experts("feed_forward.switch_mlp"),
    ),
)
