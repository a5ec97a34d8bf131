"""Command with experts: the first layers are dense, under a name of its own for their width."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    ROUTER,
    SIGMOID,
    SOFTMAX,
    dense_count,
    expert_settings,
    experts,
    heads_behind,
    is_sparse,
    read_sparse,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    MLP,
    TOP,
    UNSCALED,
    VOCAB,
    bias_flag,
    rule,
)
from modelkit.source.gguf.architectures.plain import layer_norm_decoder
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Same, Special
from modelkit.source.gguf.architectures.windows import windows

_BIAS = bias_flag("attention_bias", "attn_q")


def _read_cohere(file: Reading) -> None:
    sparse = is_sparse(file)
    dense = sparse.index(True) if True in sparse else len(sparse)
    told = file.count("leading_dense_block_count", dense)
    if told != dense or not all(sparse[dense:]):
        file.refuse(f"`{file.full('leading_dense_block_count')}` is {told}; by the tensors it is {dense}")
    inner = file.count("expert_feed_forward_length")
    file.config |= {
        "prefix_dense_intermediate_size": file.config["intermediate_size"],
        "intermediate_size": inner,
    }
    read_sparse(file)
    file.skip("expert_shared_feed_forward_length")


def _write_cohere(out: Writing) -> None:
    facts = out.facts
    inner, shared = facts.count("intermediate_size"), facts.count("num_shared_experts")
    out.put("feed_forward_length", facts.count("prefix_dense_intermediate_size", default=inner))
    out.put("expert_feed_forward_length", inner)
    out.put("leading_dense_block_count", dense_count(out, "first_k_dense_replace", 0))
    if shared:
        if facts.get("shared_expert_combination_strategy", default="average") != "average":
            out.refuse("shared experts are not averaged, which GGUF cannot say for cohere2moe")
        out.put("expert_shared_count", shared)
        out.put("expert_shared_feed_forward_length", inner * shared)


def _score(file: Reading) -> None:
    told = file.count("expert_gating_func", SIGMOID)
    if told not in (SOFTMAX, SIGMOID):
        file.unsupported(f"`{file.full('expert_gating_func')}` is {told}; 1 and 2 are known here")
    normalized = file.get("expert_weights_norm", bool) or False
    if told == SOFTMAX and not normalized:
        file.unsupported("weights of experts are a softmax over all of them, which is not computed")
    file.config |= {
        "expert_selection_fn": "sigmoid" if told == SIGMOID else "softmax",
        "norm_topk_prob": normalized,
    }


def _write_score(out: Writing) -> None:
    """A softmax is one over the chosen experts, whatever `norm_topk_prob` says."""
    sigmoid = out.facts.get("expert_selection_fn") == "sigmoid"
    out.put("expert_gating_func", SIGMOID if sigmoid else SOFTMAX)
    out.put("expert_weights_norm", not sigmoid or out.facts.get("norm_topk_prob", default=True))


COHERE2MOE = Architecture(
    "cohere2moe",
    (Kind("cohere2_moe", "Cohere2MoeForCausalLM"),),
    (
        *layer_norm_decoder("layer_norm_eps", Rope()),
        VOCAB,
        *expert_settings(),
        Same("logit_scale", ("logit_scale",), default=0.0625, zero=1.0, kind=float),
        UNSCALED,
        *windows(period=4, full_first=True),
        Special(_read_cohere, _write_cohere),
        Special(_score, _write_score),
        Same("expert_shared_count", ("num_shared_experts",), off=0, absent=0),
        heads_behind(),
        _BIAS,
    ),
    TOP,
    (
        rule("attn_norm.weight", "input_layernorm.weight"),
        *ATTENTION,
        FUSED_QKV,
        *MLP,
        ROUTER,
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
)
