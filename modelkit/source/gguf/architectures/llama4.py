"""Llama 4: chunks of 8192 tokens; every fourth layer is not rotated. llama.cpp knows it by the name."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    SIGMOID,
    expert_settings,
    experts,
    gating,
    is_sparse,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    NORMS,
    TOP,
    VOCAB,
    bias_flag,
    decoder,
    feed_forward,
    rule,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Always, Same, Special

_CHUNK, _STEP = 8192, 4
_WITHOUT_NORM = 128
"""Experts of the only published size whose queries and keys are not normed."""


def _read(file: Reading) -> None:
    sparse, step = is_sparse(file), file.count("interleave_moe_layer_step", 1)
    if sparse != [step > 0 and (i + 1) % step == 0 for i in range(file.layers)]:
        file.refuse(f"`{file.full('interleave_moe_layer_step')}` is {step}, and the blocks are not mixed so")
    whole = file.count("attention.sliding_window", _CHUNK) == 0
    rotated = [whole or (i + 1) % _STEP != 0 for i in range(file.layers)]
    config = file.config
    config |= {
        "intermediate_size_mlp": file.count("feed_forward_length"),
        "intermediate_size": file.count("expert_feed_forward_length"),
        "interleave_moe_layer_step": step,
        "moe_layers": [i for i, one in enumerate(sparse) if one],
        "no_rope_layers": [int(one) for one in rotated],
        "layer_types": ["chunked_attention" if one and not whole else "full_attention" for one in rotated],
        "use_qk_norm": config["num_local_experts"] != _WITHOUT_NORM,
    }


def _write(out: Writing) -> None:
    facts = out.facts
    inner = facts.count("intermediate_size")
    out.put("feed_forward_length", facts.count("intermediate_size_mlp", default=2 * inner))
    out.put("expert_feed_forward_length", inner)
    out.put("interleave_moe_layer_step", facts.count("interleave_moe_layer_step", default=1))
    kinds = facts.get("layer_types")
    rotated = [(i + 1) % _STEP != 0 for i in range(facts.layers)]
    if kinds and kinds != ["chunked_attention" if one else "full_attention" for one in rotated]:
        out.refuse("layer_types are not those that llama.cpp takes for llama4")
    if facts.get("no_rope_layers", default=rotated) != [int(one) for one in rotated]:
        out.refuse("no_rope_layers is not every fourth layer, which GGUF cannot say for llama4")
    if facts.get("use_qk_norm", default=True) == (facts.count("num_local_experts") == _WITHOUT_NORM):
        out.refuse("use_qk_norm is not what llama.cpp takes for that many experts")


LLAMA4 = Architecture(
    "llama4",
    (Kind("llama4_text", "Llama4ForCausalLM", aliases=("llama4",)),),
    decoder(
        Rope(theta=500000.0),
        VOCAB,
        *expert_settings("num_local_experts"),
        Special(_read, _write),
        Always("attention_chunk_size", _CHUNK),
        Always("attn_temperature_tuning", True, unless=(4, 1)),
        Always("floor_scale", _CHUNK),
        Always("attn_scale", 0.1),
        gating(SIGMOID, written=False),
        bias_flag("attention_bias", "attn_q"),
        inner=Same("feed_forward_length", ("intermediate_size",)),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *feed_forward("feed_forward"),
        rule("ffn_gate_inp.weight", "feed_forward.router.weight"),
        *experts("feed_forward.experts"),
        *shared_expert("feed_forward.shared_expert"),
    ),
    exact="bits; chunks and temperatures by table",
)
