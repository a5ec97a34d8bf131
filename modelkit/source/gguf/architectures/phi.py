"""Phi 2, 3 and 3.5: fused matrices as in their checkpoints, and rotations of two lengths."""

import math
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import PLAIN_SOFTMAX, expert_settings, experts
from modelkit.source.gguf.architectures.numbers import shortest
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    FUSED_QKV,
    HEADS,
    HIDDEN,
    JOINED_MLP,
    LAYER_NORM,
    NORMS,
    TOP,
    bias_flag,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope, rope_block
from modelkit.source.gguf.architectures.rules import Joined, Parted
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from runtime.quoting import quoted
from runtime.records import dataclass

LONG_FACTORS, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


@dataclass(frozen=True, slots=True)
class LongRope:
    """A rotation whose pairs are slowed down by one list of factors up to a length, by another beyond it."""

    partial: float = 1.0
    theta: float = 10000.0
    told: bool = False
    """Does the config say what queries and keys are multiplied by, once for each list?"""

    def read(self, file: Reading) -> None:
        size = Facts(file.config).head_dim
        if not size:
            file.refuse(f"`{file.full('embedding_length')}` is too small for its heads")
        rotated = file.count("rope.dimension_count", size)
        block: dict[str, Any] = {"rope_theta": file.number("rope.freq_base", 10000.0), "rope_type": "default"}
        original = file.get("rope.scaling.original_context_length", int)
        factor = file.number("rope.scaling.attn_factor", 1.0)
        file.skip("rope.scaling.type")
        if LONG_FACTORS in file.shapes and _SHORT in file.shapes:
            file.used_tensors.update((LONG_FACTORS, _SHORT))
            block |= {
                "rope_type": "longrope",
                "long_factor": [shortest(number) for number in file.values(LONG_FACTORS)],
                "short_factor": [shortest(number) for number in file.values(_SHORT)],
                "original_max_position_embeddings": original or file.count("context_length"),
            }
            usual = attention_factor(file.count("context_length"), original or 1)
            if self.told:
                block["long_mscale"] = block["short_mscale"] = factor
            elif abs(factor - usual) > 1e-6:
                block["attention_factor"] = factor
        elif factor != 1.0:
            name = file.full("rope.scaling.attn_factor")
            file.unsupported(f"`{name}` is {factor:g} without lists of factors, which is not computed")
        if original is not None:
            file.config["original_max_position_embeddings"] = original
        if rotated != size or not self.told:
            block["partial_rotary_factor"] = rotated / size
        file.config["rope_parameters"] = block

    def write(self, out: Writing) -> None:
        facts = out.facts
        block = rope_block(facts)
        share = block.get("partial_rotary_factor", self.partial)
        out.put("rope.freq_base", float(block.get("rope_theta", self.theta)))
        out.put("rope.dimension_count", int(facts.head_dim * share))
        positions = facts.count("max_position_embeddings", default=4096)
        told = block.get("original_max_position_embeddings")
        original = facts.count("original_max_position_embeddings", default=told or positions)
        out.put("rope.scaling.original_context_length", original)
        if block["rope_type"] not in ("longrope", "su"):
            if block["rope_type"] != "default":
                out.refuse(f"rope_type {quoted(block['rope_type'])} is not written for {out.architecture}")
            return
        out.extra[LONG_FACTORS] = tuple(float(number) for number in block["long_factor"])
        out.extra[_SHORT] = tuple(float(number) for number in block["short_factor"])
        usual = attention_factor(positions, original, block.get("factor"))
        if self.told:
            usual = block.get("long_mscale", usual)
            if block.get("short_mscale", usual) != usual:
                out.refuse("long_mscale and short_mscale differ, which GGUF cannot say")
        out.put("rope.scaling.attn_factor", float(block.get("attention_factor") or usual))


def attention_factor(positions: int, original: int, factor: float | None = None) -> float:
    """What queries and keys are multiplied by. Source: Phi-3's longrope."""
    ratio = factor or positions / original
    return math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 and original > 1 else 1.0


def _fused_rows(facts: Facts, _: int) -> tuple[int, ...]:
    kv = facts.kv_heads * facts.head_dim
    return facts.heads * facts.head_dim, kv, kv


def _read_window(file: Reading) -> None:
    file.config["sliding_window"] = file.count("attention.sliding_window", 0) or None


PHI3 = Architecture(
    "phi3",
    (Kind("phi3", "Phi3ForCausalLM"),),
    decoder(
        LongRope(),
        Special(
            _read_window,
            lambda out: out.put("attention.sliding_window", out.facts.get("sliding_window", default=0)),
        ),
    ),
    TOP,
    (
        *NORMS,
        rule("attn_qkv.*", "self_attn.qkv_proj.*"),
        rule(
            ("attn_q.weight", "attn_k.weight", "attn_v.weight"),
            "self_attn.qkv_proj.weight",
            Joined(Parted(_fused_rows)),
            written=False,
        ),
        rule("attn_output.*", "self_attn.o_proj.*"),
        *JOINED_MLP,
    ),
)
PHIMOE = Architecture(
    "phimoe",
    (Kind("phimoe", "PhimoeForCausalLM"),),
    decoder(
        LongRope(told=True),
        Special(
            _read_window,
            lambda out: out.put("attention.sliding_window", out.facts.get("sliding_window", default=0)),
        ),
        *expert_settings("num_local_experts", "num_experts"),
        *PLAIN_SOFTMAX,
        Always("router_jitter_noise", 0.01),
        bias_flag("attention_bias", "attn_q"),
        Special(lambda file: file.config.update(lm_head_bias="output.bias" in file.shapes)),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        *experts("block_sparse_moe.switch_mlp"),
    ),
)
PHI2 = Architecture(
    "phi2",
    (Kind("phi", "PhiForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        Special(
            lambda file: _read_inner(file),
            lambda out: out.put("feed_forward_length", 4 * out.facts.hidden),
        ),
        *HEADS,
        Same(LAYER_NORM, ("layer_norm_eps",), needed=True),
        Rope(partial=0.5, silent=True),
    ),
    (
        *rules("""
            token_embd.* = model.embed_tokens.*
            output_norm.* = model.final_layernorm.*
            output.* = lm_head.*
        """),
    ),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            attn_q.* = self_attn.q_proj.*
            attn_k.* = self_attn.k_proj.*
            attn_v.* = self_attn.v_proj.*
            attn_output.* = self_attn.dense.*
            ffn_up.* = mlp.fc1.*
            ffn_down.* = mlp.fc2.*
        """),
        FUSED_QKV,
    ),
)


def _read_inner(file: Reading) -> None:
    """The converter writes four times the width; the matrices know."""
    file.skip("feed_forward_length")
    file.config["intermediate_size"] = file.rows(0, "ffn_up")
