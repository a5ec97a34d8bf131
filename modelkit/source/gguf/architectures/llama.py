"""Llama and its kin: pairs of rotated rows side by side, which checkpoints have half a head apart."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.parts import (
    MLP,
    NORMS,
    PAIRED_ATTENTION,
    TOP,
    VOCAB,
    bias_flag,
    decoder,
    expert_settings,
    experts,
    has_experts,
    rule,
)
from modelkit.source.gguf.architectures.rope import Rope

_MIXTRAL = (
    rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
    *experts("block_sparse_moe.switch_mlp"),
)

LLAMA = Architecture(
    "llama",
    (
        Kind("mixtral", "MixtralForCausalLM", has_experts, expert_settings("num_local_experts")),
        Kind(
            "llama",
            "LlamaForCausalLM",
            settings=(bias_flag("attention_bias", "attn_q"), bias_flag("mlp_bias", "ffn_gate")),
        ),
        Kind("mistral", "MistralForCausalLM"),
    ),
    decoder(Rope(), VOCAB),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP, *_MIXTRAL),
    exact="bits; a sliding window is not in the file",
)
