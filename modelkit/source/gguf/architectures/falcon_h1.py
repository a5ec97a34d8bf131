"""Falcon-H1: attention and a state space side by side in every layer.

Its config multiplies nearly everything by numbers of its own; a GGUF file has them in its weights. Read, the
config says one for each; written, weights are multiplied.
"""

from collections.abc import Callable
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.hybrid import STATE
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import CONTEXT, HEAD_DIM, HEADS, HIDDEN, INNER, RMS, VOCAB, rule
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Kept, Members, Move, Rule
from modelkit.source.gguf.architectures.settings import Special, Written
from modelkit.source.gguf.architectures.state import (
    mamba2,
)
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Scaled:
    """Rows multiplied one factor after another: (first row, row behind the last or None, factor)."""

    factors: tuple[tuple[int, int | None, float], ...]

    @property
    def backwards(self) -> "Scaled":
        raise NotImplementedError("factors that were folded into weights are not known any more")

    def before(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, array: Any, xp: Any) -> Any:
        array = array.astype(xp.float32)
        for start, stop, factor in self.factors:
            rows = [array[:start], array[start:stop] * xp.array(factor, dtype=xp.float32)]
            array = xp.concatenate([*rows, array[stop:]] if stop is not None else rows)
        return array


Factors = Callable[[Facts], tuple[tuple[int, int | None, float], ...]]


@dataclass(frozen=True, slots=True)
class Folded:
    """A matrix that the file has multiplied already; read, it stays so and the config says one."""

    factors: Factors
    move: Move = Kept()  # frozen

    def link(self, members: Members) -> Link | None:
        plain = self.move.link(members)
        if plain is None or members.theirs[0] in members.shapes:
            return plain
        factors = tuple(one for one in self.factors(members.facts) if one[2] != 1.0)
        if not factors:
            return plain
        return Link(plain.theirs, plain.ours, plain.atoms, Scaled(factors))


def _all(*names: str, place: int = 0) -> Factors:
    """The whole matrix times these fields. place: of the number in a field that is a list."""

    def find(facts: Facts) -> tuple[tuple[int, int | None, float], ...]:
        told: list[Any] = [facts.get(name, default=1.0) for name in names]
        return tuple((0, None, float(one[place] if isinstance(one, list) else one)) for one in told)

    return find


def _in_proj(facts: Facts) -> tuple[tuple[int, int | None, float], ...]:
    """All rows, then those of z, x, B, C and the step sizes."""
    inner = facts.count("mamba_d_ssm", default=facts.count("mamba_expand", default=2) * facts.hidden)
    state = facts.count("mamba_n_groups", default=1) * facts.count("mamba_d_state", default=256)
    ends = (inner, 2 * inner, 2 * inner + state, 2 * inner + 2 * state, None)
    factors = facts.get("ssm_multipliers", default=(1.0,) * 5)
    found: list[tuple[int, int | None, float]] = [
        (0, None, float(facts.get("ssm_in_multiplier", default=1.0)))
    ]
    start = 0
    for stop, factor in zip(ends, factors, strict=True):
        found.append((start, stop, float(factor)))
        start = stop or 0
    return tuple(found)


_ONES = {
    "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 1.0,
    "key_multiplier": 1.0,
    "ssm_in_multiplier": 1.0,
    "ssm_out_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "lm_head_multiplier": 1.0,
    "mlp_multipliers": [1.0, 1.0],
    "ssm_multipliers": [1.0] * 5,
}


def _read_falcon(file: Reading) -> None:
    file.config |= _ONES
    file.config["mamba_d_ssm"] = file.count("ssm.inner_size")
    file.config["mamba_rms_norm"] = file.has(0, "ssm_norm")
    file.config["mamba_norm_before_gate"] = False
    file.config["projectors_bias"] = any(f"blk.{i}.ssm_out.bias" in file.shapes for i in range(file.layers))


def _write_falcon(out: Writing) -> None:
    if out.facts.get("mamba_rms_norm") and out.facts.get("mamba_norm_before_gate", default=True):
        out.refuse("the norm comes before the gate, which llama.cpp does not compute for falcon-h1")
    if out.facts.get("tie_word_embeddings") and (
        out.facts.get("embedding_multiplier", default=1.0) != out.facts.get("lm_head_multiplier", default=1.0)
    ):
        out.refuse("the head is tied to the embedding and has another multiplier, which GGUF cannot say")


def _folded(theirs: str, ours: str, factors: Factors, move: Move | None = None) -> Rule:
    """Weights are multiplied; a bias would have to be too."""
    return rule(theirs, ours, Folded(factors, move or Kept()))


FALCON_H1 = Architecture(
    "falcon-h1",
    (Kind("falcon_h1", "FalconH1ForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        *HEADS,
        HEAD_DIM,
        Written("attention.key_length", lambda out: out.facts.head_dim),
        Written("attention.value_length", lambda out: out.facts.head_dim),
        RMS,
        VOCAB,
        Rope(theta=100000.0, dimensions=False),
        *STATE,
        Special(_read_falcon, _write_falcon),
    ),
    (
        _folded("token_embd.weight", "model.embed_tokens.weight", _all("embedding_multiplier")),
        rule("output_norm.weight", "model.final_layernorm.weight"),
        _folded("output.weight", "lm_head.weight", _all("lm_head_multiplier")),
    ),
    (
        rule("attn_norm.weight", "input_layernorm.weight"),
        rule("ffn_norm", "pre_ff_layernorm.weight"),
        rule("ffn_norm.weight", "pre_ff_layernorm.weight"),
        _folded("attn_q.weight", "self_attn.q_proj.weight", _all("attention_in_multiplier")),
        _folded(
            "attn_k.weight", "self_attn.k_proj.weight", _all("key_multiplier", "attention_in_multiplier")
        ),
        _folded("attn_v.weight", "self_attn.v_proj.weight", _all("attention_in_multiplier")),
        _folded("attn_output.weight", "self_attn.o_proj.weight", _all("attention_out_multiplier")),
        _folded("ffn_gate.weight", "feed_forward.gate_proj.weight", _all("mlp_multipliers", place=0)),
        rule("ffn_up.weight", "feed_forward.up_proj.weight"),
        _folded("ffn_down.weight", "feed_forward.down_proj.weight", _all("mlp_multipliers", place=1)),
        _folded("ssm_in.weight", "mamba.in_proj.weight", _in_proj),
        _folded("ssm_out.weight", "mamba.out_proj.weight", _all("ssm_out_multiplier")),
        *(one for one in mamba2("mamba") if one.theirs[0] not in ("ssm_in.*", "ssm_out.*")),
    ),
    otherwise=("times",),
    exact="function; multipliers come back as one, folded into the weights",
)
