"""Hybrids of state spaces and attention: Granite 4, Bamba and Jamba, and what the others share with them.

Which layers are which the tensors say. The heads of keys are an array with zeros for layers without
attention, and llama.cpp's converter gets it wrong for configs of transformers 5 (and then leaves rows as
they were), so a file whose array does not agree with its tensors is refused.
"""

from collections.abc import Sequence

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.granite import MIXTURE, MULTIPLIERS, SHARED
from modelkit.source.gguf.architectures.moe import expert_settings, experts, is_sparse
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_COUNT,
    HIDDEN,
    INNER,
    PAIRED_ATTENTION,
    RMS,
    TOP,
    VOCAB,
    feed_forward,
    output_norm,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Setting, Special
from modelkit.source.gguf.architectures.state import (
    any_bias,
    heads_of_state,
    mamba,
    mamba2,
    no_limits,
)
from runtime.quoting import quoted

PLACES = 1 << 20
"""What the converter writes for models without rotation."""
TRAINED = 131072
"""How long these are trained, which such a file does not say."""


def attention_layers(file: Reading) -> list[bool]:
    """Which layers attend. Also reads the heads of keys."""
    found = file.layers_with("attn_k")
    counts = file.each("attention.head_count_kv")
    if not isinstance(
        file.get("attention.head_count_kv"), list
    ):  # said once, it is meant where there are keys
        counts = [count * attends for count, attends in zip(counts, found, strict=True)]
    if [bool(count) for count in counts] != found:
        file.unsupported(
            f"`{file.full('attention.head_count_kv')}` is {quoted(counts)}, and the tensors say otherwise",
            hint="A converter that wrote it so also left rows as they were. Convert the model again.",
        )
    heads = {count for count in counts if count}
    if len(heads) > 1:
        file.unsupported("layers have different numbers of key heads")
    file.config["num_key_value_heads"] = next(iter(heads), file.config["num_attention_heads"])
    return found


def put_kv_heads(out: Writing, attending: Sequence[bool]) -> None:
    heads = out.facts.kv_heads
    out.put("attention.head_count_kv", [heads if one else 0 for one in attending])
    out.otherwise += [] if any(attending) else ["kv_heads"]


def _read_mamba2(file: Reading) -> None:
    heads, size = heads_of_state(file)
    file.config |= {
        "mamba_n_heads": heads,
        "mamba_d_head": size,
        "mamba_expand": heads * size // file.config["hidden_size"],
        "mamba_d_state": file.count("ssm.state_size"),
        "mamba_n_groups": file.count("ssm.group_count"),
        "mamba_d_conv": file.count("ssm.conv_kernel"),
    }


def _write_mamba2(out: Writing) -> None:
    facts = out.facts
    heads = facts.count("mamba_n_heads", default=128)
    inner = facts.count("mamba_d_ssm", default=facts.count("mamba_expand", default=2) * facts.hidden)
    out.put("ssm.conv_kernel", facts.count("mamba_d_conv", default=4))
    out.put("ssm.state_size", facts.count("mamba_d_state", default=256))
    out.put("ssm.group_count", facts.count("mamba_n_groups", default=1))
    out.put("ssm.inner_size", inner)
    out.put("ssm.time_step_rank", heads)


STATE: tuple[Setting, ...] = (
    Special(_read_mamba2, _write_mamba2),
    any_bias("mamba_conv_bias", "ssm_conv1d"),
    any_bias("mamba_proj_bias", "ssm_in"),
    any_bias("attention_bias", "attn_q"),
    any_bias("mlp_bias", "ffn_gate"),
    Special(writing=no_limits),
)

_ATTENTION_WORDS = ("attention", "full_attention")


def _read_granite(file: Reading) -> None:
    attending = attention_layers(file)
    file.config["layer_types"] = ["attention" if one else "mamba" for one in attending]
    file.config["position_embedding_type"] = "nope"
    file.config["num_local_experts"] = file.count("expert_count", 0)
    file.config["num_experts_per_tok"] = file.count("expert_used_count", 0)
    if not file.config["num_local_experts"]:
        file.config["shared_intermediate_size"] = file.rows(0, "ffn_up") or file.config["intermediate_size"]


def _write_granite(out: Writing) -> None:
    facts = out.facts
    kinds = facts.get("layer_types", default=())
    put_kv_heads(out, [kind in _ATTENTION_WORDS for kind in kinds])
    if facts.get("position_embedding_type", default="nope") == "rope":
        out.refuse("a hybrid with rotation, which llama.cpp does not compute for granitemoehybrid")
    out.put("context_length", PLACES)
    out.put("rope.scaling.finetuned", False)
    experts_count = facts.count("num_local_experts")
    if experts_count:
        out.put("expert_count", experts_count)
        out.put("expert_used_count", facts.count("num_experts_per_tok"))
    else:
        out.put("feed_forward_length", facts.count("shared_intermediate_size"))


def _read_bamba(file: Reading) -> None:
    attending = attention_layers(file)
    file.config["attn_layer_indices"] = [i for i, one in enumerate(attending) if one]


