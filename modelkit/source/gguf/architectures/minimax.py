"""MiniMax-Text-01 and M1: lightning attention (linear, with a decay for each head) between layers with
softmax, and a mixture of experts in each.

What sublayers add to is the norm of what enters, times a factor that GGUF has one of.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import SOFTMAX, expert_settings, experts
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import NORMS, TOP, decoder, rule, rules
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Kept, Members
from modelkit.source.gguf.architectures.settings import Always, Special
from runtime.records import dataclass

_KINDS = {True: "linear_attention", False: "full_attention"}
_PERIOD = 8
_SUBLAYERS = ("full_attn", "linear_attn", "mlp")


def _read_layers(file: Reading) -> None:
    """Which layers are linear the tensors say, and some files once more."""
    linear = [file.has(layer, "attn_gate") for layer in range(file.layers)]
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


@dataclass(frozen=True, slots=True)
class _Of:
    """A tensor of one kind of layers."""

    linear: bool

    def link(self, members: Members) -> Link | None:
        kinds = members.facts.get("layer_types", default=())
        fits = members.layer < len(kinds) and kinds[members.layer] == _KINDS[self.linear]
        return Kept().link(members) if fits else None


MINIMAX_01 = Architecture(
    "minimax-01",
    (Kind("minimax", "MiniMaxForCausalLM"),),
    decoder(
        Rope(theta=1000000.0),
        Special(_read_rotated, lambda _: None),
        Special(_read_layers, _write_layers),
        *expert_settings("num_local_experts"),
        *SOFTMAX,
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
        rule("attn_output.weight", "self_attn.o_proj.weight", _Of(linear=False)),
        rule("attn_output.weight", "self_attn.out_proj.weight", _Of(linear=True)),
        *experts("block_sparse_moe.switch_mlp"),
    ),
)
