"""MiniMax-Text-01 and M1: lightning attention (linear, with a decay for each head) between layers with
softmax, and a mixture of experts in each.

What sublayers add to is the norm of what enters, times a factor that GGUF has one of.

MiniMax M3: layers behind the first dense ones have experts, and indexers that choose blocks of keys. Norms
are whole in files, and less one in checkpoints.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import (
    ALWAYS_NORMALIZED,
    PLAIN_SOFTMAX,
    ROUTED_SCALE,
    SIGMOID,
    dense_count,
    expert_settings,
    experts,
    gating,
    is_sparse,
    read_sparse,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    MLP,
    NORMS,
    SHIFTED,
    TOP,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import OfSome
from modelkit.source.gguf.architectures.settings import Always, Same, Special

_KINDS = {True: "linear_attention", False: "full_attention"}
_PERIOD = 8
_SUBLAYERS = ("full_attn", "linear_attn", "mlp")


def _read_layers(file: Reading) -> None:
    """Which layers are linear the tensors say, and some files once more."""
    linear = file.layers_with("attn_gate")
    told = file.get("attention.recurrent_layers")
    listed = told[: file.layers] if isinstance(told, list) else [told] * file.layers
    if told is not None and [bool(one) for one in listed] != linear:
        file.refuse(f"`{file.full('attention.recurrent_layers')}` names other layers than the tensors do")
    file.skip("full_attention_interval")
    file.config["layer_types"] = [_KINDS[one] for one in linear]
    factor = file.number("residual_scale")
    for name in _SUBLAYERS:
        file.config |= {f"{name}_alpha_factor": factor, f"{name}_beta_factor": 1.0}


def _write_layers(out: Writing) -> None:
    facts = out.facts
    factors = {float(facts.get(f"{name}_alpha_factor", default=1.0)) for name in _SUBLAYERS}
    others = {float(facts.get(f"{name}_beta_factor", default=1.0)) for name in _SUBLAYERS}
    if len(factors) > 1 or others != {1.0}:
        out.refuse("sublayers have factors of their own, and GGUF has one for all of what enters them")
    out.put("residual_scale", factors.pop())
    linear = [kind == _KINDS[True] for kind in facts.get("layer_types", default=())]
    if linear != [(i + 1) % _PERIOD != 0 for i in range(facts.layers)]:
        out.put("attention.recurrent_layers", linear)


def _read_rotated(file: Reading) -> None:
    block = file.config["rope_parameters"]
    block.pop("partial_rotary_factor", None)
    file.config["rotary_dim"] = file.count("rope.dimension_count", Facts(file.config).head_dim)


def _of(kind: str) -> OfSome:
    return OfSome(lambda facts, layer: kind in facts.get("layer_types", default=())[layer : layer + 1])


MINIMAX_01 = Architecture(
    "minimax-01",
    (Kind("minimax", "MiniMaxForCausalLM", aliases=("minimax_text_01", "minimax_m1")),),
    decoder(
        Rope(theta=1000000.0),
        Special(_read_rotated),
        Special(_read_layers, _write_layers),
        *expert_settings("num_local_experts"),
        *PLAIN_SOFTMAX,
        Always("hidden_act", "silu"),
    ),
    TOP,
    (
        *NORMS,
        *rules("""
            attn_q.* = self_attn.q_proj.*
            attn_k.* = self_attn.k_proj.*
            attn_v.* = self_attn.v_proj.*
            attn_qkv.weight = self_attn.qkv_proj.weight
            attn_gate.weight = self_attn.output_gate.weight
            attn_norm_2.weight = self_attn.norm.weight
            ffn_gate_inp.weight = block_sparse_moe.gate.weight
        """),
        rule("attn_output.weight", "self_attn.o_proj.weight", _of(_KINDS[False])),
        rule("attn_output.weight", "self_attn.out_proj.weight", _of(_KINDS[True])),
        *experts("block_sparse_moe.switch_mlp"),
    ),
)

_CHOICES = ("full_attention", "minimax_m3_sparse")


def _read_third(file: Reading) -> None:
    sparse = is_sparse(file)
    if file.layers_with("indexer.q_proj") != sparse:
        file.unsupported("layers with experts and those with indexers are not the same")
    file.skip("leading_dense_block_count")
    inner = file.count("expert_feed_forward_length")
    if file.count("expert_shared_count", 1) != 1:
        file.unsupported("more than one expert answers always")
    file.config |= {
        "intermediate_size": inner,
        "shared_intermediate_size": inner,
        "layer_types": [_CHOICES[one] for one in sparse],
    }
    read_sparse(file)


def _write_third(out: Writing) -> None:
    facts = out.facts
    dense = dense_count(out, "", 0)
    if list(facts.get("layer_types", default=())) != [_CHOICES[i >= dense] for i in range(facts.layers)]:
        out.refuse("layers with experts and those with indexers are not the same, which GGUF cannot say")
    inner = facts.count("intermediate_size")
    if facts.count("shared_intermediate_size", default=3072) != inner:
        out.refuse("the expert that always answers has another width, which GGUF cannot say for minimax-m3")
    out.put("leading_dense_block_count", dense)
    out.put("expert_feed_forward_length", inner)
    out.put("expert_shared_count", 1)


MINIMAX_M3 = Architecture(
    "minimax-m3",
    (Kind("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM"),),
    decoder(
        Rope(theta=5000000.0),
        *expert_settings("num_local_experts", "num_experts"),
        Special(_read_third, _write_third),
        ROUTED_SCALE,
        ALWAYS_NORMALIZED,
        gating(SIGMOID),
        Same("attention.indexer.head_count", ("index_n_heads",), default=4, needed=True),
        Same("attention.indexer.key_length", ("index_head_dim",), default=128, needed=True),
        Same("attention.indexer.top_k", ("index_topk_blocks",), default=16, needed=True),
        Same("attention.indexer.block_size", ("index_block_size",), default=128, needed=True),
        Same("attention.indexer.local_blocks", ("index_local_blocks",), default=1, needed=True),
        Always("swiglu_alpha", 1.702),
        Always("swiglu_limit", 7.0),
        inner=Same("feed_forward_length", ("dense_intermediate_size",), default=12288, needed=True),
    ),
    (
        *rules("""
            token_embd.* = model.embed_tokens.*
            output.* = lm_head.*
        """),
        rule("output_norm.*", "model.norm.*", SHIFTED),
    ),
    (
        rule("attn_norm.*", "input_layernorm.*", SHIFTED),
        rule("ffn_norm.*", "post_attention_layernorm.*", SHIFTED),
        *ATTENTION,
        FUSED_QKV,
        *(rule(f"attn_{part}_norm.*", f"self_attn.{part}_norm.*", SHIFTED) for part in "qk"),
        *(rule(f"indexer.{part}_norm.*", f"self_attn.index_{part}_norm.*", SHIFTED) for part in "qk"),
        *(rule(f"indexer.{part}_proj.*", f"self_attn.index_{part}_proj.*") for part in "qk"),
        *MLP,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        rule("exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"),
        *experts("block_sparse_moe.switch_mlp"),
        *shared_expert("block_sparse_moe.shared_experts"),
    ),
)