def _write_bamba(out: Writing) -> None:
    kinds, listed = out.facts.get("layer_types"), out.facts.get("attn_layer_indices", default=())
    attending = [kind in _ATTENTION_WORDS for kind in kinds or ()]
    put_kv_heads(out, attending or [i in listed for i in range(out.facts.layers)])
    out.put("rope.scaling.finetuned", True)


_GRANITE_BLOCK = (
    *rules("attn_norm.* = input_layernorm.*\nffn_norm.* = post_attention_layernorm.*"),
    *PAIRED_ATTENTION,
    *mamba2("mamba"),
)
_GRANITE_SETTINGS: tuple[Setting, ...] = (HIDDEN, INNER, HEAD_COUNT, RMS, VOCAB, *STATE)

GRANITE_HYBRID = Architecture(
    "granitehybrid",
    (
        Kind(
            "granitemoehybrid",
            "GraniteMoeHybridForCausalLM",
            lambda file: file.get("rope.scaling.finetuned") is False,
            settings=(
                Special(lambda file: file.skip("context_length")),
                Special(lambda file: file.config.update(max_position_embeddings=TRAINED)),
                Rope(),
                *MULTIPLIERS,
                SHARED,
                Special(_read_granite, _write_granite),
            ),
        ),
    ),
    _GRANITE_SETTINGS,
    TOP,
    (
        *_GRANITE_BLOCK,
        *MIXTURE,
        *rules("""
            ffn_gate.* = mlp.gate_proj.*
            ffn_up.* = mlp.up_proj.*
            ffn_down.* = mlp.down_proj.*
        """),
    ),
    exact="function; A_log within 1.2e-7",
    otherwise=("context_length",),
)
BAMBA = Architecture(
    "granitehybrid",
    (
        Kind(
            "bamba",
            "BambaForCausalLM",
            settings=(CONTEXT, Rope(partial=0.5), Special(_read_bamba, _write_bamba)),
        ),
    ),
    _GRANITE_SETTINGS,
    output_norm("model.final_layernorm"),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            ffn_norm.* = pre_ff_layernorm.*
        """),
        *feed_forward("feed_forward"),
        *PAIRED_ATTENTION,
        *mamba2("mamba"),
    ),
    exact="function; A_log within 1.2e-7",
)


def _period(places: Sequence[bool]) -> tuple[int, int] | None:
    """(period, offset) of what comes back regularly; None where it does not."""
    if True not in places:
        return None
    offset = places.index(True)
    for period in range(offset + 1, len(places) + 1):
        if [i % period == offset for i in range(len(places))] == list(places):
            return period, offset
    return None


def _read_jamba(file: Reading) -> None:
    for name, places in (("attn", attention_layers(file)), ("expert", is_sparse(file))):
        found = _period(places)
        if found is None:
            file.unsupported(f"{name} layers do not come back regularly, which a config of Jamba cannot say")
        file.config[f"{name}_layer_period"], file.config[f"{name}_layer_offset"] = found
    inner, hidden = file.count("ssm.inner_size"), file.config["hidden_size"]
    if inner % hidden:
        file.unsupported(f"`{file.full('ssm.inner_size')}` is {inner}, not a multiple of {hidden}")
    file.config |= {
        "mamba_d_conv": file.count("ssm.conv_kernel"),
        "mamba_d_state": file.count("ssm.state_size"),
        "mamba_dt_rank": file.count("ssm.time_step_rank"),
        "mamba_expand": inner // hidden,
    }


def _write_jamba(out: Writing) -> None:
    facts = out.facts
    period, offset = (
        facts.count("attn_layer_period", default=8),
        facts.count("attn_layer_offset", default=4),
    )
    put_kv_heads(out, [i % period == offset for i in range(facts.layers)])
    rank = facts.get("mamba_dt_rank", default="auto")
    out.put("ssm.conv_kernel", facts.count("mamba_d_conv", default=4))
    out.put("ssm.inner_size", facts.count("mamba_expand", default=2) * facts.hidden)
    out.put("ssm.state_size", facts.count("mamba_d_state", default=16))
    out.put("ssm.time_step_rank", rank if type(rank) is int else -(-facts.hidden // 16))


JAMBA = Architecture(
    "jamba",
    (Kind("jamba", "JambaForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_COUNT,
        RMS,
        *expert_settings("num_experts", "num_local_experts"),
        Special(_read_jamba, _write_jamba),
        any_bias("mamba_conv_bias", "ssm_conv1d"),
        any_bias("mamba_proj_bias", "ssm_in"),
    ),
    output_norm("model.final_layernorm"),
    (
        *feed_forward("feed_forward"),
        *rules("""
            attn_norm.* = input_layernorm.*
            ffn_norm.* = pre_ff_layernorm.*
            ffn_gate_inp.weight = feed_forward.router.weight
            ssm_dt_norm.weight = mamba.dt_layernorm.weight
            ssm_b_norm.weight = mamba.b_layernorm.weight
            ssm_c_norm.weight = mamba.c_layernorm.weight
        """),
        *ATTENTION,
        *mamba("mamba"),
        *experts("feed_forward.switch_mlp"),
    ),
    exact="function; A_log within 1.2e-7",
)
