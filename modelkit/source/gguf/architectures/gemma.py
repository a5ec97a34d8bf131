"""Gemma 1 to 3, and EmbeddingGemma, which is Gemma 3 that looks both ways. Checkpoints store norms less one,
and heads are always tied.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    MLP,
    SHIFTED,
    bias_flag,
    decoder,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope, TwoRopes
from modelkit.source.gguf.architectures.settings import Same, Special
from modelkit.source.gguf.architectures.windows import windows
from runtime.records import dataclass

_TOP = (
    *rules("""
        token_embd.* = model.embed_tokens.*
        output.* = lm_head.*
    """),
    *rules("output_norm.* = model.norm.*", SHIFTED),
)
_REST = (*ATTENTION, FUSED_QKV, *MLP)
_FOUR_NORMS = rules(
    """
    attn_norm.* = input_layernorm.*
    post_attention_norm.* = post_attention_layernorm.*
    ffn_norm.* = pre_feedforward_layernorm.*
    post_ffw_norm.* = post_feedforward_layernorm.*
    attn_q_norm.* = self_attn.q_norm.*
    attn_k_norm.* = self_attn.k_norm.*
    """,
    SHIFTED,
)
_BOTH_WAYS = "use_bidirectional_attention"
_BIAS = bias_flag("attention_bias", "attn_q")


def query_scale(layers: int | None) -> Special:
    """Scores are divided by the root of a head's size, or of hidden / heads in the largest model, which
    llama.cpp knows by its number of layers; None: there is no such model.
    """

    def scalar(count: int, hidden: int, heads: int, size: int) -> int:
        return hidden // heads if count == layers else size

    def read(file: Reading) -> None:
        config = file.config
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        config["query_pre_attn_scalar"] = scalar(file.layers, config["hidden_size"], heads, size)

    def write(out: Writing) -> None:
        facts = out.facts
        wanted = scalar(facts.layers, facts.hidden, facts.heads, facts.head_dim)
        if facts.get("query_pre_attn_scalar", default=256) != wanted:
            out.refuse(f"query_pre_attn_scalar is not {wanted}, which GGUF cannot say for {out.architecture}")

    return Special(read, write)


@dataclass(frozen=True, slots=True)
class Cap:
    """A bound that llama.cpp takes for granted where a file says none, and a config denies by a null."""

    name: str
    usual: float
    """llama.cpp's."""
    said: bool = True
    """Does transformers take it for granted, too?"""
    deniable: bool = False
    """Does llama.cpp take a 0 for none?"""

    def read(self, file: Reading) -> None:
        value = file.number(self.name, self.usual)
        file.config[self.name] = float(value) if value or not self.deniable else None

    def write(self, out: Writing) -> None:
        value = out.facts.config.get(self.name, self.usual if self.said else None)
        if value is None and not self.deniable:
            out.refuse(f"{self.name} is null, which GGUF cannot say for {out.architecture}")
        out.put(self.name, float(value or 0.0))


GEMMA = Architecture(
    "gemma",
    (Kind("gemma", "GemmaForCausalLM"),),
    decoder(Rope(dimensions=False, silent=True), _BIAS),
    _TOP,
    (
        *rules("attn_norm.* = input_layernorm.*\nffn_norm.* = post_attention_layernorm.*", SHIFTED),
        *_REST,
    ),
    exact="bits; norms within 3e-8",
)
GEMMA2 = Architecture(
    "gemma2",
    (Kind("gemma2", "Gemma2ForCausalLM"),),
    decoder(
        Rope(dimensions=False, silent=True),
        Cap("attn_logit_softcapping", 50.0),
        Cap("final_logit_softcapping", 30.0),
        *windows(period=2, pattern=False, always=4096),
        query_scale(46),
        _BIAS,
    ),
    _TOP,
    (*_FOUR_NORMS, *_REST),
    exact="bits; norms within 3e-8",
)
GEMMA3 = Architecture(
    "gemma3",
    (Kind("gemma3_text", "Gemma3ForCausalLM", aliases=("gemma3",)),),
    decoder(
        TwoRopes(theta=1000000.0, window_theta=10000.0),
        Same("final_logit_softcapping", ("final_logit_softcapping",)),
        *windows(period=6, pattern=False),
        query_scale(62),
        _BIAS,
    ),
    _TOP,
    (*_FOUR_NORMS, *_REST),
    exact="bits; norms within 3e-8",
    condition=lambda config: not config.get(_BOTH_WAYS),
)


def _both_ways(file: Reading) -> None:
    file.config[_BOTH_WAYS] = True
    for name in ("dense_2", "dense_3"):
        told = [file.count(f"{name}_feat_{side}", 0) for side in ("out", "in")]
        shape = file.shapes.get(f"{name}.weight")
        if shape is None:
            continue
        if list(shape) != told:
            file.refuse(f"`{name}.weight` is {list(shape)}, and the metadata tell {told}")
        file.used_tensors.add(f"{name}.weight")
        file.dense.append(f"{name}.weight")


EMBEDDING = Architecture(
    "gemma-embedding",
    (Kind("gemma3_text", "Gemma3TextModel", aliases=("gemma3",)),),
    decoder(
        Special(_both_ways),
        TwoRopes(theta=1000000.0, window_theta=10000.0),
        *windows(period=6, pattern=False, irregular=True),
        query_scale(None),
        _BIAS,
    ),
    (
        *rules("token_embd.* = model.embed_tokens.*"),
        *rules("output_norm.* = model.norm.*", SHIFTED),
    ),
    (*_FOUR_NORMS, *_REST),
    exact="bits; norms within 3e-8",
    condition=lambda config: bool(config.get(_BOTH_WAYS)),
    looks_ahead=True,
    always_ahead=True,
    dense=True,
)
